"""A smaller language model drafts for a larger one (Leviathan et al., 2211.17192).

It keeps a KV cache of its own, ahead of the verified text by what it drafted last; those rows are
kept where the engine accepted them and cut off where it did not. It cannot keep less of the context: its
passes attend to every row of the cache, and without the first rows it is another model.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from hyflash_bench.drafters.base import (
    CellFacts,
    Draft,
    Drafter,
    DrafterOptions,
    Features,
    Held,
    LoadContext,
    MemoryKind,
)
from hyflash_bench.drafters.sampler import Sampler
from hyflash_bench.errors import DrafterError
from hyflash_bench.footprint import KVChoice
from hyflash_bench.spec.base import MAX_COUNT
from hyflash_bench.spec.target import TargetSpec

if TYPE_CHECKING:
    from hyflash_bench.targets.cache import KVCache
    from hyflash_bench.targets.target import Target

__all__ = ["SmallModel"]

CACHE_BLOCK = 512
"""The cache grows by so many tokens at a time."""


class SmallModel(Drafter):
    """Drafts with any causal language model that shares the target's vocabulary."""

    name = "small-model"

    class Options(DrafterOptions):
        """What may be set."""

        model: str = Field(
            "smollm2-135m",
            min_length=1,
            description="Model to draft with: preset, hub id, local folder or GGUF file, as for --target.",
        )
        num_draft_tokens: int = Field(4, ge=1, le=MAX_COUNT, description="Most tokens to propose in a step.")
        dtype: Literal["target", "auto", "float32", "bfloat16", "float16"] = Field(
            "target", description="Its precision; target takes the target's, auto the checkpoint's."
        )
        kv_dtype: KVChoice = Field(
            "auto", description="Precision of its KV cache; auto is that of its weights."
        )

    options: Options
    _model: Target
    _cache: KVCache

    def load(self, context: LoadContext) -> None:
        """Load the model and compare its vocabulary with the target's, token by token."""
        # Only this drafter needs a second model, so only it pays for the import.
        from hyflash_bench.targets.load import load_target

        as_target = str(context.dtype).removeprefix("torch.")
        dtype = as_target if self.options.dtype == "target" else self.options.dtype
        values = {
            "target": self.options.model,
            "dtype": dtype,
            "kv_dtype": self.options.kv_dtype,
            "backend": str(context.device),
        }
        model = load_target(TargetSpec.parse(values, where=f"drafter {self.name!r}"))
        _compare_vocabularies(context.tokenizer, model.tokenizer, self.options.model)
        self._model = model
        self._vocab_size = int(context.info.vocab_size)
        self.reset()

    def skip(self, facts: CellFacts) -> str | None:
        """Not able to run past the model's own context limit."""
        limit = self._model.info.max_positions
        if facts.context_length is None or facts.context_length <= limit:
            return None
        return f"{self.options.model} was made for {limit} positions, not {facts.context_length}"

    def reset(self) -> None:
        """See :meth:`Drafter.reset`."""
        self._num_observed = 0
        self._waiting: list[int] = []  # observed, but without rows in the cache yet
        self._ahead: list[int] = []  # with rows in the cache, but not observed yet
        self._cache = self._model.new_cache(self._capacity(0))

    @torch.inference_mode()
    def observe(self, tokens: Tensor, features: Features) -> None:
        """See :meth:`Drafter.observe`."""
        observed: list[int] = tokens.tolist()
        num_reused = _num_equal(self._ahead, observed)
        self._drop_ahead(num_reused)
        self._num_observed += len(observed)
        self._grow()
        self._waiting += observed[num_reused:]
        # A single token costs nothing extra in the next draft's first pass.
        if len(self._waiting) > 1:
            self._model.prefill(_ids(self._waiting), self._cache)
            self._waiting = []

    @torch.inference_mode()
    def draft(self, last_token: int, budget: int, sampler: Sampler, along: Tensor | None = None) -> Draft:
        """See :meth:`Drafter.draft`."""
        self._drop_ahead(0)
        room = self._model.info.max_positions - self._num_observed
        length = min(budget, self.options.num_draft_tokens, room)
        if length < 1:
            return Draft.empty()
        if sampler.is_greedy:
            return self._likeliest(last_token, length)
        if along is None:
            return self._drawn(last_token, length, sampler)
        return self._scored(last_token, along[:length], sampler)

    def memory(self) -> list[Held]:
        """See :meth:`Drafter.memory`."""
        module = self._model.model
        weights = [Held("weights", tensor) for tensor in (*module.parameters(), *module.buffers())]
        return [*weights, *(Held("kv", tensor) for tensor in self._cache.tensors())]

    def memory_formula(self, context_length: int) -> dict[MemoryKind, int]:
        """Weights as loaded, and a cache of whole blocks with room for the next draft."""
        info = self._model.info
        buffers = sum(buffer.nbytes for buffer in self._model.model.buffers())
        kv = self._capacity(context_length) * info.kv_bytes_per_token
        return {"weights": info.weight_bytes + buffers, "kv": kv}

    # Proposing

    def _likeliest(self, last_token: int, length: int) -> Draft:
        tokens: list[int] = []
        for _ in range(length):
            logits = self._run_ahead([tokens[-1] if tokens else last_token])
            tokens.append(int(logits[-1].argmax()))
        return Draft.chain(tokens)

    def _drawn(self, last_token: int, length: int, sampler: Sampler) -> Draft:
        tokens: list[int] = []
        rows: list[Tensor] = []
        for _ in range(length):
            logits = self._run_ahead([tokens[-1] if tokens else last_token])
            rows.append(sampler.probabilities(logits[-1]))
            tokens.append(sampler.draw(rows[-1]))
        return Draft.chain(tokens, torch.stack(rows))

    def _scored(self, last_token: int, along: Tensor, sampler: Sampler) -> Draft:
        if len(along) == 0:
            return Draft.empty()
        logits = self._run_ahead([last_token, *along[:-1].tolist()])
        return Draft(along, None, sampler.probabilities(logits))

    def _run_ahead(self, tokens: list[int]) -> Tensor:
        """Logits after each of these unverified tokens, ``[T, vocab of the target]``."""
        rows = [*self._waiting, *tokens]
        self._waiting = []
        self._ahead += tokens
        logits = self._model.forward(_ids(rows), self._cache).logits[-len(tokens) :]
        # Rows of the head beyond the target's vocabulary are padding, and so are missing ones.
        missing = self._vocab_size - logits.shape[-1]
        if missing > 0:
            return torch.nn.functional.pad(logits, (0, missing), value=-torch.inf)
        return logits[:, : self._vocab_size]

    # The cache

    def _drop_ahead(self, num_kept: int) -> None:
        self._cache.truncate(self._cache.length - len(self._ahead) + num_kept)
        self._ahead = []

    def _capacity(self, num_observed: int) -> int:
        needed = num_observed + self.options.num_draft_tokens
        return -(-needed // CACHE_BLOCK) * CACHE_BLOCK

    def _grow(self) -> None:
        capacity = self._capacity(self._num_observed)
        if capacity != self._cache.capacity:
            self._cache.grow(capacity)


def _compare_vocabularies(target: Any, drafter: Any, model: str) -> None:
    """Every token of the target must have the same id in the drafter, which may know more."""
    known: dict[str, int] = drafter.get_vocab()
    by_id = {index: token for token, index in known.items()}
    for token, index in sorted(target.get_vocab().items(), key=lambda item: item[1]):
        if by_id.get(index) != token:
            found = repr(by_id[index]) if index in by_id else "nothing"
            raise DrafterError(
                f"Model {model!r} does not share the target's vocabulary: token {index} is "
                f"{token!r} for the target and {found} for the model. "
                "Choose a model of the target's own family with small-model:model=..."
            )


def _num_equal(some: Iterable[int], others: Iterable[int]) -> int:
    count = 0
    for one, other in zip(some, others, strict=False):
        if one != other:
            break
        count += 1
    return count


def _ids(tokens: list[int]) -> Tensor:
    return torch.tensor(tokens, dtype=torch.int64)
