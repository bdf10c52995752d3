"""The ledger in closed form: what a target holds and what its passes need for a moment. No torch.

A total is what one device would have to hold for one conversation at the height of one step::

    target_weights + target_kv(context after the step)
    + drafter weights, kv, state and buffer
    + what the verification pass needs for a moment (:class:`PassBytes`)

The harness holds more (the whole trace's features, a cache for the longest conversation, the other
drafters); that is not part of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from hyflash_bench.footprint import KV_DTYPES

if TYPE_CHECKING:
    from hyflash_bench.footprint import KVDtype
    from hyflash_bench.memory.shapes import ModelShape, WeightBits

__all__ = ["PassBytes", "TargetLedger", "feature_rows"]

LOGIT_BYTES = SCORE_BYTES = 4
"""Logits leave the target as float32, and attention's softmax is computed in it."""


@dataclass(frozen=True, slots=True)
class PassBytes:
    """Bytes that exist during one verification pass and not after its step.

    Attributes:
        logits: Of all rows.
        features: What the drafter reads of the pass; logits that it reads are counted above.
        workspace: See :meth:`TargetLedger.workspace`.
        rejected_kv: Keys and values of rows that verification drops again.
    """

    logits: int
    features: int
    workspace: int
    rejected_kv: int

    @property
    def total(self) -> int:
        """All of them, as if they were at their height together."""
        return self.logits + self.features + self.workspace + self.rejected_kv


@dataclass(frozen=True, slots=True)
class TargetLedger:
    """A target's bytes as functions of context length and rows of a pass.

    Attributes:
        shape: Its sizes.
        weight_bytes: Of its weights, as loaded or as simulated.
        kv_bytes_per_token: Of its KV cache, scales included.
        kv_dtype: Of its KV cache.
        element_bytes: Of a number in its precision.
    """

    shape: ModelShape
    weight_bytes: int
    kv_bytes_per_token: int
    kv_dtype: KVDtype
    element_bytes: int

    @classmethod
    def of(cls, shape: ModelShape, *, bits: WeightBits, kv_dtype: KVDtype) -> TargetLedger:
        """Of a target on paper; arithmetic is in float32 with weights of 32 bits, else in 16 bits."""
        return cls(
            shape,
            shape.weight_bytes(bits),
            shape.kv_bytes_per_token(kv_dtype),
            kv_dtype,
            4 if bits == 32 else 2,
        )

    def workspace(self, num_rows: int, context_length: int) -> int:
        """Temporary bytes of a pass at the layer that needs most, logits and features apart.

        Counted from the decoder in plain torch, where attention is two batched products: the
        residual stream before and after the layer and its normed copy, the rotary tables and the mask
        with its inverse; then whichever is more, the attention (queries, keys and values, rotated once,
        scores and their softmax over context and pass, and a layer of the cache widened if it is kept
        in fewer bits) or the MLP (gate, up, their product and its activation). Fused and compiled
        kernels need less.

        Args:
            num_rows: T tokens of the pass.
            context_length: Tokens cached before it.
        """
        shape, element = self.shape, self.element_bytes
        keys, queries = context_length + num_rows, shape.num_heads * shape.head_dim
        sides = 2 * shape.num_kv_heads * shape.head_dim
        scores = 2 * SCORE_BYTES * shape.num_heads * num_rows * keys
        widened = element * sides * keys if KV_DTYPES[self.kv_dtype] < element else 0
        attention = element * num_rows * 2 * (queries + sides) + scores + widened
        mlp = element * num_rows * 4 * shape.intermediate_size
        always = element * num_rows * (3 * shape.hidden_size + 2 * shape.head_dim) + 2 * num_rows * keys
        return always + max(attention, mlp)

    def pass_bytes(
        self, num_rows: int, context_length: int, *, num_features: int = 0, num_committed: int | None = None
    ) -> PassBytes:
        """What a verification pass needs for a moment.

        Args:
            num_rows: The last token and the draft.
            context_length: Tokens cached before it.
            num_features: Rows of features read of each token, see :func:`feature_rows`.
            num_committed: Rows that stay in the cache; all by default.
        """
        kept = num_rows if num_committed is None else num_committed
        return PassBytes(
            logits=LOGIT_BYTES * num_rows * self.shape.vocab_size,
            features=self.element_bytes * num_rows * num_features * self.shape.hidden_size,
            workspace=self.workspace(num_rows, context_length),
            rejected_kv=(num_rows - kept) * self.kv_bytes_per_token,
        )

    def total(self, context_length: int, during: PassBytes, drafter_bytes: int = 0) -> int:
        """All that is held at the height of a step.

        Args:
            context_length: Tokens in the cache after the step.
            during: Of its verification pass.
            drafter_bytes: All kinds of the drafter, its weights included.
        """
        held = self.weight_bytes + context_length * self.kv_bytes_per_token
        return held + drafter_bytes + during.total

    def columns(self, contexts: Sequence[int], passes: Sequence[PassBytes]) -> dict[str, list[int]]:
        """The target's part of the ledger as steps store it, a list for each kind.

        Args:
            contexts: Tokens in the cache after each step.
            passes: Of the steps.
        """
        parts = {part.name: [getattr(during, part.name) for during in passes] for part in fields(PassBytes)}
        return {
            "target_weights_bytes": [self.weight_bytes] * len(contexts),
            "target_kv_bytes": [context * self.kv_bytes_per_token for context in contexts],
            **{f"{name}_bytes": sizes for name, sizes in parts.items()},
        }

    def plain_columns(self, contexts: Sequence[int]) -> dict[str, list[int]]:
        """The same of plain decoding."""
        return self.columns(contexts, [self.pass_bytes(1, max(0, context - 1)) for context in contexts])

    def plain_total(self, context_length: int) -> int:
        """The same for a step of plain decoding that leaves so many tokens in the cache."""
        return self.total(context_length, self.pass_bytes(1, max(0, context_length - 1)))


def feature_rows(num_taps: int, last_hidden: bool) -> int:
    """Rows of the hidden size that a drafter reads of each token."""
    return num_taps + last_hidden
