"""What ``check`` looks at: the drafter on its own, then in a short greedy run."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

import pandas as pd
import torch

from hyflash_bench.console import Check
from hyflash_bench.drafters.base import Drafter, Features, Requires
from hyflash_bench.drafters.contract import Ground, run_checks
from hyflash_bench.registry import build_drafter
from hyflash_bench.spec.drafter import DrafterSpec
from hyflash_bench.spec.target import TargetSpec
from hyflash_bench.targets.load import load_target

if TYPE_CHECKING:
    from hyflash_bench.results import Run

__all__ = ["REFERENCE", "judge", "keeps_contract"]

REFERENCE = "autoregressive"

STEP = ["cell_id", "item_id", "turn", "step"]
COUNTS = ["drafted", "depth", "accepted", "committed"]
NUM_TOKENS = 96
TEXT = """The old clock struck nine. The old clock struck ten. Nobody in the house moved.
The old clock struck eleven, and the door opened. Nobody in the house moved. The dog looked up.
The door closed, the dog lay down, and the old clock struck twelve. Nobody in the house moved.
The old clock struck one, and the door opened. The dog looked up, and nobody in the house moved.
"""  # it repeats itself, so that drafters that copy have something to propose


def keeps_contract(spec: DrafterSpec, target_spec: TargetSpec) -> Iterator[Check]:
    """Whether a drafter behaves on its own, given what a real target computes.

    Args:
        spec: The drafter.
        target_spec: The target to load it with.

    Raises:
        HyFlashError: Target or drafter cannot be loaded.
    """
    target = load_target(target_spec)
    context = target.load_context()
    tokens = torch.tensor(target.tokenizer.encode(TEXT)[:NUM_TOKENS], dtype=torch.int64)

    def make() -> Drafter:
        drafter = build_drafter(spec)
        drafter.load(context)
        return drafter

    @cache
    def features(requires: Requires) -> Features:
        return target.prefill(tokens, target.new_cache(len(tokens)), requires).features

    make()  # what keeps it from loading is one error, not one per check
    for result in run_checks(Ground(make, tokens, features, target.info.vocab_size)):
        yield Check(result.name, result.ok, result.message or "kept")


def judge(run: Run, drafter: str) -> list[Check]:
    """Whether a drafter kept the contract; what nothing was measured for is "not run", with the cause.

    Args:
        run: Its greedy run, replayed and live.
        drafter: Its label.
    """
    conversations = run.conversations[run.conversations["drafter"] == drafter]
    turns = run.turns[run.turns["drafter"] == drafter]
    steps = run.steps[run.steps["drafter"] == drafter]
    ran = _ran(conversations)
    if turns.empty:
        why = f"not run: {ran.detail}"
        return [ran, *(Check(name, False, why) for name in ("proposes", "lossless", "replay equals live"))]
    return [
        ran,
        _proposed(turns, drafter),
        _lossless(turns),
        _replayed_as_live(steps[~steps["item_id"].isin(_tied(turns))]),
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


def _tied(turns: pd.DataFrame) -> pd.Series:
    """Conversations whose live text went another way at a near tie, so that steps differ."""
    return turns[turns["lossless"] == "near_tie"]["item_id"]


def _replayed_as_live(steps: pd.DataFrame) -> Check:
    replay, live = steps[steps["mode"] == "replay"], steps[steps["mode"] == "live"]
    left = replay.set_index(STEP)[COUNTS].sort_index()
    right = live.set_index(STEP)[COUNTS].sort_index()
    fix = "draft() may depend on observed tokens only; see the checks above."
    if left.equals(right):
        return Check("replay equals live", True, f"{len(left)} steps")
    every = left.index.union(right.index)
    differs = left.reindex(every).ne(right.reindex(every)).fillna(True).any(axis=1)
    _, item_id, turn, step = every[differs.to_numpy(dtype=bool)][0]
    detail = f"first difference in {item_id}, turn {turn}, step {step}"
    return Check("replay equals live", False, detail, fix)
