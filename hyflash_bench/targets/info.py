"""Facts of a loaded target, as they go into records."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from hyflash_bench.footprint import KVDtype

__all__ = ["Fingerprint", "SourceKind", "TargetInfo"]

SourceKind = Literal["preset", "hub", "folder", "gguf"]


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What makes two targets the same one.

    Attributes:
        weights: SHA-256 over the weight files, or the hub's commit.
        tokenizer: SHA-256 of the serialised tokenizer.
        chat_template: SHA-256 of the chat template; None without one.
    """

    weights: str
    tokenizer: str
    chat_template: str | None


@dataclass(frozen=True, slots=True)
class TargetInfo:
    """Facts of a loaded target; every field can be written as JSON.

    Attributes:
        model: As asked for.
        name: Short, fit for tables and file names.
        source: Where it came from.
        revision: Commit of the hub; hash of the file a preset or GGUF came from; of a folder whose
            own code was run, hash of that code; or None.
        dtype: Of the weights, as in ``float32``.
        kv_dtype: Of the KV cache.
        backend: As in ``cpu`` or ``cuda:0``.
        attention: Kernel in use for passes of a few rows.
        num_layers: Decoder layers.
        hidden_size: Width of the residual stream.
        vocab_size: Rows of the head.
        num_attention_heads: Query heads.
        num_kv_heads: Key and value heads.
        head_dim: Size of a head.
        max_positions: Longest context that the target was made for.
        num_parameters: Weights, those shared between embedding and head counted once.
        weight_bytes: Bytes of the same.
        kv_bytes_per_token: Bytes that one token takes in the KV cache, scales included.
        eos_token_ids: Tokens that end a reply.
        fingerprint: Identifies weights, tokenizer and chat template.
        trust_remote_code: Code shipped with the model was run.
        extrapolate: Contexts beyond ``max_positions`` were allowed.
        licence: SPDX name where known.
        intermediate_size: Width of the MLP; None in runs of earlier versions.
        settings: SHA-256 over the files beside the weights: configuration, tokenizer, code; None for
            the hub, whose commit says it.
    """

    model: str
    name: str
    source: SourceKind
    revision: str | None
    dtype: str
    kv_dtype: KVDtype
    backend: str
    attention: str
    num_layers: int
    hidden_size: int
    vocab_size: int
    num_attention_heads: int
    num_kv_heads: int
    head_dim: int
    max_positions: int
    num_parameters: int
    weight_bytes: int
    kv_bytes_per_token: int
    eos_token_ids: tuple[int, ...]
    fingerprint: Fingerprint
    trust_remote_code: bool
    extrapolate: bool
    licence: str | None
    settings: str | None = None
    intermediate_size: int | None = None

    def to_json(self) -> dict[str, Any]:
        """The same as plain JSON values."""
        return asdict(self) | {"eos_token_ids": list(self.eos_token_ids)}
