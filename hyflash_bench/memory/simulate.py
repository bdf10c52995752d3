"""How fast passes would be on a device: counted bytes and operations on a roofline, plus overhead.

Nothing here is measured but the acceptance that goes in, so every result is named ``simulated``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hyflash_bench.memory.shapes import KVDtype, ModelShape, PassCost, WeightBits

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd
    from numpy.typing import NDArray

    from hyflash_bench.memory.forms import DrafterForm
    from hyflash_bench.memory.shapes import Amount
    from hyflash_bench.spec.device import Compute, DeviceProfile

    Numbers = NDArray[np.float64]

__all__ = ["Scene", "SimulatedSteps", "pass_seconds", "simulated_speeds"]

PREFILL_ROWS = 512
"""Prompt tokens in one pass of a prefill."""

_COMPUTE: dict[WeightBits, Compute] = {32: "float32", 16: "bfloat16", 8: "float16", 4: "float16"}
"""Precision of the products; weights of few bits are widened on the way."""


def pass_seconds(cost: PassCost, device: DeviceProfile, precision: Compute) -> Amount:
    """Seconds of passes: the slower of memory and arithmetic, and what a pass and its layers take besides."""
    moving = np.asarray(cost.num_bytes, dtype=np.float64) / device.bandwidth
    computing = np.asarray(cost.flops, dtype=np.float64) / device.compute(precision)
    besides = device.overhead_s.value + cost.num_layers * device.overhead_layer_s.value
    return np.asarray((np.maximum(moving, computing) + besides) * cost.num_passes, dtype=np.float64)


@dataclass(frozen=True, slots=True)
class SimulatedSteps:
    """Steps of a run as they would go on a device.

    Attributes:
        draft_s: Seconds of drafting in each step.
        verify_s: Seconds of the target's pass in each step.
        observe_s: Seconds of the drafter's reading of what was committed.
        plain_s: Seconds that plain decoding would take for the same tokens.
        num_committed: Tokens committed in each step.
    """

    draft_s: Numbers
    verify_s: Numbers
    observe_s: Numbers
    plain_s: Numbers
    num_committed: Numbers

    @property
    def simulated_decode_s(self) -> float:
        """Seconds of all steps."""
        return float((self.draft_s + self.verify_s + self.observe_s).sum())

    @property
    def simulated_tok_per_s(self) -> float:
        """Committed tokens per second."""
        return float(self.num_committed.sum()) / self.simulated_decode_s

    @property
    def simulated_speedup(self) -> float:
        """Seconds of plain decoding over those of the steps."""
        return float(self.plain_s.sum()) / self.simulated_decode_s


@dataclass(frozen=True, slots=True)
class Scene:
    """A target on a device.

    Attributes:
        device: Where it runs.
        target: What runs.
        bits: Of its weights.
        kv_dtype: Of its KV cache.
    """

    device: DeviceProfile
    target: ModelShape
    bits: WeightBits
    kv_dtype: KVDtype

    def verify_seconds(self, num_drafted: Amount, context_length: Amount) -> Numbers:
        """A pass over the last token and a draft behind so many cached tokens: a curve, not a constant."""
        rows = np.asarray(num_drafted, dtype=np.float64) + 1
        context = np.asarray(context_length, dtype=np.float64)
        return self._seconds(self.target.pass_cost(rows, context, bits=self.bits, kv_dtype=self.kv_dtype))

    def plain_seconds(self, context_length: Amount) -> Numbers:
        """A step of plain decoding."""
        return self.verify_seconds(0, context_length)

    def prefill_seconds(self, num_tokens: int) -> float:
        """A prompt in passes of 512 tokens; only its last token gets logits."""
        starts = np.arange(0, num_tokens, PREFILL_ROWS, dtype=np.float64)
        rows = np.minimum(num_tokens - starts, PREFILL_ROWS)
        scored = (rows + starts == num_tokens) * 1.0
        cost = self.target.pass_cost(rows, starts, bits=self.bits, kv_dtype=self.kv_dtype, logit_rows=scored)
        return float(self._seconds(cost).sum())

    def step_seconds(self, drafter: DrafterForm, num_drafted: int, context_length: Amount) -> Numbers:
        """A step with a draft of which nothing is accepted but the bonus token is committed."""
        context = np.asarray(context_length, dtype=np.float64)
        drafting = self._seconds(drafter.draft_cost(float(num_drafted), context))
        observing = self._seconds(drafter.observe_cost(1.0, context))
        return drafting + observing + self.verify_seconds(num_drafted, context)

    def break_even(self, drafter: DrafterForm, num_drafted: int, context_length: Amount) -> Numbers:
        """Acceptance length that a drafter must reach to be as fast as plain decoding."""
        seconds = self.step_seconds(drafter, num_drafted, context_length)
        return np.asarray(seconds / self.plain_seconds(context_length))

    def steps(
        self, drafter: DrafterForm, drafted: Numbers, committed: Numbers, context_length: Numbers
    ) -> SimulatedSteps:
        """Measured steps, timed by the roofline; steps without a draft cost no drafting.

        Args:
            drafter: On paper.
            drafted: Tokens proposed in each step.
            committed: Tokens committed in each step.
            context_length: Tokens before each step, the last committed one included.
        """
        drafted, committed = np.asarray(drafted, np.float64), np.asarray(committed, np.float64)
        cached = np.maximum(np.asarray(context_length, np.float64) - 1, 0)
        drafting = np.broadcast_to(self._seconds(drafter.draft_cost(drafted, cached)), drafted.shape)
        observing = np.broadcast_to(self._seconds(drafter.observe_cost(committed, cached)), drafted.shape)
        # Plain decoding walks the same tokens one by one; its cost is linear in the context.
        middle = cached + (committed - 1) / 2
        return SimulatedSteps(
            draft_s=np.where(drafted > 0, drafting, 0.0),
            verify_s=self.verify_seconds(drafted, cached),
            observe_s=np.array(observing),
            plain_s=committed * self.plain_seconds(middle),
            num_committed=committed,
        )

    def _seconds(self, cost: PassCost) -> Numbers:
        return np.asarray(pass_seconds(cost, self.device, _COMPUTE[self.bits]))


def simulated_speeds(
    steps: pd.DataFrame, scene: Scene, forms: Mapping[str, DrafterForm]
) -> list[dict[str, Any]]:
    """What the acceptance measured in a run would give on a device.

    Args:
        steps: The steps table of a run.
        scene: The run's target on the device.
        forms: Drafters by label; others are left out.

    Returns:
        A row for each drafter and context length that the suite asked for, missing where it fixed none.
    """
    import pandas as pd

    wanted = steps["is_scored"] & steps["memory_cap_bytes"].isna() & (steps["status"] == "ok")
    counted = steps[wanted & steps["drafter"].isin(list(forms))]
    rows = []
    groups: Any = counted.groupby(["drafter", "context_rung"], dropna=False, sort=False)
    for (label, rung), group in groups:
        drafted, committed, context = (
            group[name].to_numpy(dtype=np.float64) for name in ("drafted", "committed", "context_length")
        )
        found = scene.steps(forms[str(label)], drafted, committed, context)
        rows.append(
            {
                "device": scene.device.name,
                "drafter": str(label),
                "context_rung": None if pd.isna(rung) else int(rung),
                "num_steps": len(group),
                "measured_committed_per_step": float(committed.mean()),
                "simulated_tok_per_s": found.simulated_tok_per_s,
                "simulated_speedup": found.simulated_speedup,
            }
        )
    return rows
