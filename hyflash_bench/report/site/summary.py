"""What a site keeps of a run to make its index: a small JSON file beside the run's page."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import hyflash_bench
from hyflash_bench.analysis.groups import WORK
from hyflash_bench.errors import DataError, SpecError
from hyflash_bench.report.answer import answer_of
from hyflash_bench.report.names import safe_name
from hyflash_bench.report.site.layout import SITE_VERSION, SiteLayout
from hyflash_bench.report.site.public import machine_of, public_frame, public_text
from hyflash_bench.results.export import content_hash, rows_of
from hyflash_bench.results.lines import decode
from hyflash_bench.runner.environment import BUSY_SHARE
from hyflash_bench.spec.base import Spec

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

    from hyflash_bench.results.reader import Run

__all__ = ["ROW", "Summary", "current", "key_of", "read_summaries", "read_summary", "summarise"]

ROW: Final = (
    *("drafter", "drafter_name", "is_reference", "suite_hash", *WORK),
    *("context_length", "status", "num_conversations", "num_planned"),
    *("acceptance_length", "acceptance_length_low", "acceptance_length_high"),
    *("decode_tok_per_s", "decode_tok_per_s_low", "decode_tok_per_s_high"),
    *("speedup", "speedup_low", "speedup_high", "verdict", "ttft_s", "drafter_bytes", "drafter_peak_bytes"),
)
"""Columns kept of a run's tables; a row without ``context_length`` is about all of a suite."""


class Summary(Spec):
    """``summary.json``: written last, so that a run with one is complete."""

    version: int = SITE_VERSION
    made_by: str
    """Version of the package that made the run's files here."""
    include_host: bool
    content_hash: str
    run_id: str
    created_at: str
    finished_at: str | None
    measured_by: str
    target: str
    target_id: str
    machine: str
    is_busy: bool
    suites: list[dict[str, Any]]
    num_done: int
    num_planned: int
    answer: list[str]
    rows: list[dict[str, Any]]

    @property
    def key(self) -> str:
        """Name of the run's folder."""
        return f"{safe_name(self.run_id)}-{self.content_hash[:10]}"

    @property
    def date(self) -> str:
        """Day on which the run began."""
        return self.created_at[:10]

    def to_json(self) -> str:
        """The file's text."""
        values = self.model_dump(mode="json")
        rows = ",\n".join(json.dumps(row, ensure_ascii=False, allow_nan=False) for row in values.pop("rows"))
        head = json.dumps(values, indent=1, ensure_ascii=False, allow_nan=False).removesuffix("\n}")
        return f'{head},\n "rows": [\n{rows}\n]\n}}\n'


def summarise(run: Run, analysed: Mapping[str, pd.DataFrame], *, include_host: bool) -> Summary:
    """Take from a run what the index shows.

    Args:
        run: The run.
        analysed: Its tables ``headline`` and ``by_context``, fit for the public.
        include_host: Let paths stand in names.
    """
    manifest = run.manifest
    cells = public_frame(run.cells, include_host=include_host)
    first = manifest.cells[0] if manifest.cells else None
    name = str((manifest.target or {}).get("name") or (first.target if first else "no target"))
    references = set(cells.loc[cells["is_reference"], "drafter"])
    return Summary(
        made_by=hyflash_bench.__version__,
        include_host=include_host,
        content_hash=content_hash(run),
        run_id=public_text(run.run_id, include_host=include_host),
        created_at=manifest.created_at,
        finished_at=manifest.finished_at,
        measured_by=manifest.package_version,
        target=public_text(name, include_host=include_host),
        target_id=first.target_id if first else "",
        machine=machine_of(manifest),
        is_busy=_is_busy(run),
        suites=[
            {key: suite.get(key) for key in ("name", "suite_hash", "title")} for suite in manifest.suites
        ],
        num_done=len(run.conversations),
        num_planned=sum(cell.num_conversations for cell in manifest.cells),
        answer=answer_of(analysed["headline"], analysed["by_context"], references),
        rows=rows_of(_rows(analysed, cells)),
    )


def key_of(run: Run, *, include_host: bool) -> str:
    """Name of the run's folder in a site."""
    name = public_text(run.run_id, include_host=include_host)
    return f"{safe_name(name)}-{content_hash(run)[:10]}"


def read_summaries(layout: SiteLayout) -> list[Summary]:
    """Every complete run of a site, newest first.

    Raises:
        DataError: A summary is damaged; the message names the file.
    """
    found = [read_summary(path) for path in layout.summaries()]
    return sorted(found, key=lambda one: (one.created_at, one.num_done, one.key), reverse=True)


def current(summaries: Iterable[Summary]) -> list[Summary]:
    """The summaries without those of which the site has a later state.

    A run that was continued keeps its name and birthday and has more conversations.
    """
    latest: dict[tuple[str, str], Summary] = {}
    for one in summaries:
        identity = (one.run_id, one.created_at)
        latest[identity] = max(latest.get(identity, one), one, key=_progress)
    return list(latest.values())


def _progress(one: Summary) -> tuple[int, str, str]:
    return one.num_done, one.finished_at or "", one.content_hash


def _rows(analysed: Mapping[str, pd.DataFrame], cells: pd.DataFrame) -> pd.DataFrame:
    import pandas as pd

    parts = [analysed["headline"].assign(context_length=None), analysed["by_context"]]
    names = cells.drop_duplicates("drafter").set_index("drafter")
    hashes = cells.drop_duplicates("suite").set_index("suite")["suite_hash"]
    rows = pd.concat([part.astype({"context_length": "Int64"}) for part in parts], ignore_index=True)
    rows = rows.assign(
        drafter_name=rows["drafter"].map(names["drafter_name"]),
        is_reference=rows["drafter"].map(names["is_reference"]),
        suite_hash=rows["suite"].map(hashes),
    )
    return rows.reindex(columns=list(ROW))


def _is_busy(run: Run) -> bool:
    busy = run.manifest.environment.get("busy_share")
    return isinstance(busy, float) and busy > BUSY_SHARE and bool((run.turns["mode"] == "live").any())


def read_summary(path: Path) -> Summary:
    """What one ``summary.json`` says.

    Raises:
        DataError: It is absent or damaged.
    """
    try:
        values = decode(path.read_bytes(), str(path))
        return Summary.parse(values, str(path))
    except (OSError, SpecError, DataError) as error:
        raise DataError(
            f"{path} cannot be used ({error}). Publish its run again, or delete the folder {path.parent}."
        ) from None
