"""What one training command asks for: :class:`TrainingPlan`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from hyflash_bench.spec.base import MAX_COUNT, MAX_SEED, Spec
from hyflash_bench.spec.drafter import DrafterSpec, split_outside_brackets
from hyflash_bench.spec.target import BACKEND, TargetSpec

__all__ = ["SHIPPED_ROSTER", "TrainingPlan", "split_drafters"]

SHIPPED_ROSTER = (
    "hyflash:num_layers=1",
    "hyflash:num_layers=3",
    "full-context:num_layers=1",
    "full-context:num_layers=3,intermediate_size=768",
    "window:num_layers=1",
    "medusa",
    "eagle",
)
"""The drafters that are shipped as baselines; trained when none is named. Three layers of the default
target's own width would make files of more than 20 MiB."""

MAY_CHANGE = frozenset({"steps", "max_minutes", "save_every_s", "evaluate_every", "backend", "num_threads"})
"""What a resumed training may be asked for anew: where and how long, not what."""


def split_drafters(texts: Iterable[str]) -> list[str]:
    """Take apart ``hyflash,full-context:num_layers=1,window_size=32,medusa``.

    A piece with an option but no colon before it belongs to the drafter before it.
    """
    found: list[str] = []
    for piece in (part.strip() for text in texts for part in split_outside_brackets(text)):
        is_option = "=" in piece and ":" not in piece.partition("=")[0]
        if is_option and found:
            found[-1] += ("," if ":" in found[-1] else ":") + piece
        elif piece:
            found.append(piece)
    return found


def _drafter(value: Any) -> Any:
    return DrafterSpec.from_text(value) if isinstance(value, str) else value


_WINDOW, _CHUNK = 64, 32
"""Of block drafters that do not say otherwise; a test holds them to the networks' own."""


def _deepest_window(values: Mapping[str, Any]) -> int:
    """The largest W + C of the drafters with a memory; what it is by default if none has one."""
    depths = []
    for drafter in values.get("drafters", ()):
        options = drafter.options
        window = {"hyflash": options.get("window", _WINDOW), "memory-only": 0}.get(drafter.name)
        chunk = options.get("chunk", _CHUNK)
        if isinstance(window, int) and isinstance(chunk, int):
            depths.append(window + chunk)
    return max(depths, default=_WINDOW + _CHUNK)


