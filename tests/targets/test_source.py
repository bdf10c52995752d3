"""What a target string means."""

from __future__ import annotations

from pathlib import Path

import pytest

from hyflash_bench.errors import UnknownName, UsageError
from hyflash_bench.targets.source import Source, parse, require_pinned

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def test_a_preset_goes_by_its_name() -> None:
    assert parse("smollm2-135m") == Source("preset", "smollm2-135m", None, "smollm2-135m")


@pytest.mark.parametrize(
    ("text", "location", "revision", "name"),
    [
        ("org/model", "org/model", None, "model"),
        ("org/Model-1.5B@main", "org/Model-1.5B", "main", "Model-1.5B"),
        (f"org/model@{COMMIT}", "org/model", COMMIT, "model"),
        ("org/model@refs/pr/3", "org/model", "refs/pr/3", "model"),
    ],
)
def test_a_hub_id_may_name_a_revision(text: str, location: str, revision: str | None, name: str) -> None:
    assert parse(text) == Source("hub", location, revision, name)


def test_a_folder_on_disk_wins_over_a_hub_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "org" / "model"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    monkeypatch.chdir(tmp_path)

    assert parse("org/model") == Source("folder", "org/model", None, "model")


def test_a_gguf_file_can_be_given_alone(tmp_path: Path) -> None:
    path = tmp_path / "tiny.Q4.gguf"
    path.touch()

    assert parse(str(path)) == Source("gguf", str(path), None, "tiny.Q4")


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"config\.json is missing"):
        parse(str(tmp_path))


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    path.touch()

    with pytest.raises(UsageError, match=r"Only \.gguf files"):
        parse(str(path))


@pytest.mark.parametrize("text", ["./model", "../org/model", "/org/model", "~no-one/x", "missing/model.gguf"])
def test_a_path_to_nothing_is_no_hub_id(text: str) -> None:
    with pytest.raises(UsageError, match=r"no model folder or \.gguf file .* Check the path"):
        parse(text)


@pytest.mark.parametrize(
    "text", ["smollm2-153m", "https://hub/org/model", "a/b/c", "org/-model", "örg/model"]
)
def test_anything_else_is_unknown(text: str) -> None:
    with pytest.raises(UnknownName, match="Known: smollm2-135m"):
        parse(text)


def test_the_nearest_preset_is_offered() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'smollm2-135m'"):
        parse("smolm2-135m")


@pytest.mark.parametrize("text", ["org/model", "org/model@main", f"org/model@{COMMIT[:12]}"])
def test_remote_code_needs_a_commit(text: str) -> None:
    with pytest.raises(UsageError, match="pinned commit"):
        require_pinned(parse(text))


def test_a_commit_is_pinned() -> None:
    require_pinned(parse(f"org/model@{COMMIT}"))
