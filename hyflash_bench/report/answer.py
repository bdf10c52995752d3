"""The question that a run answers, answered in sentences with numbers."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from hyflash_bench.report.groups import Group, groups_of
from hyflash_bench.report.text import cell_text

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["answer_of"]

Row = dict[str, Any]

MOST_NAMES = 4


def answer_of(headline: pd.DataFrame, by_context: pd.DataFrame, references: Collection[str]) -> list[str]:
    """Which drafter is fastest, and which foresees most at the longest context; for each group of rows.

    Args:
        headline: See :func:`hyflash_bench.analysis.summary.headline`.
        by_context: See :func:`hyflash_bench.analysis.summary.by_context`.
        references: Labels of plain decoding, which is no drafter to choose.
    """
    longest = {group.key: _longest(group) for group in groups_of(by_context)}
    sentences = [
        sentence
        for group in groups_of(headline)
        for sentence in (_group(group, references), longest.get(group.key))
        if sentence
    ]
    return sentences or ["Nothing was measured yet."]


def _group(group: Group, references: Collection[str]) -> str:
    where = f"On {group.suite} ({group.conditions}),"
    timed = _ranked(group.frame, "decode_tok_per_s")
    if timed and timed[0]["drafter"] in references:
        return f"{where} {_none_faster(timed)}"
    if timed:
        return f"{where} {_fastest(timed)}"
    scored = _ranked(group.frame, "acceptance_length")
    if scored:
        return f"{where} {_highest(scored)}; speed was not measured."
    reached = sorted(set(group.frame["status"]))
    return f"{where} no drafter finished all conversations ({', '.join(reached)})."


def _none_faster(timed: list[Row]) -> str:
    plain, *others = timed
    speed = cell_text("decode_tok_per_s", plain["decode_tok_per_s"])
    text = f"no drafter is faster than plain decoding, {speed} tokens/s"
    if others and _is_known(others[0]["speedup"]):
        next_one = others[0]
        text += f"; the next is {next_one['drafter']}, {cell_text('speedup', next_one['speedup'])} times it"
        text += _interval(next_one, "speedup")
    return f"{text}."


def _fastest(timed: list[Row]) -> str:
    best = timed[0]
    speed = cell_text("decode_tok_per_s", best["decode_tok_per_s"])
    text = f"{best['drafter']} decodes fastest, {speed} tokens/s"
    if _is_known(best["speedup"]):
        text += f", {cell_text('speedup', best['speedup'])} times plain decoding"
        text += _interval(best, "speedup")
    if _is_known(best["acceptance_length"]):
        text += f", committing {cell_text('', best['acceptance_length'])} tokens per step"
        text += _interval(best, "acceptance_length")
    if _is_known(best["drafter_bytes"]):
        text += f" and holding at most {cell_text('drafter_bytes', best['drafter_bytes'])}"
    return f"{text}.{_doubt(timed)}"


def _doubt(timed: list[Row]) -> str:
    """What a reader must know before believing the first place."""
    best, *others = timed
    near = [row["drafter"] for row in others if _overlap(best, row)]
    doubts = []
    if best["status"] != "ok":
        doubts.append("Not all of its conversations were run.")
    if best.get("verdict") == "no clear difference":
        is_apart = not best["speedup_low"] <= 1 <= best["speedup_high"]
        corrected = ", since several drafters were compared" if is_apart else ""
        doubts.append(f"That is no clear difference from plain decoding{corrected}.")
    if _is_known(best["reason"]) and not _is_known(best["speedup_low"]):
        doubts.append(f"There is no interval: {best['reason']}.")
    if near:
        doubts.append(f"Its interval overlaps that of {_listed(near)}.")
    return "".join(f" {doubt}" for doubt in doubts)


def _listed(names: list[str]) -> str:
    """``a, b and c``; of many, the first and how many others."""
    if len(names) > MOST_NAMES:
        names = [*names[: MOST_NAMES - 1], f"{len(names) - MOST_NAMES + 1} others"]
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def _longest(group: Group) -> str:
    """The highest acceptance at the longest context that anyone reached."""
    known = group.frame[group.frame["acceptance_length"].notna()]
    if known.empty:
        return ""
    length = known["context_length"].max()
    rows = _ranked(known[known["context_length"] == length], "acceptance_length")
    at = cell_text("context_length", length)
    where = f"At the longest context reached on {group.suite} ({group.conditions}), {at} tokens"
    return f"{where}, {_highest(rows)}."


def _highest(scored: list[Row]) -> str:
    best = scored[0]
    length = cell_text("acceptance_length", best["acceptance_length"])
    interval = _interval(best, "acceptance_length")
    return f"{best['drafter']} has the highest acceptance length, {length} tokens per step{interval}"


def _ranked(frame: pd.DataFrame, metric: str) -> list[Row]:
    """Rows that have the number, highest first; unfinished ones only if there are no others.

    Of the others those on the most conversations: on fewer ones, a higher number may be easier work.
    """
    known = frame[frame[metric].notna()]
    finished = known[known["status"] == "ok"]
    known = known if finished.empty else finished
    known = known[known["num_conversations"] == known["num_conversations"].max()]
    rows = known.sort_values([metric, "drafter"], ascending=[False, True]).to_dict("records")
    return [{str(key): value for key, value in row.items()} for row in rows]


def _interval(row: Row, metric: str) -> str:
    low, high = row[f"{metric}_low"], row[f"{metric}_high"]
    if not (_is_known(low) and _is_known(high)):
        return ""
    return f" (95 % interval {cell_text(metric, low)} to {cell_text(metric, high)})"


def _overlap(one: Row, other: Row) -> bool:
    low, high = one["decode_tok_per_s_low"], other["decode_tok_per_s_high"]
    return _is_known(low) and _is_known(high) and bool(high >= low)


def _is_known(value: Any) -> bool:
    import pandas as pd

    return bool(pd.notna(value))
