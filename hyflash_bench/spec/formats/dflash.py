"""DFlash (2602.06036): configurations of z-lab's checkpoints and of vllm-project/speculators.

z-lab writes a Qwen3 configuration with ``dflash_config`` inside; newer ones have ``block_size`` in
there too. Its layer ids name the layer whose output is read, as ours do. speculators puts the layers
under ``transformer_layer_config`` and counts hidden states instead, the embedding first, so each of
its ids is one higher.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from hyflash_bench.spec.formats.layer import (
    PublicConfig,
    layer_sizes,
    only,
    parse,
    refuse,
    whole,
    whole_list,
)

__all__ = ["DFlashConfig", "default_taps", "read_dflash"]

_BLOCK_SIZE = 16


class DFlashConfig(PublicConfig):
    """A block drafter that writes the target's features into the cache of every layer."""

    num_layers: int = Field(ge=1)
    taps: tuple[int, ...] = Field(min_length=1, description="Layers of the target whose output is read.")
    block_size: int = Field(ge=2, le=256, description="Rows of a block, the last token's included.")
    mask_token_id: int = Field(ge=0)
    windows: tuple[int | None, ...] = Field(description="Positions that each layer sees; None for all.")
    causal: tuple[bool, ...] = Field(description="Whether rows of the block see only those before them.")
    from_anchor: bool = Field(False, description="Whether the last token's own row proposes a token too.")
    embedding_scale: float = Field(1.0, gt=0)
    logit_scale: float = Field(1.0, gt=0)
    logit_softcap: float | None = Field(None, gt=0)
    num_target_layers: int | None = None


def read_dflash(raw: Mapping[str, Any], where: str) -> DFlashConfig:
    """Read either layout.

    Raises:
        DrafterError: With the key, what it says and what is allowed.
    """
    if "speculators_model_type" in raw:
        return _read_speculators(raw, where)
    inner = raw.get("dflash_config") or {}
    if not isinstance(inner, Mapping):
        refuse(where, "dflash_config", inner, "an object of keys")
    told = {**raw, **inner}
    _refuse_variants(told, where)
    num_layers = whole(raw, "num_hidden_layers", where)
    num_target_layers = raw.get("num_target_layers")
    taps = told.get("target_layer_ids")
    if taps is None and num_target_layers:
        taps = list(default_taps(whole(raw, "num_target_layers", where), num_layers))
    windows = _windows(raw, num_layers, where)
    causal = told.get("is_causal", told.get("causal"))
    block_size = whole(told, "block_size", where, _BLOCK_SIZE)
    return _config(
        raw,
        where,
        taps=whole_list(taps, "target_layer_ids", where),
        block_size=block_size,
        mask_token_id=whole(told, "mask_token_id", where),
        windows=windows,
        causal=[window is not None if causal is None else bool(causal) for window in windows],
        draft_vocab_size=whole(told, "draft_vocab_size", where, whole(raw, "vocab_size", where)),
        num_slots=block_size - 1,
        embedding_scale=told.get("input_embedding_scale", 1.0),
        logit_scale=told.get("output_multiplier", 1.0),
        logit_softcap=told.get("final_logit_softcapping") or None,
        num_target_layers=num_target_layers,
    )


def default_taps(num_target_layers: int, num_layers: int) -> tuple[int, ...]:
    """As many layers as the drafter has, spread evenly from the second to the third from the end."""
    if num_layers == 1:
        return (num_target_layers // 2,)
    span = num_target_layers - 3 - 1
    return tuple(round(1 + span * index / (num_layers - 1)) for index in range(num_layers))


def _read_speculators(raw: Mapping[str, Any], where: str) -> DFlashConfig:
    layers = raw.get("transformer_layer_config")
    if not isinstance(layers, Mapping):
        refuse(where, "transformer_layer_config", layers, "an object of keys")
    _refuse_variants(raw, where)
    only(raw, where, shift_label=(False,))
    ids = whole_list(raw.get("aux_hidden_state_layer_ids"), "aux_hidden_state_layer_ids", where)
    windows = _windows(layers, whole(layers, "num_hidden_layers", where), where)
    from_anchor = bool(raw.get("sample_from_anchor", False))
    block_size = whole(raw, "block_size", where, 8)
    return _config(
        layers,
        where,
        taps=[index - 1 for index in ids],
        block_size=block_size,
        mask_token_id=whole(raw, "mask_token_id", where),
        windows=windows,
        causal=[window is not None and not raw.get("sliding_window_non_causal", False) for window in windows],
        draft_vocab_size=whole(raw, "draft_vocab_size", where, whole(layers, "vocab_size", where)),
        num_slots=block_size if from_anchor else block_size - 1,
        from_anchor=from_anchor,
        target_hidden_size=raw.get("target_hidden_size") or whole(layers, "hidden_size", where),
    )


def _config(layers: Mapping[str, Any], where: str, **values: Any) -> DFlashConfig:
    sizes = layer_sizes(layers, where, qk_norm=True)
    return parse(
        DFlashConfig,
        {
            "target": sizes,
            "target_hidden_size": sizes.hidden_size,
            "vocab_size": whole(layers, "vocab_size", where),
            "num_layers": whole(layers, "num_hidden_layers", where),
            **values,
        },
        where,
    )


def _windows(layers: Mapping[str, Any], num_layers: int, where: str) -> list[int | None]:
    kinds: Sequence[Literal["full_attention", "sliding_attention"]]
    kinds = layers.get("layer_types") or ["full_attention"] * num_layers
    if len(kinds) != num_layers or set(kinds) - {"full_attention", "sliding_attention"}:
        refuse(where, "layer_types", kinds, f"full_attention or sliding_attention, {num_layers} times")
    if "sliding_attention" not in kinds:
        return [None] * num_layers
    window = whole(layers, "sliding_window", where)
    if window < 1:
        refuse(where, "sliding_window", window, "1 or more")
    return [window if kind == "sliding_attention" else None for kind in kinds]


def _refuse_variants(told: Mapping[str, Any], where: str) -> None:
    """Networks that share the name and compute something else."""
    only(
        told,
        where,
        projector_type=("dflash",),
        attention_sink_bias=(False,),
        add_swa_attention_sink_bias=(False,),
        attention_value_scale=(1, 1.0),
        use_swa=(False,),
        swa_window_size=(0,),
        mask_token=(),
    )
