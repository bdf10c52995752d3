"""How fast passes would be on a device: counted bytes and operations on a roofline, plus overhead.

Nothing here is measured but the acceptance that goes in, so every result is named ``simulated``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hyflash_bench.memory.ledger_totals import LOGIT_BYTES
from hyflash_bench.memory.shapes import KVDtype, ModelShape, PassCost, WeightBits

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hyflash_bench.memory.forms import DrafterForm
    from hyflash_bench.memory.shapes import Amount
    from hyflash_bench.spec.device import Compute, DeviceProfile, Rates

    Numbers = NDArray[np.float64]

__all__ = ["Scene", "SimulatedSteps", "pass_seconds"]

PREFILL_ROWS = 512
"""Prompt tokens in one pass of a prefill."""

_COMPUTE: dict[WeightBits, Compute] = {32: "float32", 16: "bfloat16", 8: "float16", 4: "float16"}
"""Precision of the products; weights of few bits are widened on the way."""
_LOOP_OPERATORS = 14
"""Operators of one step of the loop that belong to no pass: rows, verification, what is kept."""


def pass_seconds(cost: PassCost, device: DeviceProfile, precision: Compute) -> Numbers:
    """Seconds of passes: what memory and arithmetic take, and what passes and operators take besides.

    A device whose rates were measured takes products and attention one after the other, each at the
    rate of its own operations per byte; on others the slower of memory and arithmetic decides (the
    roofline of Williams et al., 2009).
    """
    if cost.routine:
        routine = device.routine_s.get(cost.routine)
        each: Amount = 0.0 if routine is None else routine.value
    else:
        each = _working_seconds(cost, device, precision) + _seconds_besides(cost, device)
    return np.asarray(each * np.asarray(cost.num_passes, dtype=np.float64))


def _working_seconds(cost: PassCost, device: DeviceProfile, precision: Compute) -> Numbers:
    flops, num_bytes = np.asarray(cost.flops, np.float64), np.asarray(cost.num_bytes, np.float64)
    products, attention = (rates.get(precision) for rates in (device.product_rates, device.attention_rates))
    if products is None or attention is None:
        return np.maximum(num_bytes / device.bandwidth, flops / device.compute(precision))
    scores, cached = np.asarray(cost.score_flops, np.float64), np.asarray(cost.cache_bytes, np.float64)
    return _measured_seconds(flops - scores, num_bytes - cached, products) + _measured_seconds(
        scores, cached, attention
    )


def _measured_seconds(flops: Numbers, num_bytes: Numbers, rates: Rates) -> Numbers:
    """Between two measurements the rate is a power of the intensity; below the first, memory's."""
    intensity = flops / np.maximum(num_bytes, 1.0)
    known, rate = np.asarray(rates.flop_per_byte), np.asarray(rates.flop_per_s)
    at = np.exp(np.interp(np.log(np.maximum(intensity, known[0])), np.log(known), np.log(rate)))
    return np.asarray(np.maximum(flops, num_bytes * known[0]) / at)


def _seconds_besides(cost: PassCost, device: DeviceProfile) -> Amount:
    """Of a module that torch runs operator by operator, or of a pass whose program is one piece."""
    if device.operator_s is not None and np.any(cost.num_operators):
        return cost.num_operators * device.operator_s.value
    return device.overhead_s.value + cost.num_layers * device.overhead_layer_s.value


