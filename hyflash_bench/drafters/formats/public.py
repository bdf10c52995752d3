"""From the files of a public checkpoint to a network, checked against the target."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from hyflash_bench.drafters.base import LoadContext
from hyflash_bench.drafters.formats.files import MEND, Layout, Tensors, fill, read_tensors
from hyflash_bench.drafters.formats.layouts import dflash_layout, eagle_layout, head_parts
from hyflash_bench.drafters.formats.vocabulary import read_draft_ids
from hyflash_bench.drafters.networks.dflash import DFlashNetwork
from hyflash_bench.drafters.networks.public import PublicNetwork
from hyflash_bench.drafters.networks.public_eagle import FirstEagle, ThirdEagle
from hyflash_bench.drafters.networks.public_medusa import PublicMedusa
from hyflash_bench.errors import DrafterError
from hyflash_bench.spec.formats.dflash import read_dflash
from hyflash_bench.spec.formats.eagle import read_eagle, read_eagle3
from hyflash_bench.spec.formats.layer import LayerSizes, PublicConfig
from hyflash_bench.spec.formats.medusa import HEADS_STEM, PublicMedusaConfig, count_heads
from hyflash_bench.spec.formats.recognise import CONFIG_FILE, Recognised

__all__ = ["load_public"]

_N = TypeVar("_N", bound=PublicNetwork)


def load_public(folder: Path, found: Recognised, context: LoadContext) -> PublicNetwork:
    """Read a checkpoint that others wrote.

    Args:
        folder: Holds it.
        found: What it was recognised as.
        context: The loaded target, whose embedding and head are lent.

    Returns:
        In the target's precision, on its device, not to be trained.

    Raises:
        DrafterError: Damaged, incomplete, with tensors that nobody knows, or made for another target.
    """
    load = {"dflash": _dflash, "eagle": _eagle, "eagle3": _eagle3, "medusa": _medusa}[found.format]
    network = load(folder, found.config, context)
    network.to(device=context.device, dtype=context.dtype)
    network.attach(context.model)
    return network.requires_grad_(False).eval()


def _dflash(folder: Path, raw: Mapping[str, Any], context: LoadContext) -> PublicNetwork:
    config = read_dflash(raw, str(folder / CONFIG_FILE))
    _check(folder, config, context, config.taps)
    if config.num_target_layers not in (None, context.info.num_layers):
        _other_target(folder, "num_target_layers", config.num_target_layers, context.info.num_layers)
    rows = context.model.get_input_embeddings().weight.shape[0]
    if config.mask_token_id >= rows:
        raise DrafterError(
            f"{folder / CONFIG_FILE}: mask_token_id is {config.mask_token_id}; the target's embedding has "
            f"ids 0 to {rows - 1}. Give a checkpoint that was made for this target."
        )
    with torch.device("meta"):
        network = DFlashNetwork(config)
    tensors = read_tensors(folder)
    _drop_what_is_lent(network, tensors)
    return _filled(network, dflash_layout(network, config.target, config.num_layers), tensors)


def _eagle3(folder: Path, raw: Mapping[str, Any], context: LoadContext) -> PublicNetwork:
    config = read_eagle3(raw, str(folder / CONFIG_FILE), context.info.num_layers)
    _check(folder, config, context, config.taps)
    with torch.device("meta"):
        network = ThirdEagle(config)
    tensors = read_tensors(folder)
    layer = "layers.0" if any(name.startswith("layers.") for name in tensors.names) else "midlayer"
    _drop_what_is_lent(network, tensors)
    return _filled(network, eagle_layout(network, config.target, layer), tensors)


def _eagle(folder: Path, raw: Mapping[str, Any], context: LoadContext) -> PublicNetwork:
    config = read_eagle(raw, str(folder / CONFIG_FILE))
    _check(folder, config, context, ())
    with torch.device("meta"):
        network = FirstEagle(config)
    tensors = read_tensors(folder)
    _drop_what_is_lent(network, tensors)
    return _filled(network, eagle_layout(network, config.target, "layers.0"), tensors)


def _medusa(folder: Path, raw: Mapping[str, Any], context: LoadContext) -> PublicNetwork:
    tensors = read_tensors(folder, stem=HEADS_STEM)
    num_heads, num_layers = count_heads(tensors.names, raw, str(tensors.where))
    info = context.info
    config = PublicMedusaConfig(
        target=LayerSizes(  # heads have no layers; the state is of the target's width
            hidden_size=info.hidden_size,
            intermediate_size=1,
            num_heads=1,
            num_kv_heads=1,
            head_dim=2,
            norm_eps=1.0,
            rope={},
            max_positions=info.max_positions,
        ),
        target_hidden_size=info.hidden_size,
        vocab_size=info.vocab_size,
        draft_vocab_size=info.vocab_size,
        num_slots=num_heads,
        hidden_layers=num_layers,
    )
    with torch.device("meta"):
        network = PublicMedusa(config)
    names = head_parts(config)
    tensors.require(name for parts in names.values() for name in parts)
    size = info.hidden_size
    shapes = {"weight": (size, size), "bias": (size,), "matrices": (info.vocab_size, size)}
    state = {
        parameter: _stacked([tensors.take(name, shapes[parameter]) for name in parts]).reshape(
            network.get_parameter(parameter).shape
        )
        for parameter, parts in names.items()
    }
    tensors.finish([name for parts in names.values() for name in parts])
    network.load_state_dict(state, strict=False, assign=True)
    network.head.draft_ids = torch.arange(info.vocab_size)
    return network


def _stacked(tensors: list[Tensor]) -> Tensor:
    return torch.stack(tensors) if tensors else torch.empty(0)


def _drop_what_is_lent(network: Any, tensors: Tensors) -> None:
    """A checkpoint may leave the embedding to the target, and the head if it has the whole vocabulary."""
    config: PublicConfig = network.config
    if config.target.hidden_size != config.target_hidden_size:
        return  # what the target could lend is of another width
    if "embed_tokens.weight" not in tensors:
        network.embedding = None
    if "lm_head.weight" not in tensors and config.draft_vocab_size == config.vocab_size:
        network.head.rows = None


def _filled(network: _N, layout: Layout, tensors: Tensors) -> _N:
    config = network.config
    known = {name for parts in layout.values() for name, _ in parts} | {"d2t", "t2d"}
    tensors.require(known - {"d2t", "t2d"})
    network.head.draft_ids = read_draft_ids(tensors, config.draft_vocab_size, config.vocab_size)
    tensors.drop(r"(.*\.)?rotary_emb\.inv_freq|verifier_(norm|lm_head)\.weight")
    fill(network, layout, tensors)
    tensors.finish(known)
    return network


def _check(folder: Path, config: PublicConfig, context: LoadContext, taps: tuple[int, ...]) -> None:
    info = context.info
    if config.vocab_size != info.vocab_size:
        _other_target(folder, "vocab_size", config.vocab_size, info.vocab_size)
    if config.target_hidden_size != info.hidden_size:
        _other_target(folder, "hidden_size", config.target_hidden_size, info.hidden_size)
    if config.draft_vocab_size > config.vocab_size:
        raise DrafterError(
            f"{folder / CONFIG_FILE}: draft_vocab_size {config.draft_vocab_size} exceeds "
            f"vocab_size {config.vocab_size}. {MEND}"
        )
    outside = [layer for layer in taps if not 0 <= layer < info.num_layers]
    if outside or len(set(taps)) != len(taps):
        raise DrafterError(
            f"{folder / CONFIG_FILE}: the layers read are {list(taps)} (counted from 0 by their output); "
            f"they must differ and lie in 0..{info.num_layers - 1}. "
            "Give a checkpoint that was made for this target."
        )


def _other_target(folder: Path, field: str, own: Any, given: Any) -> None:
    raise DrafterError(
        f"{folder} was made for another target: its {field} is {own}, this target's is {given}. "
        "Use that target, or give a checkpoint that was made for this one."
    )
