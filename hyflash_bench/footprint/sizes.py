"""What configurations of networks say, as far as bytes depend on it."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from typing import Protocol

__all__ = ["BlockSizes", "DFlashSizes", "EagleSizes", "MedusaSizes", "NetworkSizes", "TargetSizes"]


class TargetSizes(Protocol):
    """What a drafter takes over of its target's shape."""

    @property
    def hidden_size(self) -> int: ...  # noqa: D102 - named as in every configuration
    @property
    def intermediate_size(self) -> int: ...  # noqa: D102
    @property
    def num_heads(self) -> int: ...  # noqa: D102
    @property
    def num_kv_heads(self) -> int: ...  # noqa: D102
    @property
    def head_dim(self) -> int: ...  # noqa: D102


class NetworkSizes(Protocol):
    """What all networks' configurations say."""

    @property
    def target(self) -> TargetSizes: ...  # noqa: D102
    @property
    def num_slots(self) -> int: ...  # noqa: D102
    @property
    def draft_vocab_size(self) -> int: ...  # noqa: D102
    @property
    def copy_window(self) -> int: ...  # noqa: D102
    @property
    def copy_size(self) -> int: ...  # noqa: D102
    @property
    def recall_rows(self) -> int: ...  # noqa: D102


class BlockSizes(NetworkSizes, Protocol):
    """Configuration of a block drafter's network."""

    @property
    def num_layers(self) -> int: ...  # noqa: D102
    @property
    def taps(self) -> Sized: ...  # noqa: D102
    @property
    def last_hidden(self) -> bool: ...  # noqa: D102
    @property
    def attention(self) -> str: ...  # noqa: D102
    @property
    def window(self) -> int: ...  # noqa: D102
    @property
    def chunk(self) -> int: ...  # noqa: D102
    @property
    def memory(self) -> str: ...  # noqa: D102
    @property
    def memory_heads(self) -> int: ...  # noqa: D102
    @property
    def memory_key_dim(self) -> int: ...  # noqa: D102
    @property
    def memory_value_dim(self) -> int: ...  # noqa: D102
    @property
    def memory_shifts(self) -> Sequence[int]: ...  # noqa: D102
    @property
    def shared_memory(self) -> bool: ...  # noqa: D102
    @property
    def intermediate_size(self) -> int: ...  # noqa: D102
    @property
    def slot_rank(self) -> int: ...  # noqa: D102
    @property
    def markov_rank(self) -> int: ...  # noqa: D102


class EagleSizes(NetworkSizes, Protocol):
    """Configuration of an EAGLE-style network."""

    @property
    def taps(self) -> Sized: ...  # noqa: D102
    @property
    def last_hidden(self) -> bool: ...  # noqa: D102
    @property
    def intermediate_size(self) -> int: ...  # noqa: D102
    @property
    def token_residual(self) -> bool: ...  # noqa: D102


class MedusaSizes(NetworkSizes, Protocol):
    """Configuration of Medusa-style heads."""

    @property
    def hidden_layers(self) -> int: ...  # noqa: D102


class DFlashSizes(Protocol):
    """Configuration of a public DFlash checkpoint."""

    @property
    def block_size(self) -> int: ...  # noqa: D102
    @property
    def windows(self) -> Sequence[int | None]: ...  # noqa: D102
