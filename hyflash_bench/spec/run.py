"""What one command asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from hyflash_bench.footprint import KVChoice
from hyflash_bench.spec.base import MAX_COUNT, MAX_SEED
from hyflash_bench.spec.baselines import shipped_baselines
from hyflash_bench.spec.drafter import DrafterSpec
from hyflash_bench.spec.plan import CapKind, CapPolicy
from hyflash_bench.spec.sampling import Sampling
from hyflash_bench.spec.target import TargetSpec
from hyflash_bench.spec.units import format_bytes, parse_bytes

__all__ = ["DEFAULT_DRAFTERS", "RunSpec"]

DEFAULT_DRAFTERS = ("autoregressive", "prompt-lookup", "suffix")
"""What every target can run; the baselines shipped for it come on top."""


def _default_drafters(values: Mapping[str, Any]) -> tuple[DrafterSpec, ...]:
    trained = [baseline.spec for baseline in shipped_baselines(values.get("target", ""))]
    return (*(DrafterSpec(name=name) for name in DEFAULT_DRAFTERS), *trained)


def _drafter(value: Any) -> Any:
    return DrafterSpec.from_text(value) if isinstance(value, str) else value


def _refuse_twice(what: str, names: Sequence[str]) -> None:
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"{what} {twice} is given twice; keep one")


def _size(value: Any) -> Any:
    if isinstance(value, str):
        return parse_bytes(value)
    if isinstance(value, int) and not isinstance(value, bool):
        raise ValueError("a memory cap needs a unit, for example 512MiB")
    return value


class RunSpec(TargetSpec):
    """A benchmark run: the same names as flags, as keywords and as YAML keys.

    Null means "as the suite says".
    """

    suites: tuple[str, ...] = Field(("quick",), min_length=1, description="Suite names or YAML files.")
    data: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        (), description="Files (or folders) of the data set that the suite reads; see ls suites."
    )
    skip_bad_rows: bool = Field(False, description="Leave out rows of data sets that are wrong.")
    drafters: tuple[Annotated[DrafterSpec, BeforeValidator(_drafter)], ...] = Field(
        default_factory=_default_drafters,
        min_length=1,
        description="name or name:key=value,key=value.",
    )
    memory_caps: tuple[Annotated[int, BeforeValidator(_size)], ...] = Field(
        (), description="Caps as sizes with units; the uncapped run is always there."
    )
    devices: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        (), description="Device profiles, by name or file: each a simulated cap of its usable memory."
    )
    cap_policy: CapPolicy = Field(
        "stop",
        description="At a cap: stop there, go on without the drafter (no-draft), or with a drafter that "
        "keeps a window of the context (window).",
    )
    cap_kind: CapKind = Field(
        "simulated", description="Whether the ledger decides about memory_caps or the worker is limited."
    )
    allow_simulated: bool = Field(
        False, description="Simulate caps that were to be enforced where that cannot be done."
    )
    drafter_kv_dtype: KVChoice = Field(
        "auto", description="Precision of the drafters' own keys and values, where they have any."
    )
    weight_bits: Literal[32, 16, 8, 4] = Field(
        32,
        description="Bits that the target's weights are counted with under simulated caps; 32 for as loaded.",
    )
    contexts: tuple[Annotated[int, Field(ge=1, le=MAX_COUNT)], ...] | None = Field(
        None, description="Only these context lengths (tokens)."
    )
    kinds: tuple[str, ...] | None = Field(None, description="Only these kinds of work.")
    limit: int | None = Field(
        None, ge=1, le=MAX_COUNT, description="Conversations per task, spread over kinds and context lengths."
    )
    max_new_tokens: int | None = Field(None, ge=1, le=MAX_COUNT, description="Most tokens of a reply.")
    temperature: float | None = Field(
        None, ge=0.0, le=10.0, description="One temperature instead of the suite's own list."
    )
    top_k: int | None = Field(None, ge=1, le=MAX_COUNT, description="With temperature: keep the k likeliest.")
    top_p: float | None = Field(None, gt=0.0, le=1.0, description="With temperature: nucleus mass.")
    seed: int = Field(0, ge=0, le=MAX_SEED, description="Seed of every random choice.")
    repeats: int = Field(1, ge=1, le=100, description="Timed repetitions of the live loop.")
    mode: Literal["both", "replay", "live"] = Field(
        "both", description="Score against the trace, run the real loop, or both."
    )
    draft_budget: int = Field(
        16, ge=1, le=256, description="Most tokens (tree nodes) a drafter may propose in a step."
    )
    workers: int = Field(
        1,
        ge=1,
        le=256,
        description="Processes that replay conversations side by side; more than one times nothing.",
    )
    timeout_s: float = Field(
        1800.0, gt=0.0, le=1e6, description="Longest silence of the worker before it is stopped, in seconds."
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.temperature is None and (self.top_k is not None or self.top_p is not None):
            raise ValueError("top_k and top_p need a temperature")
        _refuse_twice("suite", self.suites)
        _refuse_twice("drafter", [drafter.label for drafter in self.drafters])
        _refuse_twice("memory cap", [f"{format_bytes(size)} ({size:,} bytes)" for size in self.memory_caps])
        _refuse_twice("device", self.devices)
        if self.data and len(self.suites) > 1:
            raise ValueError("data needs exactly one suite; run the suites one by one")
        if self.workers > 1 and self.mode != "replay":
            raise ValueError(
                f"{self.workers} workers slow each other, so nothing can be timed. "
                "Use mode replay, or one worker"
            )
        if self.workers > 1 and self.cap_kind == "enforced":
            raise ValueError(
                "an enforced cap needs the answers that a worker without one gave before. Use one worker"
            )
        self._check_caps()
        return self

    def _check_caps(self) -> None:
        if self.cap_kind == "enforced" and not self.memory_caps:
            raise ValueError("cap_kind enforced needs a memory cap; devices are always simulated")
        if self.cap_kind == "enforced" and self.cap_policy != "stop":
            raise ValueError(
                f"cap_policy {self.cap_policy} is simulated; a worker that reaches an enforced cap ends. "
                "Use cap_policy stop, or cap_kind simulated"
            )
        if self.cap_kind == "enforced" and self.weight_bits != 32:
            raise ValueError(
                "weight_bits are counted in simulations only; an enforced cap meets the weights as loaded"
            )
        if self.cap_policy == "window" and self.mode == "live":
            raise ValueError("cap_policy window is measured in a replay; use mode both or replay")
        for name in ("cap_policy", "weight_bits"):
            is_given = getattr(self, name) != type(self).model_fields[name].default
            if is_given and not (self.memory_caps or self.devices):
                raise ValueError(f"{name} needs a memory cap or a device")

    @property
    def target_spec(self) -> TargetSpec:
        """The part that says which target to load, and how."""
        names = TargetSpec.model_fields
        return TargetSpec(**{name: getattr(self, name) for name in names})

    @property
    def sampling(self) -> Sampling | None:
        """The sampling asked for, or None to use each suite's own list."""
        if self.temperature is None:
            return None
        return Sampling(temperature=self.temperature, top_k=self.top_k, top_p=self.top_p)

    def to_mapping(self) -> dict[str, Any]:
        """The request as YAML would hold it; :meth:`parse` reads it back."""
        values = self.model_dump(mode="json")
        values["drafters"] = [drafter.label for drafter in self.drafters]
        values["memory_caps"] = [f"{size}B" for size in self.memory_caps]
        return values

    @classmethod
    def parse(cls, values: Mapping[str, Any], where: str = "run") -> Self:
        """See :meth:`Spec.parse`."""
        return super().parse(values, where)
