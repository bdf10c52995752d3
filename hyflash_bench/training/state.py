"""The state of a training on disk: old or new, never half of one.

``state/state.json`` names a folder beside it with one safetensors file a drafter. A new state is
written into a folder of its own; only when it is whole does the JSON file point to it, and only
then does the old one go.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file

from hyflash_bench.atomic import write_text
from hyflash_bench.drafters.networks.checkpoint import write_tensors
from hyflash_bench.errors import DataError
from hyflash_bench.training.pupil import Pupil

__all__ = ["Progress", "StateFolder"]

VERSION = 1


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a training is.

    Attributes:
        step: Gradient steps taken.
        tokens_seen: Rows of all segments so far.
        seconds: Spent training, evaluation and saving included.
    """

    step: int = 0
    tokens_seen: int = 0
    seconds: float = 0.0


class StateFolder:
    """Saves and restores a training.

    Args:
        folder: Made when first saved to.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pointer = folder / "state.json"

    def save(self, progress: Progress, pupils: Sequence[Pupil], facts: Mapping[str, Any]) -> None:
        """Store a state; the one before it stays until this one is whole.

        Args:
            progress: How far the training is.
            pupils: Its drafters.
            facts: What :meth:`read` gives back under the same names, to compare with.

        Raises:
            DataError: The disk is full; the state before it is untouched.
        """
        name = f"step-{progress.step}"
        try:
            for pupil in pupils:
                write_tensors(pupil.tensors(), self._folder / name / f"{pupil.entry.label}.safetensors")
            described = {
                "version": VERSION,
                "folder": name,
                "step": progress.step,
                "tokens_seen": progress.tokens_seen,
                "seconds": progress.seconds,
                "facts": dict(facts),
                "drafters": {pupil.entry.label: pupil.numbers() for pupil in pupils},
            }
            write_text(self._pointer, json.dumps(described, indent=1, allow_nan=False) + "\n")
        except BaseException:
            if self._current() != name:
                shutil.rmtree(self._folder / name, ignore_errors=True)
            raise
        for other in self._folder.glob("step-*"):
            if other.name != name:
                shutil.rmtree(other, ignore_errors=True)

    def read(self) -> dict[str, Any] | None:
        """What ``state.json`` says; None when nothing was saved yet.

        Raises:
            DataError: It is damaged or of another version.
        """
        try:
            described = json.loads(self._pointer.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise DataError(f"{self._pointer} cannot be read: {error}. {_REMEDY}") from None
        if not isinstance(described, dict) or described.get("version") != VERSION:
            raise DataError(f"{self._pointer} is not a state that this version wrote. {_REMEDY}")
        return described

    def restore(self, pupils: Sequence[Pupil]) -> Progress:
        """Put the stored state into drafters; what has none yet stays as it is.

        Raises:
            DataError: A file is missing or damaged.
            DrafterError: A file does not fit its drafter.
        """
        described = self.read()
        if described is None:
            return Progress()
        for pupil in pupils:
            label = pupil.entry.label
            path = self._folder / described["folder"] / f"{label}.safetensors"
            try:
                tensors = load_file(path)
                pupil.load_numbers(described["drafters"][label])
            except (OSError, SafetensorError, KeyError) as error:
                raise DataError(f"{path} cannot be read: {error}. {_REMEDY}") from None
            pupil.load_tensors(tensors, str(path))
        return Progress(described["step"], described["tokens_seen"], described["seconds"])

    def _current(self) -> str | None:
        with suppress(DataError):
            described = self.read()
            return None if described is None else str(described["folder"])
        return None


_REMEDY = "Restore it, remove the state folder to start over, or choose another --output-path."
