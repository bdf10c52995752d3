"""Files of a target: fetched without torch, and told apart from those of an earlier load."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from hyflash_bench.spec.target import TargetSpec
from hyflash_bench.targets.files import are_unchanged, fetch_target
from hyflash_bench.targets.load import load_target
from hyflash_bench.targets.presets import PRESETS

pytestmark = pytest.mark.usefixtures("user_cache")


def test_the_users_own_folder_needs_no_fetching(tiny_target: Path) -> None:
    assert fetch_target(TargetSpec(target=str(tiny_target))) is None


def test_a_preset_that_is_there_is_fetched_without_torch(user_cache: Path) -> None:
    """Torch and transformers take seconds to import, and nothing is computed."""
    folder = user_cache / "models" / PRESETS["smollm2-135m"].gguf_sha256
    folder.mkdir(parents=True)
    code = (
        "import sys\n"
        "from hyflash_bench.cli.main import app\n"
        "import hyflash_bench.suites.suite as suites\n"
        "suites.Suite.prepare = lambda *_, **__: None\n"
        "app(['fetch', 'multiturn'], standalone_mode=False)\n"
        "sys.exit(', '.join(sorted({'torch', 'transformers'} & set(sys.modules))) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert "target smollm2-135m is ready" in done.stderr


def test_a_folder_is_unchanged_until_a_file_is(tiny_target: Path) -> None:
    spec = TargetSpec(target=str(tiny_target))
    info = asdict(load_target(spec).info)

    assert are_unchanged(spec, info)
    assert not are_unchanged(spec, info | {"settings": "0" * 64})
    assert not are_unchanged(spec, info | {"settings": None})
    assert not are_unchanged(spec, info | {"fingerprint": info["fingerprint"] | {"weights": "0" * 64}})
    assert not are_unchanged(spec.model_copy(update={"trust_remote_code": True}), info)


def test_a_preset_that_would_have_to_be_fetched_is_not_unchanged() -> None:
    assert not are_unchanged(TargetSpec(), {"fingerprint": {"weights": "0" * 64}, "settings": "0" * 64})


@pytest.mark.parametrize(("revision", "expected"), [("@" + "a" * 40, True), ("@main", False), ("", False)])
def test_only_a_pinned_commit_of_the_hub_is_believed(revision: str, expected: bool) -> None:
    spec = TargetSpec(target=f"org/model{revision}")
    assert are_unchanged(spec, {"revision": "a" * 40}) is expected
