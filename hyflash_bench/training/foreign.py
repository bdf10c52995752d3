"""A memory that another document left behind, for the control that swaps histories."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from safetensors import SafetensorError
from safetensors.torch import save_file

from hyflash_bench.atomic import replacing
from hyflash_bench.drafters.base import Features
from hyflash_bench.drafters.networks.block import BlockNetwork
from hyflash_bench.drafters.networks.context_state import document_state
from hyflash_bench.drafters.networks.network import DraftNetwork

if TYPE_CHECKING:
    from hyflash_bench.training.session import Session

__all__ = ["write_foreign_state"]


def write_foreign_state(network: DraftNetwork, session: Session, folder: Path) -> None:
    """Store the memory after the longest held-out document as ``state`` in ``foreign.safetensors``.

    Networks without a memory get no such file.

    Raises:
        DataError: The disk is full or the folder cannot be written.
    """
    if not isinstance(network, BlockNetwork) or network.config.memory == "none":
        return
    longest = max(session.held_out, key=lambda index: session.store.lengths[index])
    rows = session.store.rows(longest)
    assert rows.last_hidden is not None
    device = network.head.norm.weight.device
    features = Features(
        taps={tap: values.to(device).float() for tap, values in rows.taps.items()},
        last_hidden=rows.last_hidden.to(device).float(),
    )
    state = document_state(network, features).cpu().contiguous()
    with replacing(folder / "foreign.safetensors") as temporary:
        try:
            save_file({"state": state}, temporary)
        except SafetensorError as error:
            # Its writer wraps the system's error in a text of its own.
            raise OSError(28 if "space" in str(error) else 5, str(error)) from error
