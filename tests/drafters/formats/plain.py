"""The same networks once more, written plainly: whole sequences, no cache, one formula after the other.

Everything is computed from the tensors of the file and the configuration in it, in float64, with the
target's hidden states as transformers counts them.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import silu


def norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x / torch.sqrt(x.square().mean(-1, keepdim=True) + eps) * weight


def rope(x: Tensor, positions: Tensor, config: dict[str, Any]) -> Tensor:
    """``[T, heads, dim]`` as complex numbers, the second half being the imaginary parts."""
    parameters = config.get("rope_parameters") or config.get("rope_scaling") or {}
    theta = parameters.get("rope_theta") or config.get("rope_theta") or 10_000.0
    half = x.shape[-1] // 2
    frequencies = torch.tensor([theta ** (-index / half) for index in range(half)], dtype=torch.float64)
    if parameters.get("rope_type") == "llama3":
        frequencies = torch.tensor([_llama3(value, parameters) for value in frequencies.tolist()])
    turns = torch.polar(
        torch.ones(1, dtype=torch.float64), positions[:, None].double() * frequencies.double()
    )
    rotated = torch.complex(x[..., :half], x[..., half:]) * turns[:, None, :]
    return torch.cat([rotated.real, rotated.imag], dim=-1)


def _llama3(frequency: float, parameters: dict[str, Any]) -> float:
    length = 2 * math.pi / frequency
    old, factor = parameters["original_max_position_embeddings"], parameters["factor"]
    low, high = parameters["low_freq_factor"], parameters["high_freq_factor"]
    if length < old / high:
        return frequency
    if length > old / low:
        return frequency / factor
    share = (old / length - low) / (high - low)
    return (1 - share) * frequency / factor + share * frequency


def attention(queries: Tensor, keys: Tensor, values: Tensor, visible: Tensor) -> Tensor:
    """Head by head; ``[R, heads, dim]`` over ``[N, kv_heads, dim]``."""
    group = queries.shape[1] // keys.shape[1]
    mixed = []
    for head in range(queries.shape[1]):
        scores = queries[:, head] @ keys[:, head // group].T / math.sqrt(queries.shape[-1])
        mixed.append(scores.masked_fill(~visible, -math.inf).softmax(-1) @ values[:, head // group])
    return torch.cat(mixed, dim=-1)


class Layer:
    """Projections and MLP of one layer of the file."""

    def __init__(self, tensors: dict[str, Tensor], name: str, config: dict[str, Any]) -> None:
        self.tensors, self.name, self.config = tensors, name, config
        self.eps = config.get("rms_norm_eps", 1e-6)
        self.dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]

    def normed(self, x: Tensor, which: str) -> Tensor:
        return norm(x, self.tensors[f"{self.name}.{which}.weight"], self.eps)

    def heads(self, x: Tensor, which: str, positions: Tensor) -> Tensor:
        out = x @ self.tensors[f"{self.name}.self_attn.{which}_proj.weight"].T
        out = out + self.tensors.get(f"{self.name}.self_attn.{which}_proj.bias", 0.0)
        out = out.view(len(x), -1, self.dim)
        gain = self.tensors.get(f"{self.name}.self_attn.{which}_norm.weight")
        out = out if gain is None else norm(out, gain, self.eps)
        return out if which == "v" else rope(out, positions, self.config)

    def out(self, mixed: Tensor) -> Tensor:
        return mixed @ self.tensors[f"{self.name}.self_attn.o_proj.weight"].T

    def mlp(self, x: Tensor) -> Tensor:
        gate, up, down = (
            self.tensors[f"{self.name}.mlp.{part}_proj.weight"] for part in ("gate", "up", "down")
        )
        return (silu(x @ gate.T) * (x @ up.T)) @ down.T


def doubled(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.double() if value.is_floating_point() else value for name, value in tensors.items()}


def dflash(
    config: dict[str, Any],
    tensors: dict[str, Tensor],
    states: list[Tensor],
    tokens: Tensor,
    anchor: int,
    embedding: Tensor,
    head: Tensor,
) -> Tensor:
    """``[N, V_d]`` logits of one block whose last token stands at ``anchor``."""
    tensors = doubled(tensors)
    inner = {**config, **config.get("dflash_config", {})}
    layers = config.get("transformer_layer_config", config)
    if "aux_hidden_state_layer_ids" in config:
        rows = [states[index] for index in config["aux_hidden_state_layer_ids"]]
    else:
        rows = [states[index + 1] for index in inner["target_layer_ids"]]
    eps, size = layers["rms_norm_eps"], inner["block_size"]
    context = torch.cat(rows, dim=-1)[:anchor].double() @ tensors["fc.weight"].T
    context = norm(context, tensors["hidden_norm.weight"], eps)
    block = torch.tensor([int(tokens[anchor])] + [inner["mask_token_id"]] * (size - 1))
    x = embedding.double()[block] * inner.get("input_embedding_scale", 1.0)
    before, own = torch.arange(anchor), torch.arange(anchor, anchor + size)
    for index in range(layers["num_hidden_layers"]):
        layer = Layer(tensors, f"layers.{index}", layers)
        kinds = layers.get("layer_types")
        is_sliding = kinds is not None and kinds[index] == "sliding_attention"
        if "speculators_model_type" in config:
            is_causal = is_sliding and not config.get("sliding_window_non_causal", False)
        else:
            is_causal = is_sliding if inner.get("is_causal") is None else inner["is_causal"]
        gap = own[:, None] - torch.cat([before, own])[None, :]
        visible = torch.ones_like(gap, dtype=torch.bool)
        if is_causal:
            visible &= gap >= 0
        if is_sliding:
            visible &= (gap < layers["sliding_window"]) & (-gap < layers["sliding_window"])
        rows_in = layer.normed(x, "input_layernorm")
        keys, values = (
            torch.cat([layer.heads(context, which, before), layer.heads(rows_in, which, own)])
            for which in "kv"
        )
        x = x + layer.out(attention(layer.heads(rows_in, "q", own), keys, values, visible))
        x = x + layer.mlp(layer.normed(x, "post_attention_layernorm"))
    first = 0 if config.get("sample_from_anchor") else 1
    logits = norm(x, tensors["norm.weight"], eps)[first:] @ tensors.get("lm_head.weight", head.double()).T
    logits = logits * inner.get("output_multiplier", 1.0)
    cap = inner.get("final_logit_softcapping")
    return logits if cap is None else torch.tanh(logits / cap) * cap


def eagle(
    config: dict[str, Any],
    tensors: dict[str, Tensor],
    states: list[Tensor],
    tokens: Tensor,
    anchor: int,
    num_steps: int,
    embedding: Tensor,
    head: Tensor,
) -> Tensor:
    """``[num_steps, V_d]`` logits after the tokens at ``anchor``, ``anchor + 1``, ... of the text.

    Verified pairs come from the target's states before the anchor; later ones from the network's own
    output. Everything before is computed anew at every step.
    """
    tensors = doubled(tensors)
    layers = config.get("transformer_layer_config", config)
    is_third = "draft_vocab_size" in config
    eps = layers.get("rms_norm_eps", 1e-6)
    layer = Layer(tensors, "midlayer" if "midlayer.mlp.up_proj.weight" in tensors else "layers.0", layers)
    embedding = tensors.get("embed_tokens.weight", embedding.double())
    if is_third:
        nested = config.get("eagle_config", {}).get("eagle_aux_hidden_state_layer_ids")
        num_layers = len(states) - 1
        entering = (
            [index + 1 for index in nested] if nested else config.get("eagle_aux_hidden_state_layer_ids")
        )
        entering = entering or [2, num_layers // 2, num_layers - 3]
        rows = [states[index].double() for index in entering]
        if config.get("fc_norm"):
            rows = [norm(row, tensors[f"fc_norm.{index}.weight"], eps) for index, row in enumerate(rows)]
        joined = torch.cat(rows, dim=-1)
        if config.get("norm_before_fc"):
            joined = norm(joined, tensors["input_norm.weight"], eps)
        features = joined @ tensors["fc.weight"].T
    else:
        features = states[-1].double()
    features = features[:anchor]
    logits = []
    for step in range(num_steps):
        # The pair of row t is features t and token t + 1; rows from the anchor on are the drafter's own.
        following = embedding[tokens[1 : anchor + step + 1]]
        positions = torch.arange(len(following))
        if is_third:
            normed = layer.normed(features, "hidden_norm")
            pairs = torch.cat([layer.normed(following, "input_layernorm"), normed], dim=-1)
            stream = normed if config.get("norm_before_residual") else features
        else:
            pairs = torch.cat([following, features], dim=-1) @ tensors["fc.weight"].T + tensors.get(
                "fc.bias", 0.0
            )
            stream = pairs
        visible = torch.ones(len(pairs), len(pairs), dtype=torch.bool).tril()
        keys, values = layer.heads(pairs, "k", positions), layer.heads(pairs, "v", positions)
        hidden = stream + layer.out(attention(layer.heads(pairs, "q", positions), keys, values, visible))
        hidden = hidden + layer.mlp(layer.normed(hidden, "post_attention_layernorm"))
        last = hidden[-1:]
        if is_third:
            normed = norm(last, tensors["norm.weight"], eps)
            logits.append(normed[0] @ tensors["lm_head.weight"].T)
            last = normed if config.get("norm_output") else last
        else:
            logits.append(last[0] @ head.double().T)
        features = torch.cat([features, last])
    return torch.stack(logits)


def medusa(tensors: dict[str, Tensor], states: list[Tensor], anchor: int, num_heads: int) -> Tensor:
    """``[num_heads, V]`` from the normed state of the row before the anchor."""
    tensors = doubled(tensors)
    x = states[-1][anchor - 1].double()
    logits = []
    for index in range(num_heads):
        mapped = x @ tensors[f"{index}.0.linear.weight"].T + tensors[f"{index}.0.linear.bias"]
        logits.append((x + silu(mapped)) @ tensors[f"{index}.1.weight"].T)
    return torch.stack(logits)
