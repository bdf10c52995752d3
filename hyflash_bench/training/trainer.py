"""Trains several drafters on one stream, so that their budgets are equal by construction."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from filelock import FileLock, Timeout

from hyflash_bench.atomic import write_error, write_text
from hyflash_bench.errors import DataError, RunLocked, UsageError
from hyflash_bench.spec.yaml import dump_yaml, read_yaml
from hyflash_bench.training.events import Evaluated, Event, Examined, Listener, Said, Stepped
from hyflash_bench.training.export import export
from hyflash_bench.training.features import said_now_and_then
from hyflash_bench.training.plan import MAY_CHANGE, TrainingPlan
from hyflash_bench.training.roster import STATE_FOLDER
from hyflash_bench.training.schedule import learning_rate
from hyflash_bench.training.session import Session, open_corpus, open_target
from hyflash_bench.training.state import Progress, StateFolder
from hyflash_bench.training.team import Team

__all__ = ["Outcome", "train"]

PLAN_FILE = "plan.yaml"
_TELL_EVERY_S = 10.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a training ended.

    Attributes:
        folder: Holds a folder for each drafter.
        step: Steps done in all.
        ended: ``finished`` all steps, ``time`` as ``max_minutes`` said, ``stopped`` from outside.
    """

    folder: Path
    step: int
    ended: Literal["finished", "time", "stopped"]


