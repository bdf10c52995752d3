"""What ``check`` reads off a short greedy run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hyflash_bench.console import Check

if TYPE_CHECKING:
    import pandas as pd

    from hyflash_bench.results import Run

__all__ = ["REFERENCE", "judge"]

REFERENCE = "autoregressive"

STEP = ["item_id", "turn", "step"]
COUNTS = ["drafted", "depth", "accepted", "committed"]


def judge(run: Run, drafter: str) -> list[Check]:
    """Whether a drafter kept the contract.

    Args:
        run: Its greedy run, with two repeats of the live loop.
        drafter: Its label.
    """
    conversations = run.conversations[run.conversations["drafter"] == drafter]
    turns = run.turns[run.turns["drafter"] == drafter]
    steps = run.steps[run.steps["drafter"] == drafter]
    return [
        _ran(conversations),
        _proposed(turns, drafter),
        _lossless(turns),
        _replayed_as_live(steps),
        _repeated(steps),
        _counted(turns),
    ]


def _ran(conversations: pd.DataFrame) -> Check:
    bad = conversations[conversations["status"] != "ok"]
    whys = sorted({f"{row.status}: {row.message}" for row in bad.itertuples()})
    detail = "; ".join(whys) if whys else f"{len(conversations)} conversations"
    ok = not whys and not conversations.empty
    return Check("runs", ok, detail, "Mend what the message says; --debug shows where it comes from.")


def _proposed(turns: pd.DataFrame, drafter: str) -> Check:
    num_drafted = int(turns["num_drafted"].sum())
    ok = num_drafted > 0 or drafter == REFERENCE
    return Check("proposes", ok, f"{num_drafted} tokens", "draft() always returned an empty draft.")


def _lossless(turns: pd.DataFrame) -> Check:
    live = turns[turns["mode"] == "live"]
    found = live["lossless"].value_counts().sort_index()
    detail = ", ".join(f"{count} {word}" for word, count in found.items()) or "no live turn"
    ok = not live.empty and bool(live["lossless"].isin(["identical", "near_tie"]).all())
    fix = "Draft.parents or probabilities do not fit the tokens, or observe() changed its features."
    return Check("lossless", ok, detail, fix)


def _replayed_as_live(steps: pd.DataFrame) -> Check:
    replay, live = steps[steps["mode"] == "replay"], steps[steps["mode"] == "live"]
    fix = "reset() must forget everything, and draft() may depend on observed tokens only."
    return _same("replay equals live", replay, live, fix)


def _repeated(steps: pd.DataFrame) -> Check:
    live = steps[steps["mode"] == "live"]
    first, *others = [part for _, part in live.groupby("cell_id")] or [live]
    fix = "Draw random numbers through the sampler only, and forget everything in reset()."
    return _same("repeats itself", first, others[-1] if others else live.iloc[:0], fix)


def _same(name: str, one: pd.DataFrame, other: pd.DataFrame, fix: str) -> Check:
    """Whether two sets of steps hold the same counts, step by step."""
    left = one.drop_duplicates(STEP).set_index(STEP)[COUNTS].sort_index()
    right = other.drop_duplicates(STEP).set_index(STEP)[COUNTS].sort_index()
    if left.empty or right.empty:
        return Check(name, left.empty and right.empty, "nothing to compare", fix)
    if left.equals(right):
        return Check(name, True, f"{len(left)} steps", fix)
    joined = left.join(right, how="outer", lsuffix="_one", rsuffix="_other")
    same = [joined[f"{column}_one"].eq(joined[f"{column}_other"]) for column in COUNTS]
    agree = same[0]
    for column in same[1:]:
        agree &= column
    item_id, turn, step = next(index for index, is_equal in agree.fillna(False).items() if not is_equal)
    return Check(name, False, f"first difference in {item_id}, turn {turn}, step {step}", fix)


def _counted(turns: pd.DataFrame) -> Check:
    missing = int(turns["drafter_bytes"].isna().sum())
    most = turns["drafter_bytes"].max()
    detail = f"{missing} turns without a count" if missing else f"at most {int(most or 0):,} bytes"
    return Check("counts its memory", not missing, detail, "memory() must list what it keeps alive.")
