"""What a training leaves of each drafter: checkpoint, curve, recipe and card in one folder."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hyflash_bench.atomic import write_text
from hyflash_bench.drafters.networks.checkpoint import save_network
from hyflash_bench.spec.yaml import dump_yaml
from hyflash_bench.training.card import card
from hyflash_bench.training.foreign import write_foreign_state
from hyflash_bench.training.pupil import Pupil
from hyflash_bench.training.session import Session

__all__ = ["export"]


def export(pupil: Pupil, session: Session, folder: Path, step: int, tokens_seen: int) -> None:
    """Write a drafter's folder; files that were there before are replaced one by one.

    Args:
        pupil: What to export.
        session: That it was trained in.
        folder: Made if missing.
        step: Steps done.
        tokens_seen: Rows of all segments.

    Raises:
        DataError: The disk is full or the folder cannot be written.
    """
    training = _budget(pupil, session, step, tokens_seen)
    with pupil.at_its_best() as network:
        save_network(network, folder, training)
        write_foreign_state(network, session, folder)
    write_text(folder / "curve.csv", _csv(pupil.curve))
    if pupil.contexts:
        write_text(folder / "contexts.csv", _csv(pupil.contexts))
    write_text(folder / "recipe.yaml", dump_yaml(_recipe(session)))
    write_text(folder / "README.md", card(pupil.entry, session, training, pupil.curve, pupil.contexts))


def _budget(pupil: Pupil, session: Session, step: int, tokens_seen: int) -> dict[str, Any]:
    plan = session.plan
    return {
        "drafter": pupil.entry.drafter,
        "name": pupil.entry.label,
        "steps": step,
        "planned_steps": plan.steps,
        "tokens_seen": tokens_seen,
        "anchors_per_step": plan.num_anchors,
        "seconds": round(pupil.seconds, 1),
        "warm_start": pupil.warm_start,
        "origin": None if pupil.origin is None else pupil.origin.to_mapping(),
        "num_skipped": pupil.num_skipped,
        "seed": plan.seed,
        "corpus": session.corpus.hash,
        "num_parameters": pupil.entry.parameters,
        "acceptance_length": pupil.curve[-1]["acceptance_length"] if pupil.curve else None,
    }


def _recipe(session: Session) -> dict[str, Any]:
    """The plan as resolved; where the corpus lay does not matter, what it holds does."""
    plan = session.plan.to_mapping()
    plan["corpus"] = session.corpus.hash
    plan["feature_dtype"] = session.target.info.dtype
    plan["precision"] = "bfloat16" if session.uses_bfloat16 else "float32"
    return plan


def _csv(rows: Sequence[Mapping[str, Any]]) -> str:
    text = io.StringIO()
    columns = list(dict.fromkeys(key for row in rows for key in row)) or ["step"]
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({key: _plain(value) for key, value in row.items()})
    return text.getvalue()


def _plain(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else value
