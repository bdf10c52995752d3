"""What every trained drafter's network is: configuration, vocabulary, one forward for training."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar, NamedTuple, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional

from hyflash_bench.drafters.base import Features, LoadContext, Requires
from hyflash_bench.drafters.networks.batch import Batch
from hyflash_bench.drafters.networks.copying import CopyHead, with_votes
from hyflash_bench.drafters.networks.layers import RMSNorm
from hyflash_bench.drafters.networks.places import draft_places
from hyflash_bench.drafters.networks.products import normalised, product
from hyflash_bench.spec.base import MAX_ROWS, MAX_SIZE, Spec

__all__ = ["Anchor", "DraftHead", "DraftNetwork", "NetworkConfig", "TargetShape", "redraw"]


class TargetShape(Spec):
    """The target that a network was made for."""

    name: str
    weights: str = Field(description="Fingerprint of its weights.")
    tokenizer: str = Field(description="Fingerprint of its tokenizer.")
    num_layers: int = Field(ge=1)
    hidden_size: int = Field(ge=1)
    intermediate_size: int = Field(ge=1)
    num_heads: int = Field(ge=1)
    num_kv_heads: int = Field(ge=1)
    head_dim: int = Field(ge=2)
    vocab_size: int = Field(ge=1)
    norm_eps: float = Field(gt=0)
    rope_theta: float = Field(gt=0)

    @classmethod
    def of(cls, context: LoadContext) -> Self:
        """Read off a loaded target."""
        info, config = context.info, context.model.config
        rope = getattr(config, "rope_parameters", None) or {}
        return cls(
            name=info.name,
            weights=info.fingerprint.weights,
            tokenizer=info.fingerprint.tokenizer,
            num_layers=info.num_layers,
            hidden_size=info.hidden_size,
            intermediate_size=config.intermediate_size,
            num_heads=info.num_attention_heads,
            num_kv_heads=info.num_kv_heads,
            head_dim=info.head_dim,
            vocab_size=info.vocab_size,
            norm_eps=config.rms_norm_eps,
            rope_theta=float(rope.get("rope_theta") or getattr(config, "rope_theta", None) or 10_000.0),
        )


class NetworkConfig(Spec):
    """Base of the networks' configurations."""

    target: TargetShape
    num_slots: int = Field(5, ge=1, le=64, description="Tokens proposed in one pass, B.")
    draft_vocab_size: int = Field(8192, ge=1, description="Tokens that can be proposed.")
    copy_window: int = Field(
        0, ge=0, le=MAX_ROWS, description="Last rows that tokens are copied from; 0 for no copying."
    )
    copy_size: int = Field(
        64, ge=1, le=MAX_SIZE, description="Size of the keys by which alike rows are found."
    )
    recall_rows: int = Field(
        0,
        ge=0,
        le=MAX_ROWS,
        description="Rows before these that are remembered, one of each pair of tokens; 0 for none.",
    )

    @model_validator(mode="after")
    def _check_vocabulary(self) -> Self:
        if self.draft_vocab_size > self.target.vocab_size:
            raise ValueError(
                f"draft_vocab_size {self.draft_vocab_size} exceeds the target's {self.target.vocab_size}"
            )
        if self.recall_rows and self.copy_window < self.num_slots:
            raise ValueError(
                f"recall_rows {self.recall_rows} needs a copy_window of at least the {self.num_slots} slots, "
                f"not {self.copy_window}: rows are remembered with the tokens that followed them"
            )
        return self


class DraftHead(nn.Module):
    """From hidden states to logits over the draft vocabulary: a norm, and rows of the target's head.

    Only the norm is trained and stored, with the ids; the rows are the target's own, gathered when
    attached. A target token outside the draft vocabulary is never proposed.

    Attributes:
        draft_ids: ``[V_d]`` int64, ascending: the target's id of each draft token.
        rows: ``[V_d, d]`` of the target's head, empty until attached.
    """

    draft_ids: Tensor
    rows: Tensor

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        self.norm = RMSNorm(config.target.hidden_size, config.target.norm_eps)
        self.vocab_size = config.target.vocab_size
        self.register_buffer("draft_ids", torch.arange(config.draft_vocab_size))
        self.register_buffer("rows", torch.empty(0, config.target.hidden_size), persistent=False)

    def attach(self, head: Tensor) -> None:
        """Gather the rows of the target's head ``[V, d]``."""
        self.rows = head.detach()[self.draft_ids].clone()

    def forward(self, hidden: Tensor) -> Tensor:
        """``[..., d]`` to ``[..., V_d]`` logits."""
        return product(self.norm(hidden), self.rows.to(hidden.dtype))

    def spread(self, probabilities: Tensor) -> Tensor:
        """``[..., V_d]`` over the draft vocabulary to ``[..., V]`` over the target's."""
        wide = probabilities.new_zeros(*probabilities.shape[:-1], self.vocab_size)
        return wide.index_copy_(-1, self.draft_ids.to(wide.device), probabilities)


class Anchor(NamedTuple):
    """The last committed token, of which there are no features yet.

    Attributes:
        place: ``[1]``, in the draft vocabulary; its size for a token outside it.
        known: ``[1, 2d]``, see :meth:`DraftNetwork.known_of`.
    """

    place: Tensor
    known: Tensor