def train(
    plan: TrainingPlan,
    folder: Path,
    *,
    listener: Listener = lambda event: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Train the drafters of a plan, going on where a former call for the same folder stopped.

    Started in several processes (``accelerate launch``), it takes each step in all of them together;
    they must see the same folders. Only the main one writes and tells.

    Args:
        plan: What to train, on what and for how long.
        folder: Gets a folder per drafter, the plan and the state. Made if missing.
        listener: Told what goes on.
        should_stop: Asked after every step; True saves, exports and ends.

    Raises:
        UsageError: The folder holds another training, or other things.
        RunLocked: Another process trains into it.
        DataError: Corpus or state cannot be used, or the disk is full at the end.
        DrafterError: Loss or gradients of a drafter stayed without a finite value.
    """
    team = Team.gathered(plan.backend)
    tell = listener if team.is_main else _ignore
    with _locked(folder) if team.is_main else nullcontext():
        if team.is_main:
            _compare_with_stored(plan, folder)
        team.wait()
        tell(Said(f"Loading target {plan.target} ..."))
        target = open_target(plan.model_copy(update={"backend": team.backend}))
        is_new = StateFolder(folder / STATE_FOLDER).read() is None
        session = Session.open(
            plan,
            target,
            open_corpus(plan, target),
            is_new=is_new,
            team=team,
            on_document=said_now_and_then(lambda line: tell(Said(line))),
        )
        return _Trainer(session, folder, tell, should_stop).run()


def _ignore(event: Event) -> None:
    """Another process tells it."""


class _Trainer:
    def __init__(
        self, session: Session, folder: Path, listener: Listener, should_stop: Callable[[], bool]
    ) -> None:
        self._session, self._plan, self._folder = session, session.plan, folder
        self._team = session.team
        self._tell, self._should_stop = listener, should_stop
        self._states = StateFolder(folder / STATE_FOLDER)
        self._began = time.monotonic()
        self._start = Progress()
        self._step, self._tokens = 0, 0
        self._saved_step: int | None = None

    def run(self) -> Outcome:
        """The loop."""
        self._resume()
        if self._team.is_main:
            write_text(self._folder / PLAN_FILE, dump_yaml(self._plan.to_mapping()))
        for text in self._session.describe():
            self._tell(Said(text))
        ended: Literal["finished", "time", "stopped"] = "finished"
        last_saved = last_told = time.monotonic()
        while self._step < self._plan.steps:
            self._take_step()
            now = time.monotonic()
            if self._step % self._plan.evaluate_every == 0 and self._step < self._plan.steps:
                self._evaluate()
            if now - last_told >= _TELL_EVERY_S:
                last_told = now
                self._tell_step()
            if self._team.is_main and now - last_saved >= self._plan.save_every_s:
                self._save_if_possible()
                last_saved = time.monotonic()
            if self._team.agreed(self._should_stop()):
                ended = "stopped"
                break
            if self._team.agreed(self._is_time_up):
                ended = "time"
                break
        if ended != "stopped" and not self._is_evaluated:
            self._evaluate()
        if self._team.is_main:
            if self._saved_step != self._step:
                self._save()
            if ended != "stopped":
                self._examine()
            self._export()
        self._team.wait()
        return Outcome(self._folder, self._step, ended)

    def _resume(self) -> None:
        stored = self._states.read()
        if stored is None:
            return
        for key, mine in self._session.facts.items():
            if stored["facts"].get(key) != mine:
                raise UsageError(
                    f"{self._folder} was trained with another {key} ({stored['facts'].get(key)}) than "
                    f"the one given ({mine}). Give that one, or choose another --output-path; --init-from "
                    "starts there from the drafters trained here."
                )
        if stored["step"] > self._plan.steps:
            raise UsageError(
                f"{self._folder} is at step {stored['step']} already, past the {self._plan.steps} asked for. "
                "Raise --steps, or choose another --output-path."
            )
        self._start = self._states.restore(self._session.pupils)
        self._step, self._tokens = self._start.step, self._start.tokens_seen
        self._saved_step = self._step
        if self._step == self._plan.steps:
            told = f"All {self._step} steps are done; more --steps go on from there."
        else:
            told = f"Going on after step {self._step}."
        self._tell(Said(told))

    def _take_step(self) -> None:
        session = self._session
        whole, anchors = session.stream(self._step)
        part = whole
        if self._team.size > 1:
            part, anchors = whole.around(self._team.share(anchors))
        lesson = session.feeder.lesson(session.stream.documents, part, anchors)
        rate = learning_rate(self._plan, self._step)
        # The first one finds the lesson in no cache, so they take turns in being it.
        first = self._step % len(session.pupils)
        for pupil in (*session.pupils[first:], *session.pupils[:first]):
            pupil.learn(lesson, rate)
        self._step += 1
        self._tokens += whole.num_tokens

    @property
    def _is_time_up(self) -> bool:
        return self._plan.max_minutes is not None and self._elapsed_s >= 60 * self._plan.max_minutes

    @property
    def _elapsed_s(self) -> float:
        return time.monotonic() - self._began

    @property
    def _is_evaluated(self) -> bool:
        curve = self._session.pupils[0].curve
        return bool(curve) and curve[-1]["step"] == self._step

    def _evaluate(self) -> None:
        pupils = self._session.pupils
        scores = self._session.exam.take(pupils)
        rows = []
        for pupil, score in zip(pupils, scores, strict=True):
            row = {
                "step": self._step,
                "loss": pupil.loss,
                **score.columns(),
                "tokens_seen": self._tokens,
                "seconds": round(pupil.seconds, 1),
                "num_skipped": pupil.num_skipped,
            }
            pupil.curve.append(row)
            rows.append({"drafter": pupil.entry.label, **row})
        self._tell(Evaluated(self._step, tuple(rows)))

    def _examine(self) -> None:
        """By context: once, at the end of a training that was not stopped, since it takes a while."""
        pupils = self._session.pupils
        if any(row["step"] == self._step for row in pupils[0].contexts):
            return
        rows = []
        for pupil, scores in zip(pupils, self._session.contexts.take(pupils), strict=True):
            pupil.contexts = [{"step": self._step, **score.columns()} for score in scores]
            rows += [{"drafter": pupil.entry.label, **row} for row in pupil.contexts]
        if rows:
            self._save()
            self._tell(Examined(self._step, tuple(rows)))

    def _tell_step(self) -> None:
        done = self._step - self._start.step
        elapsed = self._elapsed_s
        losses = {pupil.entry.label: pupil.loss for pupil in self._session.pupils}
        rate = (self._tokens - self._start.tokens_seen) / elapsed
        left = (self._plan.steps - self._step) * elapsed / done
        if self._plan.max_minutes is not None:
            left = min(left, max(0.0, 60 * self._plan.max_minutes - elapsed))
        self._tell(Stepped(self._step, self._plan.steps, losses, rate, left))

    def _save_if_possible(self) -> None:
        try:
            self._save()
        except DataError as error:
            kept = (
                "none was saved yet"
                if self._saved_step is None
                else f"that of step {self._saved_step} is kept"
            )
            self._tell(Said(f"The state of step {self._step} could not be saved ({kept}); going on. {error}"))

    def _save(self) -> None:
        progress = Progress(self._step, self._tokens, self._start.seconds + self._elapsed_s)
        self._states.save(progress, self._session.pupils, self._session.facts)
        self._saved_step = self._step

    def _export(self) -> None:
        for pupil in self._session.pupils:
            export(pupil, self._session, self._folder / pupil.entry.label, self._step, self._tokens)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    lock = FileLock(folder / ".lock", timeout=0)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout:
        raise RunLocked(
            f"Another process is training into {folder}. Wait until it ends, or choose another --output-path."
        ) from None
    except OSError as error:
        raise write_error(folder, error) from error
    try:
        yield
    finally:
        lock.release()


def _compare_with_stored(plan: TrainingPlan, folder: Path) -> None:
    """Refuse to go on with another plan than the one that a folder was begun with."""
    path = folder / PLAN_FILE
    if not path.exists():
        if any(entry.name != ".lock" for entry in folder.iterdir()):
            raise UsageError(
                f"{folder} is not empty and holds no training. Give an --output-path that is new, empty or "
                "a former training."
            )
        return
    stored = TrainingPlan.parse(read_yaml(path), str(path))
    differences = stored.differences(plan)
    if differences:
        told = "; ".join(f"{key} was {old}, now {new}" for key, (old, new) in differences.items())
        raise UsageError(
            f"{folder} holds a training with another plan: {told}. Only {', '.join(sorted(MAY_CHANGE))} "
            "may change. Give the same plan, or choose another --output-path."
        )
