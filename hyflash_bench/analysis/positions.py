"""Acceptance slot by slot, and how many tokens steps commit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hyflash_bench.results.status import NUMBER_STATUSES

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["position_acceptance", "step_distribution"]


def position_acceptance(steps: pd.DataFrame, by: Sequence[str] = ("drafter",)) -> pd.DataFrame:
    """P(slot accepted | slots before it accepted) for chains, slots counted from 1.

    Trees, steps that the token limit cut short and cells that may show no number are left out. In a
    step that ended the reply, slots behind the end were never put to the target and are not counted
    as rejected.

    Args:
        steps: The steps table of a run, or some of its rows.
        by: Columns that make the groups.

    Returns:
        ``by``, ``position``, ``num_reached``, ``num_accepted``, ``position_acceptance``; slots that
        no step reached have no row.
    """
    import pandas as pd

    chains = _counted(steps)
    chains = chains[chains["depth"] == chains["drafted"]]
    # Up to the end of the reply; without one, no slot lies behind it.
    end = chains["committed"].where(chains["eos_cut"], chains["drafted"])
    slots = chains["drafted"].where(chains["drafted"] < end, end)
    parts = []
    for position in range(1, int(slots.max() if len(slots) else 0) + 1):
        reached = (slots >= position) & (chains["accepted"] >= position - 1)
        parts.append(
            chains.loc[reached, list(by)].assign(
                position=position,
                num_reached=1,
                num_accepted=(chains.loc[reached, "accepted"] >= position).astype("int64"),
            )
        )
    columns = [*by, "position", "num_reached", "num_accepted"]
    rows = pd.concat(parts) if parts else chains.iloc[:0].reindex(columns=columns)
    table = rows.groupby([*by, "position"], dropna=False).sum().reset_index()
    return table.assign(position_acceptance=(table["num_accepted"] / table["num_reached"]).astype("float64"))


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


def _counted(steps: pd.DataFrame) -> pd.DataFrame:
    """Steps that count for acceptance."""
    return steps[
        (steps["status"] == "ok")
        & steps["cell_status"].isin(NUMBER_STATUSES)
        & steps["is_scored"]
        & ~steps["limit_cut"]
    ]
