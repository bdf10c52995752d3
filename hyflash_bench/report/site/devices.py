"""A page a device: what measured acceptance would give there, never mixed with what was timed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hyflash_bench.report.names import safe_name
from hyflash_bench.report.site.drafters import drafter_folder
from hyflash_bench.report.site.grids import grid_of
from hyflash_bench.report.site.pages import Pages
from hyflash_bench.report.theme import styles

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["write_devices"]

NOTE: Final = (
    "Every speed here is simulated: the bytes and operations of each pass, counted, on the device's "
    "roofline, with the acceptance that was measured elsewhere. No program ran on the device."
)

_COLUMNS: Final = (
    *("drafter", "target", "suite", "sampling", "context_length", "measured_acceptance_length"),
    *("simulated_tok_per_s", "simulated_plain_tok_per_s", "simulated_speedup"),
    *("break_even_acceptance_length", "stops_paying_context", "run_id"),
)
_FILTERS: Final = dict.fromkeys(("drafter", "target", "suite", "sampling", "context_length"), "")


def write_devices(frame: pd.DataFrame, pages: Pages) -> tuple[list[tuple[str, str, str]], list[Path]]:
    """Write the page of every device.

    Args:
        frame: Simulated speeds of all runs; see :func:`hyflash_bench.report.site.feeds.simulated`.
        pages: Of the site.

    Returns:
        Name, address and a remark of each page, and the files that changed.
    """
    links: list[tuple[str, str, str]] = []
    written: list[Path] = []
    for name, rows in frame.groupby("device", sort=True):
        folder = safe_name(str(name))
        remark = f"{len(rows)} rows of {rows['run'].nunique()} runs"
        written += pages.write(
            pages.layout.devices / folder / "index.html",
            "site_device.html.j2",
            str(name),
            notices=[NOTE],
            looks=styles(rows["drafter"]),
            board=grid_of(rows, "board", f"Simulated on {name}", _COLUMNS, link=_link, filters=_FILTERS),
        )
        links.append((str(name), f"devices/{folder}/index.html", remark))
    return links, written


def _link(column: str, row: Any) -> str:
    if column == "drafter":
        return f"../../drafters/{drafter_folder(row['drafter_name'])}/index.html"
    return f"../../runs/{row['run']}/index.html" if column == "run_id" else ""
