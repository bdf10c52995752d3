"""``quality``: tasks by name, scores side by side, and a run folder that everything else reads."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import lm_eval.tasks
import pytest
from click.testing import CliRunner, Result
from lm_eval.tasks import TaskManager
from lm_eval.tasks._yaml_loader import _load_module_with_cache
from transformers import AutoTokenizer

from hyflash_bench.analysis.summary import headline
from hyflash_bench.cli.main import app
from hyflash_bench.engine.lossless import Judgement
from hyflash_bench.errors import DownloadError, MissingDependency, UsageError
from hyflash_bench.integrations import replies, tasks
from hyflash_bench.integrations.tasks import TaskRequest, load_tasks
from hyflash_bench.report.page import write_report
from hyflash_bench.results import load_run
from hyflash_bench.suites.chat import ChatTokenizer
from tests.integrations.conftest import Quality

RULER = Path(lm_eval.tasks.__file__).parent / "ruler"


@pytest.fixture(scope="module")
def measured(quality: Quality, workshop: Path) -> tuple[Result, Path]:
    """Two tasks with the target alone and two drafters."""
    path = workshop / "run"
    done = quality(
        *("--tasks", "own_words,own_choice", "--limit", "3", "--drafter", "suffix"),
        *("--drafter", "prompt-lookup:max_ngram=2", "--output-path", str(path)),
    )
    assert done.exit_code == 0, done.output
    return done, path


def test_scores_stand_side_by_side_and_are_equal_in_greedy(measured: tuple[Result, Path]) -> None:
    done, path = measured
    scores = json.loads((path / "quality.json").read_text())["scores"]
    labels = ["autoregressive", "suffix", "prompt-lookup:max_ngram=2"]
    assert [score["drafter"] for score in scores if score["task"] == "own_words"] == labels
    for task, metric in (("own_words", "exact_match"), ("own_choice", "acc")):
        values = {score["drafter"]: score["score"] for score in scores if score["task"] == task}
        assert set(values) == set(labels)
        assert len(set(values.values())) == 1
        assert {score["metric"] for score in scores if score["task"] == task} == {metric}
    agreements = {(score["task"], score["drafter"]): score["agreement"] for score in scores}
    assert agreements["own_words", "suffix"] == "identical"
    assert agreements["own_words", "autoregressive"] is None
    assert agreements["own_choice", "suffix"] is None
    assert done.stdout == f"{path}\n"
    assert "identical" in done.stderr


def test_the_run_folder_is_one_like_any_other(measured: tuple[Result, Path], tmp_path: Path) -> None:
    """Acceptance and tokens/s of the generated task in the same frames, shown and reported."""
    run = load_run(measured[1])
    table = headline(run)
    assert set(table["suite"]) == {"own_words"}
    assert len(table) == 3
    assert table["acceptance_length"].notna().all()
    assert (table["decode_tok_per_s"] > 0).all()
    assert (table["num_conversations"] == 3).all()
    assert set(run.turns["lossless"]) == {"identical"}
    assert (run.turns["ledger_bytes"] > 0).all()
    shown = CliRunner().invoke(app, ["show", str(measured[1])])
    assert shown.exit_code == 0, shown.output
    assert "own_words" in shown.stdout
    assert "own_words" in write_report(run, tmp_path / "page.html").read_text()


def test_replies_in_the_run_folder_end_before_the_limit_where_a_stop_string_came(
    measured: tuple[Result, Path],
) -> None:
    run = load_run(measured[1])
    for row in run.traces.itertuples():
        ended = "three" in row.text or "\n" in row.text or row.num_output_tokens < 24
        assert row.stop_reason == ("eos" if ended else "limit")


def test_examples_in_the_prompts_are_the_same_for_every_drafter(quality: Quality, tmp_path: Path) -> None:
    """They are drawn at random; other prompts would make other traces."""
    path = tmp_path / "run"
    done = quality("--tasks", "own_shots", "--drafter", "suffix", "--output-path", str(path))

    assert done.exit_code == 0, done.output
    assert len(load_run(path).traces) == 4
    assert "identical" in done.stderr


def test_a_drafter_that_breaks_down_leaves_the_others_their_scores(
    quality: Quality, workshop: Path, tmp_path: Path
) -> None:
    done = quality(
        *("--tasks", "own_words", "--limit", "2", "--drafter", f"{workshop}/broken.py:Broken"),
        *("--output-path", str(tmp_path / "run"), "--json"),
    )
    assert done.exit_code == 1
    scores = {score["drafter"]: score for score in json.loads(done.stdout)}
    assert scores["autoregressive"]["score"] is not None
    broken = scores[f"{workshop}/broken.py:Broken"]
    assert broken["score"] is None
    assert "no more drafts" in broken["message"]
    cells = load_run(tmp_path / "run").cells
    assert set(cells["status"]) == {"ok", "error"}


def test_replies_that_differ_are_a_mismatch(
    quality: Quality, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replies, "judge", lambda *_: Judgement("mismatch", 3, 1.5))
    done = quality(
        *("--tasks", "own_words", "--limit", "1", "--drafter", "suffix"),
        *("--output-path", str(tmp_path / "run")),
    )
    assert done.exit_code == 1
    assert "mismatch" in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--tasks", "own_remote"), "HF_HUB_OFFLINE"),
        (("--tasks", "vt", "--length", "2000"), "cannot be made shorter than"),
        (("--tasks", "fwe", "--length", "99999"), "2,048 positions"),
        (("--tasks", "own_words", "--max-new-tokens", "2040"), "2,048 positions"),
        (("--tasks", "own_words", "--drafter", "sufix"), "Did you mean 'suffix'"),
        (("--tasks", "own_words", "--include-path", "nowhere"), "no such folder"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_message(
    quality: Quality, tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    done = quality(*words, "--output-path", str(tmp_path / "run"))

    assert done.exit_code in (1, 2)
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_an_unknown_task_is_answered_with_the_nearest_names(
    workshop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Among all of lm-eval's tasks; here RULER's stand for them, since reading all takes long."""

    def some(include_path: list[str], include_defaults: bool = False, **rest: Any) -> TaskManager:
        return TaskManager(
            include_path=[str(RULER), *include_path], include_defaults=include_defaults, **rest
        )

    monkeypatch.setattr(tasks, "TaskManager", some)
    request = TaskRequest(("niah_singl_1", "own_words"), (workshop / "tasks",))
    tokenizer = AutoTokenizer.from_pretrained(workshop / "target")
    with pytest.raises(UsageError, match=r"Unknown task 'niah_singl_1'. Nearest: niah_single_1"):
        load_tasks(request, tokenizer, 2048)


