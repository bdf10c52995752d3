"""What a training tells its listener while it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Evaluated", "Event", "Examined", "Listener", "Said", "Stepped"]


@dataclass(frozen=True, slots=True)
class Said:
    """A line for people."""

    text: str


@dataclass(frozen=True, slots=True)
class Stepped:
    """A step is done.

    Attributes:
        step: Steps done.
        steps: Steps wanted.
        losses: Smoothed training loss by drafter.
        tok_per_s: Tokens of the stream per second, all drafters together being trained on each.
        eta_s: Seconds left; None before there is anything to go by.
    """

    step: int
    steps: int
    losses: Mapping[str, float | None]
    tok_per_s: float
    eta_s: float | None


@dataclass(frozen=True, slots=True)
class Evaluated:
    """All drafters sat the exam.

    Attributes:
        step: Steps done.
        rows: The new row of each drafter's curve, with its label under ``drafter``.
    """

    step: int
    rows: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Examined:
    """All drafters were examined by context, at the end.

    Attributes:
        step: Steps done.
        rows: A row for each drafter and span of contexts: see
            :meth:`hyflash_bench.training.contexts.ContextScore.columns`.
    """

    step: int
    rows: tuple[dict[str, Any], ...]


Event = Said | Stepped | Evaluated | Examined
Listener = Callable[[Event], None]
