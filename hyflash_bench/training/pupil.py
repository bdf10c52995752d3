"""One drafter in training: its network, its optimiser, and what became of it so far."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from hyflash_bench.drafters.networks.network import DraftNetwork
from hyflash_bench.errors import DrafterError
from hyflash_bench.training.batches import Lesson
from hyflash_bench.training.losses import slot_weights, teacher_loss
from hyflash_bench.training.plan import TrainingPlan
from hyflash_bench.training.roster import Entry
from hyflash_bench.training.start import Origin
from hyflash_bench.training.team import ALONE, Team

__all__ = ["Pupil"]

_MOST_SKIPS = 25
"""Updates left out in a row before a training is given up."""
_BETAS = (0.9, 0.95)
_SMOOTHING = 0.95
_OFFSETS = ("bias", "codes")
"""Names of what is added to rows: decay would pull it off what it was fitted to."""


class Pupil:
    """A drafter that takes one gradient step per lesson.

    Weights and moments are float32; passes run in bfloat16 where ``autocast`` says so.

    Attributes:
        entry: What it is.
        network: Being trained.
        curve: One row per evaluation.
        contexts: One row per span of contexts, of the last time it was examined by them.
        loss: Smoothed training loss; None before the first step.
        seconds: Spent in this drafter's own passes and updates.
        num_skipped: Updates left out since loss or gradient was not finite.
        warm_start: What fitting in closed form took before the first step: passes, tokens, seconds.
        plan: Rates and weights.
        origin: What came from a checkpoint, where it was started from one.

    Args:
        entry: What it is.
        network: Initialised, with the target's embedding and head attached.
        plan: Rates and weights.
        autocast: Precision of passes; None for float32.
        team: Processes that take each step together.
        origin: See above.
    """

    def __init__(
        self,
        entry: Entry,
        network: DraftNetwork,
        plan: TrainingPlan,
        autocast: torch.dtype | None,
        team: Team = ALONE,
        origin: Origin | None = None,
    ) -> None:
        self.entry, self.network, self.origin = entry, network, origin
        self.curve: list[dict[str, Any]] = []
        self.contexts: list[dict[str, Any]] = []
        self.loss: float | None = None
        self.seconds = 0.0
        self.num_skipped = 0
        self.warm_start: dict[str, Any] = {}
        self._skips_in_a_row = 0
        self.plan, self._autocast, self._team = plan, autocast, team
        self._parameters = dict(network.named_parameters())
        self._optimiser = _optimiser(self._parameters, plan)
        self._average: dict[str, Tensor] = {}
        self.begin_average()

    def begin_average(self) -> None:
        """Let the average of weights, if the plan wants one, begin with what they are now."""
        if self.plan.ema is not None:
            self._average = {name: value.detach().clone() for name, value in self._parameters.items()}

    @contextmanager
    def keeping_taken(self) -> Iterator[frozenset[str]]:
        """Undo what is done to weights that came from a checkpoint; gives their names."""
        taken = {
            name: value.detach().clone()
            for name, value in self._parameters.items()
            if self.origin is not None and self.origin.holds(name)
        }
        yield frozenset(taken)
        self._put(taken)

    def learn(self, lesson: Lesson, learning_rate: float) -> None:
        """Take one step; one whose loss or gradient is not finite is left out.

        Args:
            lesson: Or this process's part of it.
            learning_rate: Of this step.

        Raises:
            DrafterError: Too many in a row were left out.
        """
        began = time.perf_counter()
        loss = self._loss(lesson)
        value = float(self._team.total(loss.detach()))
        self._optimiser.zero_grad(set_to_none=True)
        if math.isfinite(value):
            if loss.requires_grad:  # there may be fewer anchors than processes
                torch.autograd.backward(loss)
            self._team.add_gradients(list(self._parameters.values()))
            norm = float(nn.utils.clip_grad_norm_(self._parameters.values(), self.plan.clip))
            if math.isfinite(norm):
                self._update(value, learning_rate)
            else:
                self._skip("its gradient", norm)
        else:
            self._skip("its loss", value)
        self.seconds += time.perf_counter() - began

    def _loss(self, lesson: Lesson) -> Tensor:
        teacher = lesson.teacher.first(self.network.config.num_slots)
        kind = teacher.targets.device.type
        with torch.autocast(kind, dtype=self._autocast, enabled=self._autocast is not None):
            logits = self.network(lesson.batch)
        weights = slot_weights(teacher.is_scored, self.plan.slot_decay, self._team.total)
        return teacher_loss(logits, teacher, weights)

    def _update(self, loss: float, learning_rate: float) -> None:
        for group in self._optimiser.param_groups:
            group["lr"] = learning_rate
        self._optimiser.step()
        self._skips_in_a_row = 0
        self.loss = loss if self.loss is None else _SMOOTHING * self.loss + (1 - _SMOOTHING) * loss
        if self.plan.ema is not None:
            averages = list(self._average.values())
            current = [self._parameters[name].detach() for name in self._average]
            torch._foreach_lerp_(averages, current, 1 - self.plan.ema)

    def _skip(self, what: str, value: float) -> None:
        self.num_skipped += 1
        self._skips_in_a_row += 1
        if self._skips_in_a_row >= _MOST_SKIPS:
            raise DrafterError(
                f"Training of {self.entry.label} was stopped: {what} was {value} at {_MOST_SKIPS} steps in a "
                "row. The last state saved is kept. Lower --learning-rate, or say --precision float32, "
                "with another --output-path."
            )

    @contextmanager
    def at_its_best(self) -> Iterator[DraftNetwork]:
        """The network for evaluation and export: with averaged weights, if the plan says so."""
        kept = {name: self._parameters[name].detach().clone() for name in self._average}
        try:
            self._put(self._average)
            self.network.eval()
            yield self.network
        finally:
            self._put(kept)
            self.network.train()

    @torch.no_grad()
    def _put(self, values: Mapping[str, Tensor]) -> None:
        for name, value in values.items():
            self._parameters[name].copy_(value)

    def tensors(self) -> dict[str, Tensor]:
        """Everything a resumed training needs besides :meth:`numbers`, float32 on the CPU."""
        held = {f"weight.{name}": value.detach() for name, value in self._parameters.items()}
        held |= {f"average.{name}": value for name, value in self._average.items()}
        for name, parameter in self._parameters.items():
            for key, value in self._optimiser.state.get(parameter, {}).items():
                held[f"{key}.{name}"] = value
        return {name: value.to("cpu", torch.float32).contiguous() for name, value in held.items()}

    def load_tensors(self, tensors: Mapping[str, Tensor], where: str) -> None:
        """Take over what :meth:`tensors` gave.

        Raises:
            DrafterError: A tensor is missing or has another shape.
        """
        try:
            self._put({name: tensors[f"weight.{name}"] for name in self._parameters})
            for name, value in self._average.items():
                value.copy_(tensors[f"average.{name}"])
            for name, parameter in self._parameters.items():
                if f"step.{name}" in tensors:
                    self._optimiser.state[parameter] = {
                        "step": tensors[f"step.{name}"].to(parameter.device).clone(),
                        "exp_avg": tensors[f"exp_avg.{name}"].to(parameter.device).clone(),
                        "exp_avg_sq": tensors[f"exp_avg_sq.{name}"].to(parameter.device).clone(),
                    }
        except (KeyError, RuntimeError) as error:
            raise DrafterError(
                f"{where} is not a state of {self.entry.label}: {error}. "
                "Remove the state folder to start over, or choose another --output-path."
            ) from None

    def numbers(self) -> dict[str, Any]:
        """Plain numbers that a resumed training needs."""
        return {
            "loss": self.loss,
            "seconds": self.seconds,
            "num_skipped": self.num_skipped,
            "skips_in_a_row": self._skips_in_a_row,
            "warm_start": self.warm_start,
            "origin": None if self.origin is None else self.origin.to_mapping(),
            "curve": self.curve,
            "contexts": self.contexts,
        }

    def load_numbers(self, values: Mapping[str, Any]) -> None:
        """Take over what :meth:`numbers` gave."""
        self.loss, self.seconds = values["loss"], values["seconds"]
        self.num_skipped, self._skips_in_a_row = values["num_skipped"], values["skips_in_a_row"]
        self.warm_start = dict(values.get("warm_start", {}))  # not counted by older versions
        if origin := values.get("origin"):
            self.origin = Origin(**origin)
        self.curve = list(values["curve"])
        self.contexts = list(values.get("contexts", []))


def _optimiser(parameters: Mapping[str, nn.Parameter], plan: TrainingPlan) -> torch.optim.AdamW:
    is_matrix = {name: value.ndim >= 2 and not name.endswith(_OFFSETS) for name, value in parameters.items()}
    matrices = [value for name, value in parameters.items() if is_matrix[name]]
    others = [value for name, value in parameters.items() if not is_matrix[name]]
    groups: list[dict[str, Any]] = [{"params": matrices}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(
        [group for group in groups if group["params"]],
        lr=plan.learning_rate,
        betas=_BETAS,
        weight_decay=plan.weight_decay,
        fused=True,
    )