@dataclass(frozen=True, slots=True)
class SimulatedSteps:
    """Steps of a run as they would go on a device.

    Attributes:
        draft_s: Seconds of drafting in each step.
        verify_s: Seconds of the target's pass in each step.
        observe_s: Seconds of the drafter's reading of what was committed.
        loop_s: Seconds of the loop itself.
        plain_s: Seconds that plain decoding would take for the same tokens.
        num_committed: Tokens committed in each step.
    """

    draft_s: Numbers
    verify_s: Numbers
    observe_s: Numbers
    loop_s: Numbers
    plain_s: Numbers
    num_committed: Numbers

    @property
    def simulated_decode_s(self) -> float:
        """Seconds of all steps."""
        return float((self.draft_s + self.verify_s + self.observe_s + self.loop_s).sum())

    @property
    def simulated_tok_per_s(self) -> float:
        """Committed tokens per second."""
        return float(self.num_committed.sum()) / self.simulated_decode_s

    @property
    def simulated_plain_tok_per_s(self) -> float:
        """The same tokens per second of plain decoding."""
        return float(self.num_committed.sum()) / float(self.plain_s.sum())

    @property
    def simulated_speedup(self) -> float:
        """Seconds of plain decoding over those of the steps."""
        return float(self.plain_s.sum()) / self.simulated_decode_s

    @property
    def break_even_acceptance_length(self) -> float:
        """Tokens a step that would make these steps as fast as plain decoding."""
        each = float(self.plain_s.sum()) / float(self.num_committed.sum())
        return self.simulated_decode_s / len(self.num_committed) / each


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
        return self.verify_seconds(0, context_length) + self.loop_seconds(0)

    def prefill_seconds(self, num_tokens: Amount, context_length: Amount = 0) -> Numbers:
        """Prompts behind cached tokens, in passes of 512; only a prompt's last token gets logits."""
        left = np.asarray(num_tokens, dtype=np.float64)
        context, total = np.asarray(context_length, dtype=np.float64), np.zeros(left.shape)
        while np.any(left > 0):
            rows = np.clip(left, 0, PREFILL_ROWS)
            scored = np.where(left <= PREFILL_ROWS, 1.0, 0.0)
            cost = self.target.pass_cost(
                rows, context, bits=self.bits, kv_dtype=self.kv_dtype, logit_rows=scored
            )
            total = total + np.where(rows > 0, self._seconds(cost), 0.0)
            left, context = left - rows, context + rows
        return np.asarray(total)

    def draft_seconds(self, drafter: DrafterForm, num_drafted: Amount, context_length: Amount) -> Numbers:
        """A draft; none is free, except for a network that was given no room for any."""
        cost = drafter.draft_cost(num_drafted, context_length)
        seconds = self._seconds(cost)
        return seconds if cost.routine else np.where(np.asarray(num_drafted) > 0, seconds, 0.0)

    def observe_seconds(self, drafter: DrafterForm, num_tokens: Amount, context_length: Amount) -> Numbers:
        """A drafter's reading of verified tokens."""
        return self._seconds(drafter.observe_cost(num_tokens, context_length))

    def loop_seconds(self, num_drafted: Amount) -> Numbers:
        """What a step takes besides passes; elsewhere it is part of a pass's overhead."""
        rows = np.asarray(num_drafted, dtype=np.float64) + 1
        if self.device.operator_s is None:
            return np.zeros(rows.shape)
        looked_at = rows * self.target.vocab_size * LOGIT_BYTES / self.device.bandwidth
        return np.asarray(looked_at + _LOOP_OPERATORS * self.device.operator_s.value)

    def step_seconds(
        self, drafter: DrafterForm, num_drafted: Amount, context_length: Amount, num_committed: Amount = 1.0
    ) -> Numbers:
        """A step, whatever of its draft is accepted.

        Args:
            drafter: On paper.
            num_drafted: Tokens proposed.
            context_length: Tokens in the target's cache.
            num_committed: Tokens that the drafter is shown afterwards.
        """
        drafted, context = np.asarray(num_drafted, np.float64), np.asarray(context_length, np.float64)
        return np.asarray(
            self.draft_seconds(drafter, drafted, context)
            + self.observe_seconds(drafter, num_committed, context)
            + self.verify_seconds(drafted, context)
            + self.loop_seconds(drafted)
        )

    def break_even(
        self, drafter: DrafterForm, num_drafted: Amount, context_length: Amount, num_committed: Amount = 1.0
    ) -> Numbers:
        """Acceptance length that a drafter must reach to be as fast as plain decoding."""
        seconds = self.step_seconds(drafter, num_drafted, context_length, num_committed)
        return np.asarray(seconds / self.plain_seconds(context_length))

    def steps(
        self, drafter: DrafterForm, drafted: Numbers, committed: Numbers, context_length: Numbers
    ) -> SimulatedSteps:
        """Measured steps, timed by the roofline.

        Args:
            drafter: On paper.
            drafted: Tokens proposed in each step.
            committed: Tokens committed in each step.
            context_length: Tokens before each step, the last committed one included.
        """
        drafted, committed = np.asarray(drafted, np.float64), np.asarray(committed, np.float64)
        cached = np.maximum(np.asarray(context_length, np.float64) - 1, 0)
        # Plain decoding walks the same tokens one by one; its cost is linear in the context.
        middle = cached + (committed - 1) / 2

        def each(seconds: Numbers) -> Numbers:
            return np.array(np.broadcast_to(seconds, drafted.shape))

        return SimulatedSteps(
            draft_s=each(self.draft_seconds(drafter, drafted, cached)),
            verify_s=self.verify_seconds(drafted, cached),
            observe_s=each(self.observe_seconds(drafter, committed, cached)),
            loop_s=self.loop_seconds(drafted),
            plain_s=committed * self.plain_seconds(middle),
            num_committed=committed,
        )

    def _seconds(self, cost: PassCost) -> Numbers:
        return np.asarray(pass_seconds(cost, self.device, _COMPUTE[self.bits]))
