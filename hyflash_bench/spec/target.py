"""Which target to load, and how."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from hyflash_bench.spec.base import Spec

__all__ = ["TargetSpec"]


class TargetSpec(Spec):
    """A target as a user asks for it; resolved by :mod:`hyflash_bench.targets`."""

    target: str = Field(
        "smollm2-135m",
        min_length=1,
        description="Preset, hub id (org/name[@revision]), local folder or GGUF file.",
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "float32", description="Precision of weights and KV cache; auto keeps the checkpoint's."
    )
    device: str = Field("cpu", pattern=r"^(cpu|mps|cuda(:\d{1,2})?)$", description="cpu, cuda[:N] or mps.")
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
