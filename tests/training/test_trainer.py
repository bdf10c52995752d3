"""Training: it learns, goes on exactly where it stopped, and survives what goes wrong."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from hyflash_bench.drafters.networks import checkpoint
from hyflash_bench.drafters.networks.checkpoint import load_network
from hyflash_bench.errors import DataError, DrafterError, HyFlashError, RunLocked, SpecError, UsageError
from hyflash_bench.targets.target import Target
from hyflash_bench.training import pupil
from hyflash_bench.training.events import Evaluated, Event, Said
from hyflash_bench.training.pupil import Pupil
from hyflash_bench.training.trainer import Outcome, train
from tests.tiny import save_tiny_target
from tests.training.toys import toy_documents, toy_plan, toy_target, write_corpus

ROSTER = ["medusa:num_slots=3", "hyflash:num_slots=2,window=4,chunk=2", "eagle:num_slots=3"]


@pytest.fixture
def run(loaded: Target, toy_corpus: Path, tiny_target: Path, tmp_path: Path) -> Callable[..., Outcome]:
    """Train on the toy corpus into a folder of this test."""

    def call(
        folder: str = "out", *, should_stop: Any = None, listener: Any = None, **changes: Any
    ) -> Outcome:
        plan = toy_plan(changes.pop("corpus", toy_corpus), tiny_target, **changes)
        return train(
            plan,
            tmp_path / folder,
            should_stop=should_stop or (lambda: False),
            listener=listener or (lambda event: None),
        )

    return call


def _weights(outcome: Outcome) -> dict[str, torch.Tensor]:
    """All weights and moments of a training."""
    described = json.loads((outcome.folder / "state" / "state.json").read_text())
    files = sorted((outcome.folder / "state" / described["folder"]).iterdir())
    return {f"{path.stem}/{name}": value for path in files for name, value in load_file(path).items()}


def _same(first: Outcome, second: Outcome) -> bool:
    mine, theirs = _weights(first), _weights(second)
    return mine.keys() == theirs.keys() and all(torch.equal(mine[name], theirs[name]) for name in mine)


def _after(steps: int) -> Callable[[], bool]:
    asked = iter(range(1, 10_000))
    return lambda: next(asked) >= steps


@pytest.mark.parametrize("changes", [{}, {"precision": "bfloat16", "ema": 0.9}])
def test_going_on_gives_the_weights_of_never_having_stopped(run, changes) -> None:
    whole = run("whole", drafters=ROSTER, **changes)
    assert run("parts", drafters=ROSTER, should_stop=_after(2), **changes).ended == "stopped"
    assert run("parts", drafters=ROSTER, should_stop=_after(1), **changes).step == 3
    parts = run("parts", drafters=ROSTER, **changes)
    assert (whole.step, whole.ended) == (parts.step, parts.ended) == (6, "finished")
    assert _same(whole, parts)
    for name in ("model.safetensors", "config.json"):
        mine, theirs = (outcome.folder / "medusa" / name for outcome in (whole, parts))
        if name == "model.safetensors":
            assert mine.read_bytes() == theirs.read_bytes()


def test_a_finished_training_says_so(run) -> None:
    run("out")
    said: list[str] = []
    outcome = run("out", listener=lambda event: said.append(event.text) if isinstance(event, Said) else None)
    assert outcome.step == 6
    assert "All 6 steps are done; more --steps go on from there." in said


class _Killed(BaseException):
    """Nothing gets to clean up after it."""


@pytest.mark.parametrize("survived", range(4))
def test_a_kill_while_a_state_is_written_costs_the_steps_behind_the_last_whole_one(
    run, monkeypatch: pytest.MonkeyPatch, survived: int
) -> None:
    drafters = ROSTER[:2]  # a state is two files
    whole = run("whole", drafters=drafters)
    save, left = checkpoint.save_file, iter(range(survived))

    def killed(tensors: Any, path: Path) -> None:
        if next(left, None) is None:
            Path(path).write_bytes(b"half")
            raise _Killed
        save(tensors, path)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save_file", killed)
        with pytest.raises(_Killed):
            run("torn", drafters=drafters, save_every_s=1e-9)
    stored = whole.folder.parent / "torn" / "state" / "state.json"
    assert (json.loads(stored.read_text())["step"] if stored.exists() else 0) == survived // 2
    assert _same(whole, run("torn", drafters=drafters))


def test_all_drafters_are_fed_the_same(run, monkeypatch: pytest.MonkeyPatch) -> None:
    fed: dict[str, list[tuple[int, ...]]] = {}
    learn = Pupil.learn

    def spy(self: Pupil, lesson: Any, rate: float) -> None:
        fed.setdefault(self.entry.label, []).append((id(lesson), lesson.batch.num_anchors))
        learn(self, lesson, rate)

    monkeypatch.setattr(Pupil, "learn", spy)
    run(drafters=ROSTER)
    assert len(fed) == 3
    assert len({tuple(lessons) for lessons in fed.values()}) == 1


def test_the_drafters_beside_one_do_not_change_it(run) -> None:
    alone, together = run("alone"), run("together", drafters=ROSTER)
    mine, theirs = _weights(alone), _weights(together)
    assert all(torch.equal(value, theirs[name]) for name, value in mine.items())


def test_drafters_take_turns_in_being_first(run, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    learn = Pupil.learn

    def spy(self: Pupil, lesson: Any, rate: float) -> None:
        order.append(self.entry.label)
        learn(self, lesson, rate)

    monkeypatch.setattr(Pupil, "learn", spy)
    run(drafters=ROSTER)
    firsts = order[::3]
    assert sorted(firsts) == sorted(2 * ["medusa", "hyflash-l1", "eagle"])
    assert all(len({*order[start : start + 3]}) == 3 for start in range(0, len(order), 3))


def test_the_warm_start_is_counted_and_survives_a_resume(run) -> None:
    run(drafters=ROSTER, should_stop=_after(1))
    outcome = run(drafters=ROSTER)
    for label in ("medusa", "hyflash-l1", "eagle"):
        folder = outcome.folder / label
        warm = json.loads((folder / "config.json").read_text())["training"]["warm_start"]
        assert warm["passes"] > 4
        assert warm["tokens"] >= 12 * warm["passes"]
        assert warm["seconds"] >= 0
        card = (folder / "README.md").read_text()
        assert f"{warm['passes']} passes, {warm['tokens']:,} tokens" in card
    started = run("started", drafters=ROSTER, init_from=str(outcome.folder), steps=1)
    assert "| warm start | none |" in (started.folder / "medusa" / "README.md").read_text()


def test_the_text_is_learnt(run) -> None:
    rows: list[dict[str, Any]] = []

    def listen(event: Event) -> None:
        if isinstance(event, Evaluated):
            rows.extend(event.rows)

    run(
        drafters=["window:num_slots=2,window=16"],
        steps=60,
        evaluate_every=20,
        token_share=1.0,
        learning_rate=3e-3,
        listener=listen,
    )
    assert [row["step"] for row in rows] == [20, 40, 60]
    assert rows[-1]["loss"] < 0.8 * rows[0]["loss"]
    assert rows[-1]["acceptance_length"] > 2


def test_an_average_begins_with_the_fitted_weights(run) -> None:
    outcome = run(drafters=["hyflash:num_slots=2,window=4,chunk=2"], ema=0.99, steps=1, learning_rate=1e-9)
    weights = _weights(outcome)
    for name, value in weights.items():
        if "/average." in name:
            torch.testing.assert_close(value, weights[name.replace("average", "weight")], rtol=0, atol=1e-6)


def test_exports_can_be_loaded_and_tell_what_they_are(run, loaded: Target) -> None:
    outcome = run(drafters=ROSTER)
    for label in ("medusa", "hyflash-l1", "eagle"):
        folder = outcome.folder / label
        network = load_network(folder, loaded.load_context())
        weights = _weights(outcome)
        for name, value in network.named_parameters():
            trained = weights[f"{label}/weight.{name}"]
            stored = trained if network.is_delicate(name) else trained.to(torch.bfloat16).float()
            torch.testing.assert_close(value, stored, rtol=0, atol=0)
        assert (
            (folder / "curve.csv").read_text().startswith("step,loss,held_out_loss,acceptance_length,slot_1")
        )
        assert "learning_rate: 0.0003" in (folder / "recipe.yaml").read_text()
        card = (folder / "README.md").read_text()
        assert card.startswith("---\nlicense: apache-2.0")
        assert ("re-implementation from the abstract" in card) == (label == "hyflash-l1")
        assert "6 of 6 planned" in card
    foreign = load_file(outcome.folder / "hyflash-l1" / "foreign.safetensors")["state"]
    assert foreign.isfinite().all()
    assert foreign.any()
    assert not (outcome.folder / "eagle" / "foreign.safetensors").exists()


def test_an_average_is_exported_where_asked_for(run, loaded: Target) -> None:
    outcome = run(ema=0.5)
    network = load_network(outcome.folder / "medusa", loaded.load_context())
    weights = _weights(outcome)
    average = weights["medusa/average.bias"].to(torch.bfloat16).float()
    assert torch.equal(dict(network.named_parameters())["bias"], average)
    assert not torch.equal(average, weights["medusa/weight.bias"].to(torch.bfloat16).float())


def test_more_steps_extend_a_training(run) -> None:
    run(steps=3)
    assert run(steps=5).step == 5
    with pytest.raises(UsageError, match="at step 5 already"):
        run(steps=4)


def test_time_is_up_after_max_minutes(run) -> None:
    outcome = run(max_minutes=1e-6)
    assert (outcome.step, outcome.ended) == (1, "time")
    assert run().ended == "finished"


def test_another_plan_for_the_same_folder_is_refused_with_the_difference(run) -> None:
    run()
    with pytest.raises(UsageError, match=r"learning_rate was 0.0003, now 0.5"):
        run(learning_rate=0.5)


def test_a_training_starts_from_exported_drafters(run) -> None:
    first = run("first")
    second = run("second", init_from=str(first.folder), steps=1, learning_rate=1e-12)
    mine, theirs = _weights(first), _weights(second)
    expected = mine["medusa/weight.weight"].to(torch.bfloat16).float()
    torch.testing.assert_close(theirs["medusa/weight.weight"], expected, rtol=0, atol=1e-6)
    with pytest.raises(SpecError, match=r"weight is \[1, 3, 64, 64\] there, \[2, 3, 64, 64\] here"):
        run("third", init_from=str(first.folder), drafters=["medusa:num_slots=3,hidden_layers=2"])
    with pytest.raises(DrafterError, match="no trained drafter"):
        run("fourth", init_from=str(first.folder), drafters=["eagle"])


# -- what goes wrong -------------------------------------------------------------------------------


def test_a_foreign_folder_is_left_alone(run, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("")
    with pytest.raises(UsageError, match="holds no training"):
        run()


def test_two_trainings_cannot_share_a_folder(run) -> None:
    seen: list[BaseException] = []

    def listen(event: Event) -> None:
        if isinstance(event, Said) and not seen:
            with pytest.raises(RunLocked) as caught:
                run()
            seen.append(caught.value)

    run(listener=listen)
    assert "Another process is training" in str(seen[0])


def test_a_corpus_without_documents_is_refused(loaded: Target, tiny_target: Path, tmp_path: Path) -> None:
    folder = write_corpus(tmp_path / "empty", loaded, [])
    with pytest.raises(DataError, match="empty"):
        train(toy_plan(folder, tiny_target), tmp_path / "out")


def test_a_corpus_too_small_to_split_is_refused(loaded: Target, tiny_target: Path, tmp_path: Path) -> None:
    folder = write_corpus(tmp_path / "one", loaded, toy_documents(1))
    with pytest.raises(DataError, match="--held-out-share"):
        train(toy_plan(folder, tiny_target), tmp_path / "out")


def test_a_corpus_of_another_target_is_refused(run, tmp_path: Path) -> None:
    other = save_tiny_target(tmp_path / "other", seed=1)
    foreign = write_corpus(tmp_path / "foreign", toy_target(other), toy_documents(8))
    with pytest.raises(DataError, match="was made for target"):
        run(corpus=foreign)


def test_a_corpus_that_has_changed_is_refused(run, loaded: Target, tmp_path: Path) -> None:
    folder = write_corpus(tmp_path / "growing", loaded, toy_documents(20))
    run(corpus=folder, should_stop=_after(1))
    for path in folder.iterdir():
        path.unlink()
    write_corpus(folder, loaded, toy_documents(24))
    with pytest.raises(UsageError, match="another corpus"):
        run(corpus=folder)


def test_a_step_without_a_finite_loss_is_left_out(run, monkeypatch: pytest.MonkeyPatch) -> None:
    loss = pupil.teacher_loss
    calls = iter(range(100))

    def sometimes(*args: Any) -> torch.Tensor:
        return loss(*args) * (float("nan") if next(calls) == 2 else 1.0)

    monkeypatch.setattr(pupil, "teacher_loss", sometimes)
    outcome = run()
    described = json.loads((outcome.folder / "medusa" / "config.json").read_text())
    assert described["training"]["num_skipped"] == 1
    assert all(value.isfinite().all() for value in _weights(outcome).values())


def test_many_steps_without_a_finite_loss_end_it_with_the_state_kept(
    run, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = run(should_stop=_after(2))
    weights = _weights(before)
    loss = pupil.teacher_loss
    monkeypatch.setattr(pupil, "teacher_loss", lambda *args: loss(*args) * float("nan"))
    with pytest.raises(DrafterError, match="its loss was nan at 25 steps in a row"):
        run(steps=100)
    assert weights.keys() == _weights(before).keys()
    assert all(torch.equal(value, weights[name]) for name, value in _weights(before).items())


def _full_disk(monkeypatch: pytest.MonkeyPatch, *, times: int) -> None:
    save = checkpoint.save_file
    left = iter(range(times))

    def full(tensors: Any, path: Path) -> None:
        if next(left, None) is not None:
            Path(path).write_bytes(b"half")
            raise OSError(errno.ENOSPC, "No space left on device")
        save(tensors, path)

    monkeypatch.setattr(checkpoint, "save_file", full)


def test_a_full_disk_in_between_is_said_and_training_goes_on(run, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run("whole")
    said: list[str] = []
    _full_disk(monkeypatch, times=2)
    outcome = run(
        save_every_s=1e-9, listener=lambda event: said.append(event.text) if isinstance(event, Said) else None
    )
    assert sum("could not be saved (none was saved yet)" in text for text in said) == 2
    assert any("Disk full" in text for text in said)
    assert _same(whole, outcome)


def test_a_full_disk_at_the_end_keeps_the_state_before(run, monkeypatch: pytest.MonkeyPatch) -> None:
    before = run(should_stop=_after(2))
    weights = _weights(before)
    _full_disk(monkeypatch, times=1)
    with pytest.raises(HyFlashError, match="Disk full"):
        run(should_stop=_after(1))
    assert all(torch.equal(value, weights[name]) for name, value in _weights(before).items())
    assert [path.name for path in (before.folder / "state").glob("step-*")] == ["step-2"]
    assert run().step == 6


def test_a_damaged_state_is_said(run) -> None:
    outcome = run(should_stop=_after(2))
    (outcome.folder / "state" / "step-2" / "medusa.safetensors").write_bytes(b"x")
    with pytest.raises(DataError, match="cannot be read"):
        run()
    (outcome.folder / "state" / "state.json").write_text("{")
    with pytest.raises(DataError, match="cannot be read"):
        run()
