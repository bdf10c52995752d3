"""Imported results as a run folder, through the one writer, so that everything else reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import hyflash_bench
from hyflash_bench.errors import UsageError
from hyflash_bench.results.importers.base import Imported, Told
from hyflash_bench.results.layout import Layout
from hyflash_bench.results.load import read_manifest
from hyflash_bench.results.records import CellRecord, ConversationRecord, Manifest
from hyflash_bench.results.writer import RunWriter
from hyflash_bench.spec.plan import content_id
from hyflash_bench.suites.download import sha256_of

__all__ = ["NOT_STATED", "Labels", "write_imported"]

NOT_STATED = "not stated"


@dataclass(frozen=True, slots=True)
class Labels:
    """What the user says of a file that it does not say itself; None to go by the file.

    Attributes:
        drafter: Label in tables.
        target: Name of the model.
        suite: Name of the suite, the same for files that are to be compared.
        temperature: 0 for greedy.
        is_plain: Whether this is plain decoding, which others are compared to.
    """

    drafter: str | None = None
    target: str | None = None
    suite: str | None = None
    temperature: float | None = None
    is_plain: bool = False


def write_imported(
    folder: Path,
    files: Sequence[tuple[Path, Imported, Labels]],
    *,
    command: Sequence[str] = (),
    fresh: bool = False,
) -> None:
    """Write files into one run; a run of imported results can be added to.

    Raises:
        UsageError: The folder holds a run that was measured here, or two files have one label.
    """
    _refuse_measured(folder, fresh)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    parts = [_cells(path, imported, labels) for path, imported, labels in files]
    _refuse_repeats([cell for cells in parts for cell in cells.values()])
    entries = [_entry(path, imported, cells) for (path, imported, _), cells in zip(files, parts, strict=True)]
    with RunWriter(folder, fresh=fresh) as writer:
        cells = [cell for part in parts for cell in part.values()]
        writer.write_manifest(_manifest(folder, cells, entries, command, now))
        for (_, imported, _), part in zip(files, parts, strict=True):
            for told in imported.conversations:
                writer.append_conversation(_conversation(told, part[told.repeat], now))
        writer.write_tables()


def _refuse_measured(folder: Path, fresh: bool) -> None:
    layout = Layout(folder)
    if layout.is_run and not fresh and not read_manifest(layout).imported:
        raise UsageError(
            f"{folder} holds results that were measured here; imported ones stay apart from them. "
            "Give another folder with -o, and put both side by side with: hyflash-bench compare."
        )


def _refuse_repeats(cells: Sequence[CellRecord]) -> None:
    ids = [cell.cell_id for cell in cells]
    twice = next((cell for cell in cells if ids.count(cell.cell_id) > 1), None)
    if twice is not None:
        raise UsageError(
            f"Two files give results of drafter {twice.drafter!r} on the same work. "
            "Tell them apart with --drafter, once for each file."
        )


def _cells(path: Path, imported: Imported, labels: Labels) -> dict[int, CellRecord]:
    """A cell for each repeat in the file."""
    drafter = labels.drafter or imported.drafter or path.name.partition(".")[0]
    target = labels.target or imported.target or NOT_STATED
    suite = labels.suite or NOT_STATED.replace(" ", "-")
    temperature = imported.temperature if labels.temperature is None else labels.temperature
    sampling = NOT_STATED if temperature is None else "greedy" if temperature == 0 else f"T={temperature:g}"
    repeats = sorted({told.repeat for told in imported.conversations})
    found = {}
    for repeat in repeats:
        identity = ["imported", imported.format, drafter, target, suite, sampling, repeat]
        name = "".join(c if c.isalnum() else "-" for c in drafter)[:40]
        found[repeat] = CellRecord(
            cell_id=f"{name}.{suite}.imported.{content_id(identity, 10)}",
            target=target,
            target_id=f"imported-{content_id(target)}",
            drafter=drafter,
            drafter_name=drafter,
            drafter_options={},
            is_reference=labels.is_plain or imported.is_plain,
            suite=suite,
            suite_hash=f"imported-{content_id(suite)}",
            task="imported",
            memory_cap_bytes=None,
            cap_kind=None,
            temperature=temperature,
            top_k=None,
            top_p=None,
            sampling=sampling,
            seed=None,
            repeat=repeat,
            max_new_tokens=None,
            draft_budget=imported.draft_budget,
            num_conversations=sum(told.repeat == repeat for told in imported.conversations),
        )
    return found


def _entry(path: Path, imported: Imported, cells: dict[int, CellRecord]) -> dict[str, Any]:
    return {
        "file": path.name,
        "sha256": sha256_of(path),
        "format": imported.format,
        "drafter": next(iter(cells.values())).drafter,
        "cells": [cell.cell_id for cell in cells.values()],
        "notes": imported.notes,
        "reported": imported.reported,
    }


def _manifest(
    folder: Path, cells: list[CellRecord], entries: list[dict[str, Any]], command: Sequence[str], now: str
) -> Manifest:
    suites = {cell.suite: cell.suite_hash for cell in cells}
    return Manifest(
        run_id=folder.resolve().name,
        created_at=now,
        finished_at=now,
        package_version=hyflash_bench.__version__,
        command=list(command),
        request={},
        resolved={},
        suites=[
            {
                "name": name,
                "version": None,
                "title": "Imported",
                "description": "Results of another program; its texts are not known here.",
                "licence": NOT_STATED,
                "suite_hash": suite_hash,
            }
            for name, suite_hash in suites.items()
        ],
        imported=entries,
        cells=cells,
    )


def _conversation(told: Told, cell: CellRecord, now: str) -> ConversationRecord:
    category = told.category
    return ConversationRecord(
        cell_id=cell.cell_id,
        item_id=f"{cell.suite}/imported/{told.item}",
        trace_id=None,
        status=told.status,
        message=told.message,
        reported=told.turns,
        kind=category,
        category=category,
        recorded_at=now,
    )
