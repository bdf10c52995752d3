"""Sizes of a public checkpoint's network, from its configuration and the names of its tensors. No torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field

from hyflash_bench.spec.base import Spec
from hyflash_bench.spec.formats.dflash import read_dflash
from hyflash_bench.spec.formats.eagle import read_eagle, read_eagle3
from hyflash_bench.spec.formats.layer import LayerSizes, PublicConfig
from hyflash_bench.spec.formats.medusa import HEADS_STEM, count_heads
from hyflash_bench.spec.formats.names import tensor_names
from hyflash_bench.spec.formats.recognise import CONFIG_FILE, Format, Recognised

__all__ = ["PublicSizes", "read_sizes"]

_ANY_DEPTH = 32
"""Which layers are read by default depends on the target's depth; how many are read does not."""


class PublicSizes(Spec):
    """Sizes of other people's networks.

    Attributes:
        layer: Of a decoder layer; None for Medusa's heads, which have the target's width.
    """

    format: Format
    layer: LayerSizes | None = None
    num_layers: int = Field(ge=0, description="Decoder layers; in Medusa's heads, residual blocks.")
    num_taps: int = Field(0, ge=0, description="Layers of the target whose output is read.")
    target_hidden_size: int = Field(0, ge=0, description="Width of what is read; 0 for the target's.")
    vocab_size: int = Field(0, ge=0, description="Of the target; 0 where the checkpoint does not say.")
    draft_vocab_size: int = Field(0, ge=0, description="Tokens that can be proposed; 0 for all.")
    num_slots: int = Field(ge=1, le=64, description="Tokens proposed in one pass or chain.")
    block_size: int = Field(0, ge=0, description="Rows of a block; 0 without blocks.")
    windows: tuple[int | None, ...] = Field((), description="Positions that each layer sees; None for all.")
    fusion_bias: bool = False
    norm_before_fc: bool = False
    fc_norm: bool = False
    has_embedding: bool = Field(False, description="The files hold an embedding.")
    has_head: bool = Field(False, description="The files hold a head.")

    @property
    def may_repeat_target(self) -> bool:
        """Whether a matrix in the files may be the target's own, which loading would find out."""
        if self.layer is None or self.layer.hidden_size != self.target_hidden_size:
            return False
        return self.has_embedding or (self.has_head and self.draft_vocab_size == self.vocab_size)


def read_sizes(folder: Path, found: Recognised) -> PublicSizes:
    """Read them; no tensor is touched.

    Args:
        folder: Of a checkpoint that others wrote.
        found: What it was recognised as.

    Raises:
        DrafterError: The configuration cannot be run, with the key, what it says and what is allowed.
    """
    raw, where = found.config, str(folder / CONFIG_FILE)
    if found.format == "medusa":
        num_heads, num_blocks = count_heads(tensor_names(folder, HEADS_STEM), raw, str(folder))
        return PublicSizes(format="medusa", num_layers=num_blocks, num_slots=num_heads)
    names = tensor_names(folder)
    if found.format == "dflash":
        dflash = read_dflash(raw, where)
        more: dict[str, Any] = {
            "num_layers": dflash.num_layers,
            "block_size": dflash.block_size,
            "windows": dflash.windows,
        }
        return _sizes(found.format, dflash, names, num_taps=len(dflash.taps), **more)
    is_third = found.format == "eagle3"
    eagle = read_eagle3(raw, where, _ANY_DEPTH) if is_third else read_eagle(raw, where)
    return _sizes(
        found.format,
        eagle,
        names,
        num_layers=1,
        num_taps=len(eagle.taps),
        fusion_bias=eagle.fusion_bias,
        norm_before_fc=eagle.norm_before_fc,
        fc_norm=eagle.fc_norm,
    )


def _sizes(format_: Format, config: PublicConfig, names: frozenset[str], **more: Any) -> PublicSizes:
    may_lend = config.target.hidden_size == config.target_hidden_size
    is_whole = config.draft_vocab_size == config.vocab_size
    return PublicSizes(
        format=format_,
        layer=config.target,
        target_hidden_size=config.target_hidden_size,
        vocab_size=config.vocab_size,
        draft_vocab_size=config.draft_vocab_size,
        num_slots=config.num_slots,
        has_embedding=not may_lend or "embed_tokens.weight" in names,
        has_head=not (may_lend and is_whole) or "lm_head.weight" in names,
        **more,
    )