def test_a_data_set_that_is_not_here_is_refused_with_what_runs_without(workshop: Path) -> None:
    request = TaskRequest(("own_remote",), (workshop / "tasks",))
    tokenizer = AutoTokenizer.from_pretrained(workshop / "target")
    with pytest.raises(DownloadError, match=r"own_remote needs a data set .* niah_single_1"):
        load_tasks(request, tokenizer, 2048)


@pytest.mark.real
def test_rulers_own_texts_need_no_download(
    smollm2_tokenizer: ChatTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the short name and at the length asked for; RULER counts the reply's 50 tokens on top."""
    made = _load_module_with_cache(RULER / "fwe_utils.py")
    monkeypatch.setattr(made, "sys_kwext", partial(made.sys_kwext, num_samples=4))
    request = TaskRequest(("fwe",), lengths=(256,), max_new_tokens=8)
    task = load_tasks(request, smollm2_tokenizer.tokenizer, 8192)["tasks"]["ruler_fwe"]
    texts = task.dataset["test"]

    assert set(texts["max_length"]) == {256}
    assert max(texts["length"]) <= 256 + 50
    assert task.config.generation_kwargs["max_gen_toks"] == 8


def test_without_lm_eval_the_message_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = [name for name in sys.modules if name.startswith("hyflash_bench.integrations.")]
    for name in [name for name in sys.modules if name.split(".")[0] == "lm_eval"]:
        monkeypatch.setitem(sys.modules, name, None)
    for name in ours:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    done = CliRunner().invoke(app, ["quality", "--tasks", "own_words"])

    assert done.exit_code == 1
    assert "pip install 'hyflash-bench[lm-eval]'" in done.stderr
    assert MissingDependency.__name__ not in done.stderr
