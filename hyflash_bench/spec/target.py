"""Which target to load, and how."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from hyflash_bench.footprint import KVChoice
from hyflash_bench.spec.base import Spec

__all__ = ["BACKEND", "FAMILIES", "WRAPPERS", "TargetSpec"]

BACKEND = r"^(cpu|mps|cuda(:\d{1,2})?)$"
"""What torch computes on; a device, here, is a profile of what people carry about."""

FAMILIES = (
    "gemma",
    "gemma2",
    "gemma3_text",
    "llama",
    "ministral",
    "mistral",
    "phi3",
    "qwen2",
    "qwen3",
    "smollm3",
)
"""``model_type`` of the configurations that can be run."""

WRAPPERS = ("gemma3", "llava", "mistral3")
"""Multimodal types whose text part, one of the families, reads text as it would on its own."""


class TargetSpec(Spec):
    """A target as a user asks for it; resolved by :mod:`hyflash_bench.targets`."""

    target: str = Field(
        "smollm2-135m",
        min_length=1,
        description="Preset, hub id (org/name[@revision]), local folder or GGUF file.",
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "float32", description="Precision of weights and arithmetic; auto keeps the checkpoint's."
    )
    kv_dtype: KVChoice = Field(
        "auto",
        description="Precision of the KV cache; auto is that of the weights, int8 has a scale per vector.",
    )
    backend: str = Field("cpu", pattern=BACKEND, description="What torch computes on: cpu, cuda[:N] or mps.")
    attention: Literal["auto", "grouped", "sdpa"] = Field(
        "auto", description="Attention kernel; auto picks the fastest one for the pass."
    )
    trust_remote_code: bool = Field(
        False,
        description="Run code shipped with the model. A hub id needs a pinned commit; a local folder "
        "runs as it is, and the hash of its code is recorded.",
    )
    extrapolate: bool = Field(
        False, description="Allow contexts past the target's own limit; results are labelled."
    )
    num_threads: int | None = Field(
        None, ge=1, le=1024, description="CPU threads; null leaves torch's default."
    )

    @model_validator(mode="before")
    @classmethod
    def _point_to_backend(cls, values: Any) -> Any:
        if isinstance(values, dict) and "device" in values:
            raise ValueError(
                "what torch computes on is called backend (backend: cuda, --backend cuda); a device is a "
                "profile, as listed by: hyflash-bench ls devices"
            )
        return values
