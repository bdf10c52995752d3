"""Whether solved context limits hold: runs that end just below them, and runs that go past them."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hyflash_bench.errors import UsageError
from hyflash_bench.memory.fit import Budget, longest_context
from hyflash_bench.runner.api import run

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from hyflash_bench.memory.fit import Plan
    from hyflash_bench.memory.forms import DrafterForm
    from hyflash_bench.runner.run import Listener

__all__ = ["NUM_LIMITS", "Confirmation", "confirm"]

NUM_LIMITS = 3
_CONTEXT = 512
_NEW_TOKENS = 48


@dataclass(frozen=True, slots=True)
class Confirmation:
    """A limit that was solved, and what a run under its cap did.

    Attributes:
        drafter: Label.
        memory_cap_bytes: The cap.
        solved_context: The longest context under it, by the formulas.
        conversation_context: Where the conversation ends if nothing stops it.
        expected: ``fits`` or ``out of memory``.
        outcome: What the run did.
        reached_context: Where it ended.
        peak_bytes: The run's own ledger at its highest, or at the breach.
    """

    drafter: str
    memory_cap_bytes: int
    solved_context: int
    conversation_context: int
    expected: str
    outcome: str
    reached_context: int
    peak_bytes: int

    @property
    def agrees(self) -> bool:
        """Whether the run did what the formulas say."""
        return self.outcome == self.expected


def confirm(
    plan: Plan,
    target: str,
    labels: Sequence[str],
    *,
    suite: str = "quick",
    contexts: Sequence[int] = (_CONTEXT,),
    listener: Listener | None = None,
) -> list[Confirmation]:
    """Run the target under two caps for each drafter.

    One cap is what the formulas ask for at the context where the conversation ends, so it just fits.
    The other is solved for a context half a reply before that, so it cannot. The formulas count the
    costliest step, and a step that keeps its whole draft needs less: that is why half a reply lies
    between the two and not one token.

    Args:
        plan: Target and drafters on paper, as loaded: 32 bits, float32.
        target: The target as for ``run``.
        labels: Drafters of the plan whose bytes are known.
        suite: Where the conversation is taken from, its first one at these contexts.
        contexts: Context lengths of the suite.
        listener: Told what goes on.

    Raises:
        HyFlashError: The runs cannot be made.
    """
    forms = {label: form for label, form in plan.drafters if form is not None and label in labels}
    request: dict[str, Any] = {
        "target": target,
        "drafters": list(forms),
        "suites": [suite],
        "contexts": list(contexts) or None,
        "limit": 1,
        "max_new_tokens": _NEW_TOKENS,
        "temperature": 0.0,
        "mode": "replay",
        "draft_budget": plan.draft_budget,
    }
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "confirm"
        free = run(output_path=place, listener=listener, **request)
        caps = {label: tuple(_caps(plan, form, *_ends(free.turns, label))) for label, form in forms.items()}
        sizes = sorted({cap.num_bytes for both in caps.values() for cap in both})
        capped = run(
            output_path=place, listener=listener, memory_caps=[f"{size}B" for size in sizes], **request
        )
        return [
            _confirmation(plan, label, forms[label], cap, capped.conversations, capped.turns)
            for label, both in caps.items()
            for cap in both
        ]


def _ends(turns: pd.DataFrame, label: str) -> tuple[int, int]:
    """Tokens in the cache where the conversation ends, and half of its last reply."""
    mine = turns[(turns["drafter"] == label) & turns["memory_cap_bytes"].isna()]
    if mine.empty:
        raise UsageError(f"{label} cannot run on this target, so its limits cannot be confirmed.")
    last = mine.sort_values("turn").iloc[-1]
    return int(last["context_length"] + last["num_committed"]), int(last["num_committed"]) // 2


def _caps(plan: Plan, form: DrafterForm, end: int, half: int) -> list[Budget]:
    return [
        Budget("fits", plan.total_bytes(form, end)),
        Budget("out of memory", plan.total_bytes(form, max(0, end - half))),
    ]


def _confirmation(
    plan: Plan,
    label: str,
    form: DrafterForm,
    cap: Budget,
    conversations: pd.DataFrame,
    turns: pd.DataFrame,
) -> Confirmation:
    free, under = (
        conversations[(conversations["drafter"] == label) & chosen].iloc[0]
        for chosen in (
            conversations["memory_cap_bytes"].isna(),
            conversations["memory_cap_bytes"] == cap.num_bytes,
        )
    )
    end, _ = _ends(turns, label)
    is_out = under["status"] == "oom"
    mine = turns[(turns["cell_id"] == free["cell_id"])]
    solved = longest_context(lambda context: plan.total_bytes(form, context), cap.num_bytes)
    return Confirmation(
        drafter=label,
        memory_cap_bytes=cap.num_bytes,
        solved_context=solved or 0,
        conversation_context=end,
        expected=cap.name,
        outcome="out of memory" if is_out else "fits" if under["status"] == "ok" else str(under["status"]),
        reached_context=int(under["context_reached"]) if is_out else end,
        peak_bytes=int(under["peak_bytes"]) if is_out else int(mine["ledger_bytes"].max()),
    )