class DraftNetwork(nn.Module, ABC):
    """A drafter's weights.

    The target's embedding is looked up, never stored: :meth:`attach` lends it. Parameters are what
    is trained and saved, besides ``head.draft_ids``.
    """

    Config: ClassVar[type[NetworkConfig]]
    kind: ClassVar[str]

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        self.config = config
        self.head = DraftHead(config)
        self.copying: CopyHead | None = None
        if config.copy_window:
            width = 2 * config.target.hidden_size
            self.copying = CopyHead(
                width, config.copy_size, config.num_slots, config.copy_window, config.recall_rows
            )
        self._embedding: list[Tensor] = []  # a list, so that the target's tensor is not registered here

    @property
    @abstractmethod
    def requires(self) -> Requires:
        """Features it reads."""

    @abstractmethod
    def initialise(self, context: LoadContext) -> None:
        """Start from the target's own last layers, as far as shapes allow."""

    def warm_start(self, batches: Iterable[Batch]) -> None:
        """Fit what can be fitted in closed form, before the first gradient step.

        Args:
            batches: Of the training text, with many anchors; after :meth:`attach`.
        """

    @abstractmethod
    def context_rows(self, features: Features) -> Tensor:
        """What it makes of the features of T verified rows: ``[T, d]``."""

    def known_of(self, tokens: Tensor, rows_before: Tensor) -> Tensor:
        """What is known of T tokens before their own features are: ``[T, 2d]``, both halves normalised.

        Args:
            tokens: ``[T]`` ids.
            rows_before: ``[T, d]`` context rows of the tokens before them.
        """
        embedded, eps = self.embed(tokens), self.config.target.norm_eps
        sides = torch.stack([embedded, rows_before.to(embedded.dtype)], dim=1)
        return normalised(sides, None, eps).flatten(1)

    def anchor(self, last_token: int, last_row: Tensor) -> Anchor:
        """What a draft starts from.

        Args:
            last_token: The last committed one.
            last_row: ``[1, d]`` the context row of the token before it.
        """
        tokens = torch.tensor([last_token], device=last_row.device)
        return Anchor(draft_places(tokens, self.head.draft_ids), self.known_of(tokens, last_row))

    def with_copies(self, logits: Tensor, batch: Batch, rows: Tensor) -> Tensor:
        """The training form's logits ``[N, B, V_d]``, mixed with what is copied if the network copies.

        Args:
            logits: Of the network itself.
            batch: N anchors in T rows.
            rows: ``[T, d]`` its context rows.
        """
        if self.copying is None:
            return logits
        size = self.config.draft_vocab_size
        before = torch.cat([rows.new_zeros(1, rows.shape[1]), rows[:-1]])
        places = draft_places(batch.tokens, self.head.draft_ids.cpu())
        votes = self.copying.along(batch, self.known_of(batch.tokens, before), places, size)
        return with_votes(logits, votes)

    @abstractmethod
    def forward(self, batch: Batch) -> Tensor:
        """The training form.

        Returns:
            ``[N, B, V_d]`` logits; slot j of anchor a is about row ``a + 1 + j``. A network that
            drafts token by token is given the true tokens ``a + 1 .. a + j`` for slot j.
        """

    def drafting_passes(self) -> list[tuple[nn.Module, str]]:
        """Methods, with their owners, whose inputs keep their shapes from draft to draft.

        They are what is worth compiling. Attention is not among them: what it reads grows or moves.
        """
        return [(self.head, "forward")]

    def is_delicate(self, name: str) -> bool:
        """Whether a parameter stays in float32 wherever it goes, on disk too."""
        return False

    def attach(self, model: Any) -> None:
        """Borrow the target's embedding and head (a transformers model)."""
        self._embedding = [model.get_input_embeddings().weight.detach()]
        self.head.attach(model.get_output_embeddings().weight)

    def embed(self, tokens: Tensor) -> Tensor:
        """``[...]`` ids to ``[..., d]`` of the target's embedding, in the network's precision."""
        rows = functional.embedding(tokens.to(self._embedding[0].device), self._embedding[0])
        return rows.to(self.head.norm.weight.dtype)

    def set_vocabulary(self, draft_ids: Iterable[int]) -> None:
        """Say which tokens can be proposed; before :meth:`attach`.

        Raises:
            ValueError: Not as many distinct ids as the configuration says, or ids out of range.
        """
        ids = torch.tensor(sorted(set(draft_ids)), dtype=torch.int64)
        config = self.config
        if len(ids) != config.draft_vocab_size or ids[0] < 0 or ids[-1] >= config.target.vocab_size:
            raise ValueError(
                f"{config.draft_vocab_size} distinct ids from 0 to {config.target.vocab_size - 1} are needed"
            )
        self.head.draft_ids = ids

    def num_parameters(self) -> int:
        """Trained numbers."""
        return sum(parameter.numel() for parameter in self.parameters())


def redraw(network: nn.Module, seed: int) -> None:
    """Draw the first weights of a network anew, each part's from a random stream of its own name.

    Networks that share a part, by name and shapes, then start with the same weights there, whatever
    else they are made of and whatever was drawn before. Parts say what they start from as torch's own
    do, by ``reset_parameters``; what holds others has the last word.

    Args:
        network: Made, not initialised from its target yet.
        seed: Another seed gives other weights.
    """
    for name, module in reversed(list(network.named_modules())):
        reset = getattr(module, "reset_parameters", None)
        if callable(reset):
            digest = hashlib.blake2b(f"{seed} {name}".encode(), digest_size=7).digest()
            torch.manual_seed(int.from_bytes(digest))
            reset()
    torch.manual_seed(seed)