class TrainingPlan(Spec):
    """Drafters trained on one stream: the same names as flags, as keywords and as YAML keys."""

    corpus: str = Field(min_length=1, description="Folder made by: hyflash-bench corpus build.")
    target: str = Field("smollm2-135m", min_length=1, description="Preset, hub id, folder or GGUF file.")
    trust_remote_code: bool = Field(False, description="Run code shipped with the model.")
    backend: str = Field("cpu", pattern=BACKEND, description="What torch computes on: cpu, cuda[:N] or mps.")
    num_threads: int | None = Field(None, ge=1, le=1024, description="CPU threads; null for torch's default.")
    feature_dtype: Literal["auto", "float32", "bfloat16"] = Field(
        "auto", description="Precision of the target's pass over the corpus; auto: bfloat16 where it is fast."
    )
    drafters: tuple[Annotated[DrafterSpec, BeforeValidator(_drafter)], ...] = Field(
        tuple(DrafterSpec.from_text(text) for text in SHIPPED_ROSTER),
        min_length=1,
        description="name or name:key=value,key=value; options are those of the network, and label, a name "
        "of one's own.",
    )
    taps: tuple[int, ...] | None = Field(
        None, description="Layers of the target that drafters read; null for three, spread out."
    )
    match: Literal["full-context", "none"] = Field(
        "full-context",
        description="Choose feed-forward widths so that block drafters have as many parameters as "
        "full-context of the same depth; none leaves them.",
    )
    draft_vocab_size: int = Field(8192, ge=2, le=MAX_COUNT, description="Tokens that can be proposed.")
    init_from: str | None = Field(
        None,
        description="Folder of exported drafters to start from, by label, or of one that all start from; "
        "null to start anew.",
    )
    init_without: tuple[str, ...] = Field(
        (), description="Parts of these, by name, that are left behind and start as in a new training."
    )
    steps: int = Field(1500, ge=1, le=MAX_COUNT, description="Gradient steps of each drafter in all.")
    max_minutes: float | None = Field(
        None, gt=0, le=1e6, description="Save and stop after so long; the same command goes on."
    )
    segment_tokens: int = Field(1024, ge=8, le=MAX_COUNT, description="Tokens of a batch of short documents.")
    max_segment_tokens: int = Field(
        4096, ge=8, le=MAX_COUNT, description="Most tokens of a long document taken at once."
    )
    long_share: float = Field(
        0.5, ge=0, le=1, description="How often a document longer than segment_tokens is taken whole."
    )
    num_anchors: int = Field(96, ge=1, le=65_536, description="Anchors of a batch.")
    memory_rows: int = Field(
        default_factory=_deepest_window,
        ge=0,
        le=MAX_COUNT,
        description="Rows before an anchor from which it reads a memory; by default the largest W + C of "
        "the drafters that have one.",
    )
    min_context_share: float = Field(
        0.7, ge=0, le=1, description="Share of anchors with memory_rows before them, where possible."
    )
    roles: tuple[int, ...] = Field(
        (2, 3, 4), min_length=1, description="Roles whose tokens are learnt: 2, 3 replies, 4 natural text."
    )
    repeat_share: float = Field(
        0.25,
        ge=0,
        le=1,
        description="Share of anchors kept, in training and evaluation, whose next token ends a passage that "
        "repeats one of its document.",
    )
    learning_rate: float = Field(3e-4, gt=0, le=1, description="At its highest.")
    warmup_share: float = Field(0.03, ge=0, le=1, description="Share of the steps in which it rises.")
    decay: Literal["wsd", "cosine", "linear"] = Field(
        "wsd", description="After the rise: constant with a linear end (wsd), or falling all the way."
    )
    decay_share: float = Field(
        0.25, gt=0, le=1, description="With wsd: share of the steps in which it falls."
    )
    weight_decay: float = Field(0.01, ge=0, le=1, description="Of matrices; norms and biases have none.")
    clip: float = Field(1.0, gt=0, le=1e6, description="Largest norm of a drafter's gradient.")
    slot_decay: float = Field(
        4.0, gt=0, le=1e6, description="Slot j weighs exp(-j / slot_decay), the first being j = 0."
    )
    token_share: float = Field(
        0.0,
        ge=0,
        le=1,
        description="Share of the loss on the text's own tokens instead of the target's view.",
    )
    ema: float | None = Field(
        None, gt=0, lt=1, description="Decay of a moving average of weights, which is then what is exported."
    )
    precision: Literal["auto", "float32", "bfloat16"] = Field(
        "auto", description="Of the drafters' passes in training; auto: bfloat16 where it is fast."
    )
    held_out_share: float = Field(0.05, gt=0, lt=1, description="Share of texts kept for evaluation.")
    evaluation_anchors: int = Field(1024, ge=1, le=MAX_COUNT, description="Anchors of an evaluation.")
    evaluate_every: int = Field(250, ge=1, le=MAX_COUNT, description="Steps between evaluations.")
    save_every_s: float = Field(180.0, gt=0, le=1e6, description="Seconds between saves.")
    seed: int = Field(0, ge=0, le=MAX_SEED, description="Seed of every random choice.")

    @model_validator(mode="before")
    @classmethod
    def _read_older(cls, values: Any) -> Any:
        """Recipes of trained drafters call the backend device."""
        if isinstance(values, dict) and "device" in values and "backend" not in values:
            return {"backend" if key == "device" else key: value for key, value in values.items()}
        return values

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.max_segment_tokens < self.segment_tokens:
            raise ValueError(
                f"max_segment_tokens {self.max_segment_tokens} is below segment_tokens {self.segment_tokens}"
            )
        if self.init_without and self.init_from is None:
            raise ValueError("init_without says what of a checkpoint is left behind; name one with init_from")
        if not set(self.roles) <= set(range(5)):
            raise ValueError("roles are numbers from 0 to 4")
        return self

    @property
    def target_spec(self) -> TargetSpec:
        """Which target to load; the precision is resolved by the trainer."""
        return TargetSpec(
            target=self.target,
            backend=self.backend,
            num_threads=self.num_threads,
            trust_remote_code=self.trust_remote_code,
            dtype="float32" if self.feature_dtype == "auto" else self.feature_dtype,
        )

    def to_mapping(self) -> dict[str, Any]:
        """The plan as YAML would hold it; :meth:`parse` reads it back."""
        values = self.model_dump(mode="json")
        values["drafters"] = [drafter.label for drafter in self.drafters]
        return values

    def differences(self, other: Self) -> dict[str, tuple[Any, Any]]:
        """What another plan asks otherwise, apart from what a resumed training may change."""
        mine, theirs = self.to_mapping(), other.to_mapping()
        return {
            key: (mine[key], theirs[key])
            for key in mine
            if key not in MAY_CHANGE and mine[key] != theirs[key]
        }

    @classmethod
    def parse(cls, values: Mapping[str, Any], where: str = "training plan") -> Self:
        """See :meth:`Spec.parse`."""
        return super().parse(values, where)
