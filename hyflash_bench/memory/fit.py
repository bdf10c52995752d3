"""The longest context that fits: totals from formulas, solved for their crossing with a budget. No torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal

from hyflash_bench.memory.catalog import SMALL_MODEL, form_of
from hyflash_bench.memory.forms import DrafterForm
from hyflash_bench.memory.ledger_totals import TargetLedger
from hyflash_bench.memory.lookup import network_of
from hyflash_bench.memory.shapes import KVDtype, ModelShape, WeightBits
from hyflash_bench.memory.simulate import Scene
from hyflash_bench.spec.device import DeviceProfile
from hyflash_bench.spec.drafter import DrafterSpec

__all__ = ["Budget", "Plan", "Verdict", "longest_context"]

Verdict = Literal["fits", "without drafter", "does not fit", "unknown"]

GIB = 2**30
_MOST_TOKENS = 2**40
_SLOPE_TOKENS = 2**20
"""Over so many tokens the steps in which caches grow do not matter."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Bytes to stay within, and whose they are: a cap, or a device's usable memory."""

    name: str
    num_bytes: int


@dataclass(frozen=True, slots=True)
class Plan:
    """A target and drafters on paper.

    Attributes:
        target: Sizes of the target.
        drafters: Label of each drafter and its form, None where its bytes cannot be known beforehand.
        bits: Of the target's weights.
        kv_dtype: Of the KV caches.
        draft_budget: Most tokens proposed in one step, for what its verification needs.
    """

    target: ModelShape
    drafters: tuple[tuple[str, DrafterForm | None], ...]
    bits: WeightBits
    kv_dtype: KVDtype
    draft_budget: int

    @classmethod
    def of(
        cls,
        target: ModelShape,
        drafters: Iterable[DrafterSpec],
        *,
        bits: WeightBits = 32,
        kv_dtype: KVDtype = "float32",
        draft_budget: int = 16,
    ) -> Plan:
        """Look every drafter's form up; see :func:`~hyflash_bench.memory.catalog.form_of`."""
        forms = tuple(
            (
                spec.label,
                form_of(spec, target, bits=bits, kv_dtype=kv_dtype, network=_looked_up(spec, target)),
            )
            for spec in drafters
        )
        return cls(target, forms, bits, kv_dtype, draft_budget)

    def total_bytes(self, form: DrafterForm | None, context_length: int) -> int:
        """The ledger's total at the height of the costliest step that ends at a context length.

        That is the longest draft, of which verification keeps nothing but the token after it.

        Args:
            form: Of the drafter; None for none at all.
            context_length: Tokens in the target's cache after the step.
        """
        ledger = TargetLedger.of(self.target, bits=self.bits, kv_dtype=self.kv_dtype)
        before = max(0, context_length - 1)
        if form is None:
            return ledger.total(context_length, ledger.pass_bytes(1, before))
        during = ledger.pass_bytes(
            self.most_rows(form), before, num_features=form.num_features, num_committed=1
        )
        return ledger.total(context_length, during, sum(form.held(context_length).values()))

    def most_rows(self, form: DrafterForm) -> int:
        """Rows of the longest verification: the last token and a draft."""
        return min(form.most_drafted, self.draft_budget) + 1

    def bytes_per_context_token(self, form: DrafterForm | None) -> float:
        """What a further token of context costs, target and drafter together, over the long run."""
        further = self.total_bytes(form, 2 * _SLOPE_TOKENS) - self.total_bytes(form, _SLOPE_TOKENS)
        return further / _SLOPE_TOKENS

    def limits(self, budgets: Sequence[Budget]) -> list[dict[str, Any]]:
        """A row for each budget and drafter: the longest context, and what decides it."""
        return [row for budget in budgets for row in self._limits(budget)]

    def verdicts(self, budgets: Sequence[Budget], contexts: Sequence[int]) -> list[dict[str, Any]]:
        """A row for each budget, drafter and context length: whether it fits."""
        return [
            {
                "budget": budget.name,
                "drafter": label,
                "context_length": context,
                "verdict": self.verdict(form, budget, context),
                "total_bytes": self._known_total(form, context),
            }
            for budget in budgets
            for label, form in self.drafters
            for context in contexts
        ]

    def verdict(self, form: DrafterForm | None, budget: Budget, context_length: int) -> Verdict:
        """Whether a context length fits under a budget with a drafter, without it, or not at all."""
        if self.total_bytes(None, context_length) > budget.num_bytes:
            return "does not fit"
        total = self._known_total(form, context_length)
        if total is None:
            return "unknown"
        return "fits" if total <= budget.num_bytes else "without drafter"

    def speeds(self, devices: Sequence[DeviceProfile], contexts: Sequence[int]) -> list[dict[str, Any]]:
        """A row for each device and context: plain decoding, and where each drafter breaks even."""
        return [self._speeds(device, context) for device in devices for context in contexts]

    def facts(self) -> dict[str, Any]:
        """The target's sizes as they enter the formulas."""
        return {
            **asdict(self.target),
            "num_parameters": self.target.num_parameters,
            "weight_bits": self.bits,
            "weight_bytes": self.target.weight_bytes(self.bits),
            "kv_dtype": self.kv_dtype,
            "kv_bytes_per_token": self.target.kv_bytes_per_token(self.kv_dtype),
            "draft_budget": self.draft_budget,
        }

    def _speeds(self, device: DeviceProfile, context: int) -> dict[str, Any]:
        scene = Scene(device, self.target, self.bits, self.kv_dtype)
        pays = {
            label: scene.break_even(form, min(form.most_drafted, self.draft_budget), context)
            for label, form in self.drafters
            if form is not None and form.most_drafted
        }
        return {
            "device": device.name,
            "context_length": context,
            "simulated_plain_tok_per_s": float(1 / scene.plain_seconds(context)),
            "simulated_prefill_s": float(scene.prefill_seconds(context)),
            **{f"simulated_break_even {label}": round(float(length), 4) for label, length in pays.items()},
        }

    def _limits(self, budget: Budget) -> Iterator[dict[str, Any]]:
        alone = self._longest(None, budget)["largest_context"]
        for label, form in self.drafters:
            row: dict[str, Any] = {"budget": budget.name, "budget_bytes": budget.num_bytes, "drafter": label}
            if form is None:
                yield {**row, **_UNKNOWN, "note": "its bytes cannot be known beforehand"}
                continue
            found = self._longest(form, budget)
            fits, per_token = found["largest_context"], self.bytes_per_context_token(form)
            yield {
                **row,
                **found,
                "tokens_lost_to_drafter": None if fits is None or alone is None else alone - fits,
                "context_bytes_per_token": per_token,
                "drafter_bytes_at_8192": sum(form.held(8192).values()),
                "tokens_per_gib": int(GIB / per_token),
                "note": form.note,
            }

    def _longest(self, form: DrafterForm | None, budget: Budget) -> dict[str, Any]:
        """The longest context that memory and model allow, and which of them ends it."""
        fits = longest_context(partial(self.total_bytes, form), budget.num_bytes)
        limit = self.target.max_positions
        if fits is None:
            return {"largest_context": None, "memory_context": None, "limited_by": "weights"}
        is_model = limit is not None and fits > limit
        return {
            "largest_context": limit if is_model else fits,
            "memory_context": fits,
            "limited_by": "model" if is_model else "memory",
        }

    def _known_total(self, form: DrafterForm | None, context_length: int) -> int | None:
        return None if form is None else self.total_bytes(form, context_length)


def _looked_up(spec: DrafterSpec, target: ModelShape) -> dict[str, Any] | None:
    """A small model's sizes; a checkpoint is better read where its mistakes are told."""
    return network_of(spec, target.name) if spec.name == SMALL_MODEL else None


_UNKNOWN: dict[str, Any] = dict.fromkeys(
    (
        *("largest_context", "memory_context", "limited_by", "tokens_lost_to_drafter"),
        *("context_bytes_per_token", "drafter_bytes_at_8192", "tokens_per_gib"),
    )
)


def longest_context(total_bytes: Callable[[int], int], budget_bytes: int) -> int | None:
    """The most tokens whose total stays within a budget, by bisection.

    Args:
        total_bytes: Total at a context length; must not fall as it grows.
        budget_bytes: Most bytes allowed, themselves included.

    Returns:
        None if not even an empty context fits.
    """
    if total_bytes(0) > budget_bytes:
        return None
    low, high = 0, 1
    while total_bytes(high) <= budget_bytes:
        if high >= _MOST_TOKENS:
            return high
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if total_bytes(middle) <= budget_bytes:
            low = middle
        else:
            high = middle
    return low
