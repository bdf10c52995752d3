"""The drafter contract: what an algorithm must do to be benchmarked.

A drafter sees token ids and tensors, never text. The engine owns verification, sampling, end of
sequence, limits, timing and the target's cache, so a drafter cannot change the output: at worst it
wastes time.

Life of a drafter::

    drafter = PromptLookup(PromptLookup.Options(num_draft_tokens=5))
    drafter.load(context)                          # once a worker, untimed
    for conversation:
        drafter.reset()                            # forget everything, untimed
        for turn:
            drafter.observe(prompt, features)      # in chunks; timed, part of TTFT
            for step:
                draft = drafter.draft(last, budget, sampler)      # timed
                ... the engine verifies ...
                drafter.observe([last, *accepted], features)      # timed

Invariant: a drafter has observed every committed token but the last one, whose features do not
exist yet; that one is ``last_token`` of the next :meth:`Drafter.draft`. Only verified tokens are
ever observed, so nothing is rolled back; a drafter that runs ahead of the text on its own
speculation drops that part in the next ``observe``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor

from hyflash_bench.spec.base import Spec

if TYPE_CHECKING:
    from hyflash_bench.drafters.sampler import Sampler

__all__ = [
    "CellFacts",
    "Draft",
    "Drafter",
    "DrafterOptions",
    "Features",
    "Held",
    "LoadContext",
    "MemoryKind",
    "Requires",
    "bytes_by_kind",
]

MemoryKind = Literal["weights", "kv", "state", "buffer"]


@dataclass(frozen=True, slots=True)
class Requires:
    """What a drafter reads of the target.

    Attributes:
        taps: Decoder layer ids; tap ``i`` is the residual stream leaving layer ``i``, before the
            final norm (``hidden_states[i + 1]`` in transformers).
        last_hidden: The last hidden state after the final norm.
        logits: The target's logits at every observed position.
    """

    taps: tuple[int, ...] = ()
    last_hidden: bool = False
    logits: bool = False

    def __or__(self, other: Requires) -> Requires:
        """Everything that either of two drafters reads."""
        return Requires(
            taps=tuple(sorted({*self.taps, *other.taps})),
            last_hidden=self.last_hidden or other.last_hidden,
            logits=self.logits or other.logits,
        )


@dataclass(frozen=True, slots=True)
class Features:
    """What the target computed at T positions.

    Attributes:
        taps: Layer id -> ``[T, hidden]``.
        last_hidden: ``[T, hidden]`` after the final norm, or None when nobody asked.
        logits: ``[T, vocab]`` float32, or None when nobody asked.
    """

    taps: Mapping[int, Tensor] = field(default_factory=dict)
    last_hidden: Tensor | None = None
    logits: Tensor | None = None

    def rows(self, index: slice | Tensor) -> Features:
        """The same features at some of the positions."""
        return Features(
            taps={layer: rows[index] for layer, rows in self.taps.items()},
            last_hidden=None if self.last_hidden is None else self.last_hidden[index],
            logits=None if self.logits is None else self.logits[index],
        )

    @staticmethod
    def concatenate(parts: Iterable[Features], dim: int = 0) -> Features:
        """Features of consecutive spans as one span, along the dimension of positions."""
        spans = list(parts)
        if not spans:
            return Features()
        if len(spans) == 1:
            return spans[0]

        def joined(rows: list[Tensor | None]) -> Tensor | None:
            present = [row for row in rows if row is not None]
            return torch.cat(present, dim) if present else None

        return Features(
            taps={layer: torch.cat([span.taps[layer] for span in spans], dim) for layer in spans[0].taps},
            last_hidden=joined([span.last_hidden for span in spans]),
            logits=joined([span.logits for span in spans]),
        )

    def tensors(self) -> list[Tensor]:
        """All tensors held, for byte counts."""
        others = [rows for rows in (self.last_hidden, self.logits) if rows is not None]
        return [*self.taps.values(), *others]


@dataclass(frozen=True, slots=True)
class Draft:
    """Tokens proposed in one step: a chain or a tree.

    Attributes:
        tokens: ``[N]`` int64 on the CPU, N may be 0. In a tree, parents come before children.
        parents: ``[N]`` int64, the index of each token's parent, -1 for a child of the last
            committed token; None for a chain. Siblings stand in the order in which they are tried.
        probabilities: ``[N, vocab]``, on any device: row j is the distribution q_j that token j was
            drawn from, independently of its siblings; None when the proposal is deterministic. A tree
            with probabilities can be scored live only, so its drafter should ``skip`` replay.
    """

    tokens: Tensor
    parents: Tensor | None = None
    probabilities: Tensor | None = None

    def __len__(self) -> int:
        return int(self.tokens.shape[0])

    @staticmethod
    def chain(tokens: Iterable[int], probabilities: Tensor | None = None) -> Draft:
        """A chain from plain token ids."""
        return Draft(torch.tensor(list(tokens), dtype=torch.int64), None, probabilities)

    @staticmethod
    def empty() -> Draft:
        """Nothing proposed this time."""
        return Draft(torch.empty(0, dtype=torch.int64))


@dataclass(frozen=True, slots=True)
class Held:
    """A tensor (or a count of bytes outside torch) that a drafter keeps alive.

    Attributes:
        kind: ``weights`` loaded once; ``kv`` grows with context unless bounded; ``state`` of fixed
            size; ``buffer`` for anything else, token ids and search structures included.
        tensor: The tensor, counted by its storage so that views count once.
        num_bytes: Used when there is no tensor (structures of plain Python or C).
        shared: The storage belongs to the target, which counts it.
    """

    kind: MemoryKind
    tensor: Tensor | None = None
    num_bytes: int = 0
    shared: bool = False


def bytes_by_kind(held: Iterable[Held]) -> dict[MemoryKind, int]:
    """Bytes by kind; a storage counts once however many views look at it, the target's not at all."""
    totals: dict[MemoryKind, int] = {}
    seen: set[int] = set()
    for item in held:
        if item.shared:
            continue
        size = item.num_bytes
        if item.tensor is not None:
            storage = item.tensor.untyped_storage()
            if storage.data_ptr() not in seen:
                seen.add(storage.data_ptr())
                size += storage.nbytes()
        totals[item.kind] = totals.get(item.kind, 0) + size
    return totals


