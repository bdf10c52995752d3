"""What all families share: sizes of decoder layers, read from a configuration of transformers' form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, TypeVar

from pydantic import Field

from hyflash_bench.errors import DrafterError, HyFlashError
from hyflash_bench.spec.base import Spec

__all__ = ["LayerSizes", "PublicConfig", "layer_sizes", "only", "parse", "refuse", "whole", "whole_list"]

ROPE_KINDS = ("default", "linear", "llama3", "yarn")
"""Those whose frequencies do not depend on the length of the text."""

_S = TypeVar("_S", bound=Spec)


class LayerSizes(Spec):
    """A decoder layer of Llama's or Qwen's form."""

    hidden_size: int = Field(ge=1)
    intermediate_size: int = Field(ge=1)
    num_heads: int = Field(ge=1)
    num_kv_heads: int = Field(ge=1)
    head_dim: int = Field(ge=2)
    norm_eps: float = Field(gt=0)
    rope: dict[str, Any] = Field(description="As transformers' rope_parameters: rope_type, rope_theta, ...")
    max_positions: int = Field(ge=1, description="That the rotation was made for.")
    qkv_bias: bool = False
    output_bias: bool = False
    qk_norm: bool = Field(False, description="Whether queries and keys are normed by head.")


class PublicConfig(Spec):
    """What every family's configuration comes to.

    Attributes:
        target: Sizes of the drafter's own layers, where networks trained here take the target's.
    """

    target: LayerSizes
    target_hidden_size: int = Field(ge=1, description="Width of the features read.")
    vocab_size: int = Field(ge=1, description="Of the target.")
    draft_vocab_size: int = Field(ge=1, description="Tokens that can be proposed.")
    num_slots: int = Field(ge=1, le=64, description="Tokens proposed in one pass or chain.")

    @property
    def copy_window(self) -> int:
        """Rows that tokens are copied from: only networks trained here copy."""
        return 0

    @property
    def copy_size(self) -> int:
        """Size of the keys of copying; there are none."""
        return 0

    @property
    def recall_rows(self) -> int:
        """Older rows that tokens are copied from; there are none."""
        return 0


def layer_sizes(
    raw: Mapping[str, Any], where: str, *, qk_norm: bool, default_bias: bool = False
) -> LayerSizes:
    """Sizes of a layer.

    Args:
        raw: A configuration in transformers' form.
        where: What it is, for messages.
        qk_norm: Whether layers of this family norm queries and keys.
        default_bias: Whether queries, keys and values have a bias where nothing is said.

    Raises:
        DrafterError: Sizes that are missing or do not go together, or what cannot be run.
    """
    if (act := raw.get("hidden_act", "silu")) not in ("silu", "swish"):
        refuse(where, "hidden_act", act, "silu")
    if raw.get("partial_rotary_factor") not in (None, 1, 1.0):
        refuse(where, "partial_rotary_factor", raw["partial_rotary_factor"], "1.0")
    if raw.get("mlp_bias"):
        refuse(where, "mlp_bias", raw["mlp_bias"], "false")
    hidden, heads = whole(raw, "hidden_size", where), whole(raw, "num_attention_heads", where)
    kv_heads = whole(raw, "num_key_value_heads", where, heads)
    if heads % kv_heads:
        refuse(where, "num_key_value_heads", kv_heads, f"a divisor of num_attention_heads {heads}")
    if raw.get("head_dim") is None and hidden % heads:
        refuse(
            where, "num_attention_heads", heads, f"a divisor of hidden_size {hidden}, or head_dim beside it"
        )
    attention_bias = bool(raw.get("attention_bias", False))
    return parse(
        LayerSizes,
        {
            "hidden_size": hidden,
            "intermediate_size": whole(raw, "intermediate_size", where),
            "num_heads": heads,
            "num_kv_heads": kv_heads,
            "head_dim": whole(raw, "head_dim", where, hidden // heads),
            "norm_eps": raw.get("rms_norm_eps", 1e-6),
            "rope": _rope(raw, where),
            "max_positions": whole(raw, "max_position_embeddings", where, 2048),
            "qkv_bias": attention_bias or bool(raw.get("qkv_bias", default_bias)),
            "output_bias": attention_bias,
            "qk_norm": qk_norm,
        },
        where,
    )


def _rope(raw: Mapping[str, Any], where: str) -> dict[str, Any]:
    given = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    if not isinstance(given, Mapping):
        refuse(where, "rope_parameters", given, "an object of keys")
    nested = [part for part in given.values() if isinstance(part, Mapping)]
    parameters = dict(nested[0] if nested else given)  # a set for each type of layer; they share one here
    if any(part != nested[0] for part in nested[1:]):
        refuse(where, "rope_parameters", given, "one set for all layers")
    kind = parameters.pop("type", None)
    parameters["rope_type"] = parameters.get("rope_type") or kind or "default"
    parameters["rope_theta"] = parameters.get("rope_theta") or raw.get("rope_theta") or 10_000.0
    if parameters["rope_type"] not in ROPE_KINDS:
        refuse(where, "rope_type", parameters["rope_type"], ", ".join(ROPE_KINDS))
    return parameters


def parse(kind: type[_S], values: Mapping[str, Any], where: str) -> _S:
    """Build a configuration; a problem with it is the checkpoint's."""
    try:
        return kind.parse(values, where)
    except HyFlashError as error:
        raise DrafterError(f"{error}. Restore the file, or give another checkpoint.") from None


def whole(raw: Mapping[str, Any], key: str, where: str, default: int | None = None) -> int:
    """A whole number of a configuration."""
    value = raw.get(key)
    if value is None:
        if default is None:
            raise DrafterError(f"{where} lacks {key}. Restore the file, or give another checkpoint.")
        return default
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        refuse(where, key, value, "a whole number from 0 up")
    return int(value)


def whole_list(value: Any, key: str, where: str) -> tuple[int, ...]:
    """Layers of the target, as a configuration lists them."""
    is_list = isinstance(value, list) and value
    if not is_list or any(isinstance(item, bool) or not isinstance(item, int) for item in value):
        refuse(where, key, value, "a list of whole numbers")
    return tuple(value)


def refuse(where: str, key: str, given: Any, allowed: str) -> NoReturn:
    """A value that cannot be run.

    Raises:
        DrafterError: Always.
    """
    shown = repr(given)
    shown = shown if len(shown) <= 80 else shown[:77] + "..."
    raise DrafterError(f"{where}: {key} is {shown}; allowed is {allowed}. Give another checkpoint.")


def only(raw: Mapping[str, Any], where: str, **allowed: Sequence[Any]) -> None:
    """Refuse keys that change what a network computes, unless they have one of these values."""
    for key, values in allowed.items():
        if raw.get(key) is not None and raw[key] not in values:
            refuse(where, key, raw[key], " or ".join(map(repr, values)) or "to leave it out")
