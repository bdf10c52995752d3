"""EAGLE: configurations of EAGLE-1 and EAGLE-2 (2401.15077, 2406.16858) and of EAGLE-3 (2503.01840).

EAGLE-3 reads three layers of the target. Its authors name the layer that a hidden state enters, as
speculators does, so their 2 is the output of layer 1. Exports with a nested ``eagle_config`` name the
layer that it leaves, as servers read them.
"""

from __future__ import annotations

from collections.abc import Mapping
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

__all__ = ["PublicEagleConfig", "default_entering", "read_eagle", "read_eagle3"]

_LONGEST_CHAIN = {"eagle": 5, "eagle3": 7}
"""Where nothing is said: EAGLE-3 was trained with 7 steps of its own."""


class PublicEagleConfig(PublicConfig):
    """One decoder layer that goes on from its own output."""

    generation: Literal["eagle", "eagle3"]
    taps: tuple[int, ...] = Field((), description="Layers read; none in EAGLE-1, which reads the last state.")
    fusion_bias: bool = False
    norm_before_residual: bool = Field(False, description="The residual stream starts from normed features.")
    norm_before_fc: bool = Field(False, description="One norm over all features read.")
    fc_norm: bool = Field(False, description="A norm for each of them.")
    norm_output: bool = Field(False, description="Goes on from the normed output.")

    @property
    def last_hidden(self) -> bool:
        """Whether the target's last hidden state is read."""
        return self.generation == "eagle"


def default_entering(num_target_layers: int) -> tuple[int, int, int]:
    """Layers whose input EAGLE-3 reads where nothing is said."""
    return 2, num_target_layers // 2, num_target_layers - 3


def read_eagle3(raw: Mapping[str, Any], where: str, num_target_layers: int) -> PublicEagleConfig:
    """Read the layout of SafeAILab and SpecForge, or of speculators.

    Args:
        raw: The configuration.
        where: What it is, for messages.
        num_target_layers: Of the target, for the layers that are read by default.

    Raises:
        DrafterError: With the key, what it says and what is allowed.
    """
    layers = raw
    if "speculators_model_type" in raw:
        layers = raw.get("transformer_layer_config")  # type: ignore[assignment]
        if not isinstance(layers, Mapping):
            refuse(where, "transformer_layer_config", layers, "an object of keys")
    only(layers, where, num_hidden_layers=(1,))
    only(raw, where, parallel_drafting=(False,))
    nested = raw.get("eagle_config")
    inner = nested if isinstance(nested, Mapping) else {}
    only(inner, where, use_aux_hidden_state=(True,))
    told = {**raw, **inner}
    sizes = layer_sizes(layers, where, qk_norm=layers.get("model_type") == "qwen3" and layers is not raw)
    vocab_size = whole(layers, "vocab_size", where)
    return parse(
        PublicEagleConfig,
        {
            "generation": "eagle3",
            "target": sizes,
            "target_hidden_size": raw.get("target_hidden_size") or sizes.hidden_size,
            "vocab_size": vocab_size,
            "draft_vocab_size": whole(raw, "draft_vocab_size", where, vocab_size),
            "num_slots": _chain(raw, "eagle3"),
            "taps": _taps(raw, inner, where, num_target_layers),
            **{
                key: bool(told.get(key, False))
                for key in ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output")
            },
        },
        where,
    )


def read_eagle(raw: Mapping[str, Any], where: str) -> PublicEagleConfig:
    """Read EAGLE-1's, which EAGLE-2 shares.

    Raises:
        DrafterError: With the key, what it says and what is allowed.
    """
    only(raw, where, num_hidden_layers=(1,))
    sizes = layer_sizes(raw, where, qk_norm=False)
    vocab_size = whole(raw, "vocab_size", where)
    return parse(
        PublicEagleConfig,
        {
            "generation": "eagle",
            "target": sizes,
            "target_hidden_size": sizes.hidden_size,
            "vocab_size": vocab_size,
            "draft_vocab_size": vocab_size,
            "num_slots": _chain(raw, "eagle"),
            "fusion_bias": bool(raw.get("bias", True)),
        },
        where,
    )


def _taps(
    raw: Mapping[str, Any], inner: Mapping[str, Any], where: str, num_target_layers: int
) -> tuple[int, ...]:
    key = "eagle_aux_hidden_state_layer_ids"
    if inner.get(key) is not None:
        return whole_list(inner[key], f"eagle_config.{key}", where)
    entering = raw.get(key)
    ids = default_entering(num_target_layers) if entering is None else whole_list(entering, key, where)
    return tuple(index - 1 for index in ids)


def _chain(raw: Mapping[str, Any], generation: str) -> int:
    """What speculators' proposal methods say, or what is usual."""
    told = raw.get("speculators_config")
    methods = told.get("proposal_methods") if isinstance(told, Mapping) else None
    for method in methods if isinstance(methods, list) else []:
        if isinstance(method, Mapping) and isinstance(method.get("speculative_tokens"), int):
            return int(method["speculative_tokens"])
    return _LONGEST_CHAIN[generation]