@dataclass(frozen=True, slots=True)
class LoadContext:
    """What a drafter may look at while loading.

    Attributes:
        info: Facts of the target (sizes, vocabulary, fingerprint).
        model: The transformers model, to share the embedding and the head.
        tokenizer: The target's tokenizer, to compare vocabularies; not to read text.
        device: Where the target's tensors live.
        dtype: The target's precision.
    """

    info: Any
    model: Any
    tokenizer: Any
    device: torch.device
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class CellFacts:
    """What :meth:`Drafter.skip` may base its answer on."""

    is_greedy: bool
    context_length: int | None
    mode: Literal["replay", "live"]


class DrafterOptions(Spec):
    """Base of a drafter's options; every field needs a default and a description."""


class Drafter(ABC):
    """A drafting algorithm. See the module's text for its life and the invariant.

    Timed: :meth:`observe` (the prompt's goes into time to first token and is shown apart) and
    :meth:`draft`. Untimed: construction, :meth:`load`, :meth:`reset`, :meth:`memory`.
    """

    name: ClassVar[str]
    Options: ClassVar[type[DrafterOptions]] = DrafterOptions
    is_reference: ClassVar[bool] = False
    """True only for plain autoregressive decoding, which proposes nothing by design."""

    def __init__(self, options: DrafterOptions | None = None) -> None:
        self.options = options if options is not None else self.Options()

    @property
    def requires(self) -> Requires:
        """What this drafter reads of the target; constant after :meth:`load`."""
        return Requires()

    def load(self, context: LoadContext) -> None:  # noqa: B027 - most drafters load nothing
        """Load weights and check them against the target.

        Raises:
            DrafterError: The drafter does not fit the target, with the reason.
        """

    def skip(self, facts: CellFacts) -> str | None:
        """Why this drafter cannot run a cell, or None if it can; a result, not an exception."""
        return None

    @abstractmethod
    def reset(self) -> None:
        """Forget the conversation; the next ``observe`` starts at position 0."""

    @abstractmethod
    def observe(self, tokens: Tensor, features: Features) -> None:
        """Take in verified tokens.

        Args:
            tokens: ``[T]`` int64 on the CPU, consecutive, following all that was observed before.
            features: At least what :attr:`requires` names, T rows each. All drafters share them, so
                clone what is to be changed.
        """

    @abstractmethod
    def draft(self, last_token: int, budget: int, sampler: Sampler, along: Tensor | None = None) -> Draft:
        """Propose what may follow ``last_token``, without changing what is known.

        Args:
            last_token: The last committed token, not observed yet.
            budget: Most tokens that may be proposed (tree nodes count singly), at least 1.
            sampler: Sampling in force; drafters that sample draw through it only.
            along: ``[M]`` int64 for sampled replay: the true continuation. A drafter whose q_j
                depends on its own earlier samples returns ``tokens = along[:N]`` with q_j computed
                along them; others may ignore it.

        Returns:
            At most ``budget`` tokens.
        """

    @abstractmethod
    def memory(self) -> list[Held]:
        """Everything this drafter keeps alive now."""

    def memory_formula(self, context_length: int) -> dict[MemoryKind, int] | None:
        """Bytes by kind after observing ``context_length`` tokens, in closed form.

        None where no such form exists (structures whose size depends on the text).
        """
        return None

    def within(self, num_bytes: int) -> Drafter | None:
        """A loaded drafter like this one that keeps less of the context, for the cap policy ``window``.

        Args:
            num_bytes: Most bytes of all kinds, weights included, at any context length.

        Returns:
            The one that keeps the most within that; if even the least is too much, the one that keeps
            the least. None where the context kept cannot be chosen.
        """
        return None
