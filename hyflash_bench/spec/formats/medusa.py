"""Medusa (2401.10774): heads say their own number and sizes, so the configuration only confirms them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import Field

from hyflash_bench.errors import DrafterError
from hyflash_bench.spec.formats.layer import PublicConfig, only

__all__ = ["HEADS_STEM", "MEDUSA_TENSOR", "PublicMedusaConfig", "count_heads"]

HEADS_STEM = "medusa_lm_head"
"""Name of the file that heads lie in, its ending apart."""

MEDUSA_TENSOR = re.compile(r"(?P<head>\d+)\.(?P<block>\d+)\.(?P<what>linear\.weight|linear\.bias|weight)")
"""Head, its block, and what of it; a block without ``linear`` is the matrix over the vocabulary."""


class PublicMedusaConfig(PublicConfig):
    """Heads with a matrix over the vocabulary each."""

    hidden_layers: int = Field(ge=0, le=8, description="Residual blocks in each head.")


def count_heads(names: Iterable[str], raw: Mapping[str, Any], where: str) -> tuple[int, int]:
    """Heads and residual blocks, by the names of tensors.

    Published configurations name fewer heads than their files hold, so the file counts.

    Raises:
        DrafterError: Names that are not those of heads, or another number of blocks than configured.
    """
    found = [match for name in names if (match := MEDUSA_TENSOR.fullmatch(name))]
    heads = {int(match["head"]) for match in found}
    blocks = {int(match["block"]) for match in found if match["what"] == "linear.weight"}
    if not heads or heads != set(range(len(heads))) or blocks != set(range(len(blocks))):
        raise DrafterError(
            f"{where} holds no Medusa heads: tensors must be named 0.0.linear.weight, 0.0.linear.bias, "
            "0.1.weight, 1.0.linear.weight and so on. Give another checkpoint."
        )
    only(raw, where, medusa_num_layers=(len(blocks),))
    return len(heads), len(blocks)
