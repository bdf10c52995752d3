"""The headline: every drafter, nothing left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hyflash_bench.report.columns import HEADLINE
from hyflash_bench.report.groups import groups_of
from hyflash_bench.report.sections.base import INTERVALS, Numbers, Part, Section, section, table

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["headline", "ordered"]


def headline(numbers: Numbers) -> Section | None:
    """The headline table of each suite, sampling and cap."""
    frame = numbers.headline
    # Where there is no verdict, why; a status other than ok has its own column.
    why = frame["reason"].mask(frame["reason"] == frame["status"])
    why = why.mask(why == "this is the reference", "reference")
    frame = frame.assign(verdict=frame["verdict"].fillna(why))
    parts = [
        Part([table(group.name, ordered(group.frame), HEADLINE)], group.key) for group in groups_of(frame)
    ]
    return section("headline", "Headline", _texts(frame), parts)


def ordered(frame: pd.DataFrame) -> pd.DataFrame:
    """Fastest first; then those that did not finish, and those without a number."""
    keys = ["decode_tok_per_s", "acceptance_length"]
    by_speed = frame.sort_values(keys, ascending=False, na_position="last", kind="stable")
    is_unfinished = (by_speed["status"] != "ok").astype("int8")
    return by_speed.iloc[is_unfinished.argsort(kind="stable")]


def _texts(frame: pd.DataFrame) -> Sequence[str]:
    verdict = (
        "Verdict: whether the drafter decodes faster than plain decoding in the same process, on the same "
        "conversations. No row is left out."
    )
    return [verdict, INTERVALS] if frame["verdict"].notna().any() else [INTERVALS]
