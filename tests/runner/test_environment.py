"""What is written down about the machine and the code."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from hyflash_bench.results.merge import differences
from hyflash_bench.runner.environment import busy_share, environment, git_state
from hyflash_bench.runner.events import Event
from hyflash_bench.runner.run import _told_when_busy
from hyflash_bench.spec.run import RunSpec

GIT = ("git", "-c", "user.name=Someone", "-c", "user.email=someone@example.org", "-c", "commit.gpgsign=false")


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package below a repository with one commit, not yet part of it."""
    _git(tmp_path, "init", "--quiet")
    _git(tmp_path, "commit", "--quiet", "--allow-empty", "--message=first")
    folder = tmp_path / "package"
    folder.mkdir()
    (folder / "module.py").write_text("")
    return folder


def test_a_package_below_a_strangers_repository_has_no_commit(package: Path) -> None:
    assert git_state(package) is None


def test_a_checkout_tells_its_commit_and_whether_it_was_changed(package: Path) -> None:
    _git(package, "add", ".")
    _git(package, "commit", "--quiet", "--message=second")
    clean = git_state(package)
    (package / "module.py").write_text("changed = True\n")
    changed = git_state(package)

    assert clean is not None
    assert changed is not None
    assert clean["commit"] == changed["commit"] == _git(package, "rev-parse", "HEAD")
    assert (clean["dirty"], changed["dirty"]) == (False, True)


def test_outside_any_repository_there_is_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))

    assert git_state(tmp_path) is None


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run([*GIT, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_busy_machine_is_told_and_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Speeds measured beside other work are too low; replay alone is not timed."""
    monkeypatch.setattr("hyflash_bench.runner.run.busy_share", lambda: 0.8)
    told: list[Event] = []
    assert _told_when_busy(RunSpec.parse({}), told.append) == 0.8
    assert "80%" in str(told[0])
    _told_when_busy(RunSpec.parse({"mode": "replay"}), told.append)
    assert len(told) == 1
    monkeypatch.setattr("hyflash_bench.runner.run.busy_share", lambda: 0.1)
    _told_when_busy(RunSpec.parse({}), told.append)
    assert len(told) == 1


def test_how_busy_a_machine_was_does_not_keep_a_run_from_going_on() -> None:
    assert not differences("environment", {"busy_share": 0.1, "cpu": "x"}, {"busy_share": 0.9, "cpu": "x"})


@pytest.mark.parametrize(
    ("was", "now", "is_another"),
    [
        ({"memory_bytes": 25_276_518_400}, {"memory_bytes": 25_276_063_744}, False),
        ({"memory_bytes": 25_276_518_400}, {"memory_bytes": 12_638_259_200}, True),
        ({"vector_units": "AVX-512"}, {"vector_units": "AVX2"}, True),
        ({"cpu": "x"}, {"cpu": "x", "vector_units": "AVX2"}, False),
        ({"cpu": "x"}, {"cpu": "x", "num_cores": 2}, True),
    ],
    ids=["another kernel", "half the memory", "slower vectors", "told by a later version", "told by none"],
)
def test_another_boot_is_the_same_machine_and_another_processor_is_not(
    was: dict[str, object], now: dict[str, object], is_another: bool
) -> None:
    assert bool(differences("environment", was, now)) is is_another


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ("model name\t: A CPU\nflags\t\t: fpu avx2 avx512f\n", "AVX-512"),
        ("model name\t: A CPU\nflags\t\t: fpu avx2\n", "AVX2"),
        ("model name\t: A CPU\nflags\t\t: fpu sse2\n", None),
        ("processor\t: 0\nFeatures\t: fp asimd\n", "NEON"),
    ],
)
def test_the_widest_vector_instructions_are_told(
    lines: str, told: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "read_text", lambda self, **options: lines)
    assert environment()["vector_units"] == told


def test_the_share_in_use_is_a_share() -> None:
    assert 0.0 <= busy_share(0.05) <= 1.0
