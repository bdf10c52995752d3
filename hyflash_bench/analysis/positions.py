"""Acceptance slot by slot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hyflash_bench.results.status import NUMBER_STATUSES

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["position_acceptance"]


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

    chains = steps[
        (steps["status"] == "ok")
        & steps["cell_status"].isin(NUMBER_STATUSES)
        & steps["is_scored"]
        & ~steps["limit_cut"]
        & (steps["depth"] == steps["drafted"])
    ]
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
