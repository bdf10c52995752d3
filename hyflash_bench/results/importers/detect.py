"""Which importer reads a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Final

from hyflash_bench.errors import DataError, UnknownName, UsageError
from hyflash_bench.results.importers.aiperf import is_aiperf, read_aiperf
from hyflash_bench.results.importers.answers import is_answers, read_answers
from hyflash_bench.results.importers.base import Imported, rows_of
from hyflash_bench.results.importers.vllm import is_bench, is_metrics, read_bench, read_metrics
from hyflash_bench.suites.datafiles.plain import plain_file
from hyflash_bench.suites.formats.base import Row

__all__ = ["FORMATS", "read_results"]

FORMATS: Final = MappingProxyType(
    {
        "spec-bench": "answers of Spec-Bench: accept_lengths of every step",
        "fastchat": "answers of Medusa and EAGLE in FastChat's form: idxs and new_tokens",
        "vllm-bench": "JSON of vllm bench serve --save-result",
        "vllm-metrics": "text of a vLLM server's /metrics",
        "aiperf": "aiperf's profile_export.jsonl",
    }
)

_BY_ROW: tuple[tuple[str, Callable[[Row], bool]], ...] = (
    ("spec-bench", is_answers),
    ("vllm-bench", is_bench),
    ("aiperf", is_aiperf),
)
_READERS: dict[str, Callable[[Path], Imported]] = {
    "spec-bench": read_answers,
    "fastchat": read_answers,
    "vllm-bench": read_bench,
    "aiperf": read_aiperf,
}


def read_results(path: Path, format_name: str | None = None, *, before: Path | None = None) -> Imported:
    """Read another program's results.

    Args:
        path: The file.
        format_name: One of :data:`FORMATS`, or None to recognise it.
        before: With ``vllm-metrics``: an earlier reading, whose counts are taken off.

    Raises:
        UnknownName: There is no such format.
        UsageError: ``before`` with another format.
        DataError: The file is damaged, or of no format that is known.
    """
    if format_name is not None and format_name not in FORMATS:
        raise UnknownName("format", format_name, FORMATS)
    found = format_name or _recognised(path)
    if found == "vllm-metrics":
        return read_metrics(path, before)
    if before is not None:
        raise UsageError(f"--before belongs to vllm-metrics; {path} is {found}. Leave it out.")
    return _READERS[found](path)


def _recognised(path: Path) -> str:
    with plain_file(path).path.open("rb") as file:
        head = file.read(2**16).decode("utf-8", errors="replace")
    if is_metrics(head):
        return "vllm-metrics"
    row = next(rows_of(path), (None, Row({})))[1]
    for name, fits in _BY_ROW:
        if fits(row):
            return name
    known = "; ".join(f"{name}: {what}" for name, what in FORMATS.items())
    raise DataError(f"{path} is of no format that is known. Known are {known}. Name one with --format.")
