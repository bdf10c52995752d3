"""Drafters that ``convert`` wrote for this package alone: the speculators layout around a network of ours."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from hyflash_bench.drafters.base import LoadContext
from hyflash_bench.drafters.formats.files import read_tensors
from hyflash_bench.drafters.formats.vocabulary import read_draft_ids
from hyflash_bench.drafters.networks.checkpoint import build_network
from hyflash_bench.drafters.networks.network import DraftNetwork

__all__ = ["load_exported"]

_STEM = "model*"
"""One file or several with an index; what lies beside them is not the network's."""


def load_exported(folder: Path, described: Mapping[str, Any], context: LoadContext) -> DraftNetwork:
    """Read a network back, every tensor accounted for.

    Args:
        folder: Holds it.
        described: The part of its configuration that is ours.
        context: The loaded target.

    Raises:
        DrafterError: Damaged, with tensors that nobody knows, or made for another target.
    """
    return build_network(folder, described, context, partial(_read, folder))


def _read(folder: Path, network: DraftNetwork) -> dict[str, Tensor]:
    tensors, config = read_tensors(folder, stem=_STEM), network.config
    wanted = {name: parameter.shape for name, parameter in network.named_parameters()}
    tensors.require(wanted)
    found = {name: tensors.take(name, shape).float() for name, shape in wanted.items()}
    found["head.draft_ids"] = read_draft_ids(tensors, config.draft_vocab_size, config.target.vocab_size)
    tensors.finish({*wanted, "d2t", "t2d"})
    return found
