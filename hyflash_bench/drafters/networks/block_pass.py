"""The pass of a block in one call of the compiled kernels."""

from __future__ import annotations

from collections.abc import Iterator
from ctypes import byref, c_void_p

import torch
from torch import Tensor

from hyflash_bench.drafters.networks.block import BlockNetwork
from hyflash_bench.drafters.networks.block_layer import BlockLayer
from hyflash_bench.drafters.networks.context_state import ContextState
from hyflash_bench.drafters.networks.native import CLayer, CMatrix, CModel, CPass, Kernels
from hyflash_bench.native.library import LANES, fits

__all__ = ["BlockPass"]


class BlockPass:
    """What :meth:`BlockNetwork.forward` makes of one anchor, up to its logits.

    Args:
        network: Whose weights stay where they are for as long as this is used; see :meth:`of`.
        state: What it keeps of the text.
    """

    def __init__(self, network: BlockNetwork, state: ContextState) -> None:
        config, target, first = network.config, network.config.target, network.layers[0]
        entry, reader = network.block_input, first.reader
        self._network, self._state = network, state
        self._vocab_size = config.draft_vocab_size
        self._model = CModel(
            layers=config.num_layers,
            slots=config.num_slots,
            width=target.hidden_size,
            heads=target.num_heads,
            kv_heads=target.num_kv_heads,
            head_dim=target.head_dim,
            inner=first.mlp.down.in_features,
            rank=config.slot_rank,
            vocab_size=self._vocab_size,
            memory_heads=config.memory_heads if reader else 0,
            key_dim=config.memory_key_dim if reader else 0,
            value_dim=config.memory_value_dim if reader else 0,
            follow=config.follow_heads,
            eps=target.norm_eps,
            found_eps=reader.norm.eps if reader else 0.0,
            theta=target.rope_theta,
            shared=_matrix(entry.shared.weight),
            narrow=_matrix(entry.narrow.weight) if entry.narrow is not None else CMatrix(),
            widen=_matrix(entry.widen) if entry.narrow is not None else CMatrix(),
            head=_matrix(network.head.rows),
            codes=entry.codes.data_ptr(),
            head_norm=network.head.norm.weight.data_ptr(),
        )
        self._layers = (CLayer * config.num_layers)(*map(_layer, network.layers))
        # Whatever becomes of the network, what these addresses point to stays.
        self._weights = [*(parameter.data for parameter in network.parameters()), network.head.rows]

    @staticmethod
    def of(network: BlockNetwork, state: ContextState) -> BlockPass | None:
        """For this network and state, if the kernels can serve them."""
        config = network.config
        sizes = [config.target.hidden_size, config.target.head_dim, config.slot_rank, config.markov_rank]
        if config.num_states:
            sizes += [config.memory_key_dim, config.memory_value_dim]
        serves = (
            all(size % LANES == 0 for size in sizes)
            and all(map(fits, _weights(network)))
            and all(parameter.dtype == torch.float32 for parameter in network.parameters())
            and state.kv.kv_dtype == "float32"
        )
        return BlockPass(network, state) if serves else None

    def logits(self, kernels: Kernels, known: Tensor, length: int) -> Tensor:
        """``[length, V_d]`` of the first slots, given what is known of the anchor ``[1, 2d]``."""
        state, config = self._state, self._network.config
        length = min(length, config.num_slots)
        first, last = state.held_rows()
        logits = torch.empty(length, self._vocab_size)
        scratch = torch.empty(kernels.draft_floats(byref(self._model), last - first))
        memories = [state.memory(index) for index in range(config.num_layers)]
        states = [None if memory is None else memory.data_ptr() for memory in memories]
        kernels.draft_block(
            byref(self._model),
            self._layers,
            byref(
                CPass(
                    first=first,
                    last=last,
                    slots=state.kv.num_slots,
                    position=state.position,
                    length=length,
                    cache=state.kv.numbers.data_ptr(),
                    states=(c_void_p * len(states))(*states),
                    known=known.data_ptr(),
                    logits=logits.data_ptr(),
                    scratch=scratch.data_ptr(),
                )
            ),
            torch.get_num_threads(),
        )
        return logits


def _layer(layer: BlockLayer) -> CLayer:
    made = CLayer(
        input_norm=layer.input_norm.weight.data_ptr(),
        mlp_norm=layer.mlp_norm.weight.data_ptr(),
        qkv=_matrix(layer.qkv.weight),
        out=_matrix(layer.out.weight),
        gate_up=_matrix(layer.mlp.gate_up.weight),
        down=_matrix(layer.mlp.down.weight),
    )
    if layer.reader is not None:
        made.ask = _matrix(layer.reader.project.weight)
        made.mix = _matrix(layer.reader.mix.weight)
        made.codes = layer.reader.slot_codes.data_ptr()
        made.found_norm = layer.reader.norm.weight.data_ptr()
    return made


def _weights(network: BlockNetwork) -> Iterator[Tensor]:
    """All that rows are multiplied with."""
    entry = network.block_input
    yield from (entry.shared.weight, network.head.rows)
    if entry.narrow is not None:
        yield from (entry.narrow.weight, entry.widen.flatten(0, 1))
    for layer in network.layers:
        yield from (layer.qkv.weight, layer.out.weight, layer.mlp.gate_up.weight, layer.mlp.down.weight)
        if layer.reader is not None:
            yield from (layer.reader.project.weight, layer.reader.mix.weight)


def _matrix(weight: Tensor) -> CMatrix:
    return CMatrix(weight=weight.data_ptr())
