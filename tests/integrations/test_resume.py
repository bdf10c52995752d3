"""``quality`` goes on: whatever ended it, nothing is asked twice and the tables are the same."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from hyflash_bench.integrations.likelihood import Likelihood
from hyflash_bench.integrations.replies import Replies
from hyflash_bench.results.lines import read_lines
from tests.integrations.conftest import Quality
from tests.runner.requests import tables

ROOT = Path(__file__).parents[2]
TASKS = ("--tasks", "own_words,own_choice,own_perplexity", "--limit", "3")
DRAFTERS = ("--drafter", "suffix", "--drafter", "prompt-lookup:max_ngram=2")
LINES_OF_A_PROMPT = 4
"""The trace, the target alone and two drafters."""
KILLED = """
import os, signal, sys
from hyflash_bench.cli.main import app
from hyflash_bench.results.lines import LineFile

append, left = LineFile.append, int(sys.argv.pop(1))

def deadly(self, record):
    global left
    left -= 1
    if not left:
        os.write(self._file.fileno(), b'{"record": "conv')
        os.kill(os.getpid(), signal.SIGKILL)
    return append(self, record)

LineFile.append = deadly
app()
"""


@pytest.fixture(scope="module")
def whole(quality: Quality, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing disturbed."""
    path = tmp_path_factory.mktemp("whole") / "run"
    done = quality(*TASKS, *DRAFTERS, "--output-path", str(path))
    assert done.exit_code == 0, done.output
    return path


def _scores(path: Path) -> list[dict[str, object]]:
    return list(json.loads((path / "quality.json").read_text())["scores"])


def _lines(path: Path) -> Counter[str]:
    """How often each thing was stored."""
    found: Counter[str] = Counter()
    for name, keys in (("traces", "trace_id"), ("conversations", "cell_id item_id"), ("likelihoods", "keys")):
        for line in read_lines(path / f"{name}.jsonl"):
            found[name + "".join(str(line.value[key]) for key in keys.split())] += 1
    return found


@pytest.mark.parametrize(
    "num_lines",
    [
        LINES_OF_A_PROMPT + 3,  # the second prompt has its trace and the target's own reply
        3 * LINES_OF_A_PROMPT + 2,  # all replies are there, and the likelihoods of one question
    ],
)
def test_a_killed_run_goes_on(
    quality: Quality, workshop: Path, whole: Path, tmp_path: Path, num_lines: int
) -> None:
    """With half a line on disk."""
    path = tmp_path / "run"
    always = ["--target", str(workshop / "target"), "--include-path", str(workshop / "tasks")]
    words = ["quality", *always, *TASKS, *DRAFTERS, "--output-path", str(path)]
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(num_lines), *words], capture_output=True, check=False, cwd=ROOT
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    before = _lines(path)
    assert sum(before.values()) == num_lines - 1
    assert not (path / "quality.json").exists()

    done = quality(*TASKS, *DRAFTERS, "--output-path", str(path))
    assert done.exit_code == 0, done.output
    after = _lines(path)
    assert set(after.values()) == {1}
    assert set(before) < set(after) == set(_lines(whole))
    assert _scores(path) == _scores(whole)
    assert tables(path) == tables(whole)
    assert "of them were answered before" in done.stderr


def test_a_finished_run_asks_nothing(quality: Quality, whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its scores are those that it had; a part of its tasks is finished as well."""
    monkeypatch.setattr(Replies, "play", _must_not_be_called)
    monkeypatch.setattr(Likelihood, "_pass", _must_not_be_called)
    before, scores = _lines(whole), _scores(whole)
    part = quality("--tasks", "own_words", "--limit", "2", "--drafter", "suffix", "--output-path", str(whole))
    assert part.exit_code == 0, part.output
    again = quality(*TASKS, *DRAFTERS, "--output-path", str(whole))

    assert again.exit_code == 0, again.output
    assert _scores(whole) == scores
    assert _lines(whole) == before


def test_an_interrupted_run_says_so_and_takes_a_further_drafter(
    quality: Quality, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run"
    play, left = Replies.play, iter([True, True])

    def interrupted(self: Replies, *rest: object, **more: object) -> object:
        if not next(left, False):
            raise KeyboardInterrupt
        return play(self, *rest, **more)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(Replies, "play", interrupted)
        stopped = quality(*TASKS, *DRAFTERS[:2], "--output-path", str(path))
    assert stopped.exit_code == 130
    assert "the same command goes on" in stopped.stderr
    kept = _lines(path)
    assert sum(kept.values()) == 2 * (LINES_OF_A_PROMPT - 1)

    done = quality(*TASKS, *DRAFTERS, "--output-path", str(path))
    assert done.exit_code == 0, done.output
    assert set(_lines(path).values()) == {1}
    assert _scores(path) == _scores(whole)
    assert tables(path) == tables(whole)


def test_a_drafter_that_broke_down_is_asked_again(quality: Quality, workshop: Path, tmp_path: Path) -> None:
    """Its file was mended meanwhile: that makes another drafter of it."""
    path = tmp_path / "run"
    mended = tmp_path / "mine.py"
    broken = (workshop / "broken.py").read_text()
    mended.write_text(broken)
    words = ("--tasks", "own_words", "--limit", "1", "--drafter", f"{mended}:Broken")
    first = quality(*words, "--output-path", str(path))
    assert first.exit_code == 1
    again = quality(*words, "--output-path", str(path))
    assert again.exit_code == 1
    assert "no more drafts" in again.stderr
    mended.write_text(
        broken.replace('raise RuntimeError("no more drafts")', "return Draft.empty()").replace(
            "import Drafter", "import Draft, Drafter"
        )
    )
    done = quality(*words, "--output-path", str(path))
    assert done.exit_code == 0, done.output
    assert sum(name.startswith("traces") for name in _lines(path)) == 1


def test_another_target_is_not_mixed_in(quality: Quality, whole: Path) -> None:
    before = _lines(whole)
    done = quality(*TASKS, *DRAFTERS, "--dtype", "bfloat16", "--output-path", str(whole))

    assert done.exit_code == 2
    assert "--fresh" in done.stderr
    assert _lines(whole) == before


def _must_not_be_called(*_: object, **__: object) -> None:
    raise AssertionError("asked again")
