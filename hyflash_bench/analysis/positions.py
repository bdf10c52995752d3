"""Acceptance slot by slot, and how many tokens steps commit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hyflash_bench.analysis.intervals import ratio_interval
from hyflash_bench.analysis.metric import ABOUT, CONVERSATION, documents_of
from hyflash_bench.results.status import NUMBER_STATUSES

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

__all__ = ["position_acceptance", "step_distribution"]

_POSITION: Final = (
    *("position", "num_reached", "num_accepted", "num_conversations"),
    *("position_acceptance", "position_acceptance_low", "position_acceptance_high", "reason"),
)


def position_acceptance(steps: pd.DataFrame, by: Sequence[str] = ("drafter",)) -> pd.DataFrame:
    """P(slot accepted | slots before it accepted) for chains, slots counted from 1.

    Trees, steps that the token limit cut short and cells that may show no number are left out. In a
    step that ended the reply, slots behind the end were never put to the target and are not counted
    as rejected.

    Args:
        steps: The steps table of a run, or some of its rows.
        by: Columns that make the groups.

    Returns:
        ``by``, ``position``, ``num_reached``, ``num_accepted``, ``num_conversations`` of which a step
        reached the slot, ``position_acceptance`` with ``_low`` and ``_high``, and ``reason`` why there is
        no interval; slots that no step reached have no row.
    """
    import pandas as pd

    chains = _counted(steps)
    chains = chains[chains["depth"] == chains["drafted"]]
    conversations = chains.groupby([*dict.fromkeys((*by, *CONVERSATION, *ABOUT))], dropna=False)
    known = conversations.size().reset_index()
    reached, accepted = _slots(chains, conversations.ngroup().to_numpy(), len(known))
    documents, place = np.array(documents_of(known), dtype=np.str_), known.groupby(list(by), dropna=False)
    found, firsts = [], []
    for members in place.indices.values() if len(known) else ():
        for slot in np.flatnonzero(reached[:, members].sum(axis=1)):
            above, below = accepted[slot, members], reached[slot, members]
            interval = ratio_interval(above, below, documents[members].tolist())
            firsts.append(members[0])
            known_of = (interval.value, interval.low, interval.high, interval.reason)
            found.append((slot + 1, below.sum(), above.sum(), interval.num_conversations, *known_of))
    dtypes = dict(zip(_POSITION, ("int64",) * 4 + ("float64",) * 3 + ("str",), strict=True))
    numbers = pd.DataFrame(found, columns=list(_POSITION)).astype(dtypes)
    return pd.concat([known[list(by)].iloc[firsts].reset_index(drop=True), numbers], axis="columns")


def step_distribution(steps: pd.DataFrame, by: Sequence[str] = ("drafter",)) -> pd.DataFrame:
    """How many steps committed one token, two, three ..., and the tokens that came from them.

    Steps that the token limit cut short and cells that may show no number are left out; the sums are
    those of acceptance_length.

    Args:
        steps: The steps table of a run, or some of its rows.
        by: Columns that make the groups.

    Returns:
        ``by``, ``committed``, ``num_steps``, ``step_share``, ``num_tokens``, ``token_share``; from one
        token to the group's most without a gap.
    """
    import pandas as pd

    names = [*by, "committed"]
    counted = _counted(steps)
    known = counted[names].assign(num_steps=1).groupby(names, dropna=False, sort=False).sum().reset_index()
    parts = []
    for _, part in known.groupby(list(by), dropna=False, sort=False):
        filled = part.set_index("committed").reindex(range(1, int(part["committed"].max()) + 1))
        num_steps = filled["num_steps"].fillna(0).astype("int64")
        num_tokens = num_steps * num_steps.index.to_numpy()
        shares = {"step_share": num_steps / num_steps.sum(), "token_share": num_tokens / num_tokens.sum()}
        table = pd.DataFrame({"num_steps": num_steps, "num_tokens": num_tokens, **shares}).reset_index()
        for name in by:
            table[name] = part[name].iloc[0]
        parts.append(table)
    columns = [*names, "num_steps", "step_share", "num_tokens", "token_share"]
    if not parts:
        return known.reindex(columns=columns)
    return pd.concat(parts, ignore_index=True)[columns].astype({name: known[name].dtype for name in by})


def _slots(chains: pd.DataFrame, owners: NDArray[Any], num: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Of each slot and conversation, the steps that reached it and those that accepted it.

    Args:
        chains: Steps.
        owners: The conversation of each step, from 0.
        num: How many conversations.
    """
    drafted, kept, committed = (
        chains[name].to_numpy(dtype=np.int64) for name in ("drafted", "accepted", "committed")
    )
    # Up to the end of the reply; without one, no slot lies behind it.
    slots = np.where(chains["eos_cut"].to_numpy(dtype=bool), np.minimum(drafted, committed), drafted)
    counts = [
        [np.bincount(owners[which], minlength=num) for which in (reached, reached & (kept > slot))]
        for slot in range(int(slots.max(initial=0)))
        for reached in [(slots > slot) & (kept >= slot)]
    ]
    reached, accepted = np.array(counts, dtype=np.int64).reshape(len(counts), 2, num).transpose(1, 0, 2)
    return reached, accepted


def _counted(steps: pd.DataFrame) -> pd.DataFrame:
    """Steps that count for acceptance."""
    return steps[
        (steps["status"] == "ok")
        & steps["cell_status"].isin(NUMBER_STATUSES)
        & steps["is_scored"]
        & ~steps["limit_cut"]
    ]
