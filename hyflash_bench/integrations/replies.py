"""Replies to prompts of other tools: one prefill, then the real loop once for each drafter."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from hyflash_bench.drafters.base import CellFacts, Drafter, Features, Requires
from hyflash_bench.drafters.sampler import Sampler
from hyflash_bench.engine.clock import Clock
from hyflash_bench.engine.live import live_turn
from hyflash_bench.engine.lossless import Judgement, judge
from hyflash_bench.engine.steps import TurnResult
from hyflash_bench.engine.trace import TracedTurn
from hyflash_bench.errors import ContextTooLong, DrafterError
from hyflash_bench.memory.ledger import held_by
from hyflash_bench.runner.entrant import Entrant, guarded, requires_of
from hyflash_bench.spec.sampling import GREEDY, Sampling
from hyflash_bench.suites.chat import ChatTokenizer
from hyflash_bench.targets.cache import KVCache
from hyflash_bench.targets.target import Target

__all__ = ["Ask", "Origin", "Replies", "Reply", "Round", "StopStrings", "Tally"]


@dataclass(frozen=True, slots=True)
class Ask:
    """What is wanted of a reply.

    Attributes:
        max_new_tokens: Most tokens.
        until: Strings that end it; none of them is part of the text.
        sampling: How its tokens are chosen.
        take: Counts repetitions of the same prompt, which differ when tokens are drawn.
    """

    max_new_tokens: int
    until: tuple[str, ...] = ()
    sampling: Sampling = GREEDY
    take: int = 0


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a prompt comes from.

    Attributes:
        task: Name of the task.
        item_id: Unique among all prompts.
        context_rung: Length that the task was made for, if it was made for one.
    """

    task: str
    item_id: str
    context_rung: int | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """What one drafter's loop wrote.

    Attributes:
        text: Without the stop string and what follows it.
        result: Tokens and steps.
        has_ended: By a stop token or string, not by the limit.
        judged: Compared with the target alone; None where there is nothing to compare with.
        drafter: As it stands after the reply.
    """

    text: str
    result: TurnResult
    has_ended: bool
    judged: Judgement | None
    drafter: Drafter


@dataclass(frozen=True, slots=True)
class Round:
    """All drafters on one prompt.

    Attributes:
        origin: Where it comes from.
        prompt: Its tokens.
        ask: What was wanted.
        turn: The target alone, with log-probabilities; None if it was not among the drafters.
        replies: By label.
        failed: Drafters that broke down, with how they stand.
        cache: The target's.
    """

    origin: Origin
    prompt: tuple[int, ...]
    ask: Ask
    turn: TracedTurn | None
    replies: dict[str, Reply]
    failed: dict[str, Entrant]
    cache: KVCache


class StopStrings:
    """Ends a reply at the first of some strings, wherever the borders of tokens and drafts lie.

    Args:
        decode: From token ids to text.
        until: The strings.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str], until: Sequence[str]) -> None:
        self._decode = decode
        self._until = tuple(filter(None, until))

    def __call__(self, reply: Sequence[int], tokens: Sequence[int]) -> int | None:
        """See :data:`hyflash_bench.engine.live.EndsAt`."""
        if not self._until or not self.found_in(self._decode([*reply, *tokens])):
            return None
        counts = range(1, len(tokens))
        return next((n for n in counts if self.found_in(self._decode([*reply, *tokens[:n]]))), len(tokens))

    def found_in(self, text: str) -> bool:
        """Whether one of them has been written."""
        return any(stop in text for stop in self._until)

    def cut(self, text: str) -> str:
        """What stands before the first of them."""
        places = [text.find(stop) for stop in self._until]
        return text[: min((place for place in places if place >= 0), default=len(text))]


@dataclass(slots=True)
class Tally:
    """What a drafter achieved on a task, pooled over its prompts; steps cut by the limit are left out."""

    num_steps: int = 0
    num_committed: int = 0
    num_decoded: int = 0
    decode_s: float = 0.0

    def add(self, result: TurnResult) -> None:
        """Count a reply."""
        steps = result.steps
        uncut = [tokens for tokens, cut in zip(steps.committed, steps.limit_cut, strict=True) if not cut]
        self.num_steps += len(uncut)
        self.num_committed += sum(uncut)
        self.num_decoded += sum(steps.committed)
        self.decode_s += result.decode_s or 0.0

    def __str__(self) -> str:
        """As a line of a log."""
        if not self.num_steps or not self.decode_s:
            return "no steps"
        return (
            f"acceptance length {self.num_committed / self.num_steps:.3f}, "
            f"{self.num_decoded / self.decode_s:.1f} tok/s"
        )


@dataclass
class Replies:
    """Answers prompts, and remembers the answers: each drafter's are asked for in turn.

    Attributes:
        target: The model.
        drafters: Loaded, by label; if plain decoding is among them, the others are held against it.
        draft_budget: Most tokens of a draft.
        seed: Of every random choice.
        on_round: Told of every prompt that was answered.
        tallies: What was achieved, by task and label.
    """

    target: Target
    drafters: Mapping[str, Drafter]
    draft_budget: int = 16
    seed: int = 0
    on_round: Callable[[Round], None] | None = None
    tallies: dict[tuple[str, str], Tally] = field(default_factory=dict)
    _known: dict[str, tuple[dict[str, str], dict[str, str]]] = field(default_factory=dict)
    _cache: KVCache | None = None

    def __post_init__(self) -> None:
        """Look up what does not change."""
        self._chat = ChatTokenizer(self.target.tokenizer)
        self.stop_tokens = frozenset(self.target.info.eos_token_ids) | self._chat.stop_tokens
        self._reference = next((name for name, d in self.drafters.items() if d.is_reference), None)

    def text(self, drafter: str, prompt: Sequence[int], ask: Ask, origin: Origin) -> str:
        """The reply of one drafter; the first one asked has all of them answer.

        Raises:
            ContextTooLong: Prompt and reply do not fit the target.
            DrafterError: The drafter cannot do it, or broke down.
        """
        key = hashlib.sha256(repr((tuple(prompt), ask, origin)).encode()).hexdigest()
        if key not in self._known:
            played = self.play(prompt, ask, origin)
            for label, reply in played.replies.items():
                self.tallies.setdefault((origin.task, label), Tally()).add(reply.result)
            if self.on_round is not None:
                self.on_round(played)
            texts = {label: reply.text for label, reply in played.replies.items()}
            self._known[key] = texts, {label: str(lost.message) for label, lost in played.failed.items()}
        texts, failed = self._known[key]
        if drafter in failed:
            raise DrafterError(f"{drafter}: {failed[drafter]}")
        return texts[drafter]

    def check(self, num_prompt: int, max_new_tokens: int) -> None:
        """Check that a prompt and its reply fit the target.

        Raises:
            ContextTooLong: They do not.
        """
        info, wanted = self.target.info, num_prompt + max_new_tokens
        if wanted > info.max_positions and not info.extrapolate:
            raise ContextTooLong(
                f"A prompt of {num_prompt:,} tokens with up to {max_new_tokens:,} of reply exceeds the "
                f"{info.max_positions:,} positions that {info.name} was made for. Choose shorter prompts "
                "(--length), fewer shots or a smaller max_gen_toks, or allow extrapolation."
            )

    def play(self, prompt: Sequence[int], ask: Ask, origin: Origin) -> Round:
        """Prefill once, then let every drafter write its reply from there.

        Raises:
            ContextTooLong: Prompt and reply do not fit the target.
        """
        self.check(len(prompt), ask.max_new_tokens)
        entrants = [self._entrant(label, ask, len(prompt)) for label in self.drafters]
        tokens, start = torch.tensor(list(prompt), dtype=torch.int64), len(prompt)
        cache = self._cache_for(start + ask.max_new_tokens + self.draft_budget + 1)
        clock = Clock(self.target.device)
        before = clock.now()
        requires = requires_of(entrants, self.target.info.num_layers)
        first = self.target.prefill(tokens, cache, requires)
        prefill_s = clock.now() - before
        replies: dict[str, Reply] = {}
        turn: TracedTurn | None = None
        for entrant in filter(lambda entrant: entrant.is_running, entrants):
            cache.truncate(start)
            with guarded(entrant):
                entrant.drafter.reset()
                result = live_turn(
                    self.target,
                    cache,
                    entrant.drafter,
                    Sampler(ask.sampling, self._seed_of(prompt, ask, entrant.label)),
                    ingested=tokens,
                    ingested_features=first.features,
                    first_logits=first.logits.reshape(-1),
                    budget=self.draft_budget,
                    max_new_tokens=ask.max_new_tokens,
                    stop_tokens=self.stop_tokens,
                    read_held=held_by,
                    ends_at=StopStrings(self._chat.decode, ask.until),
                )
                if entrant.label == self._reference:
                    turn = self._traced(tokens, first.features, first.logits, result, cache, prefill_s, ask)
                replies[entrant.label] = self._reply(entrant, result, ask, turn)
        failed = {entrant.label: entrant for entrant in entrants if not entrant.is_running}
        return Round(origin, tuple(prompt), ask, turn, replies, failed, cache)

    def _entrant(self, label: str, ask: Ask, num_prompt: int) -> Entrant:
        entrant = Entrant(label, self.drafters[label])
        with guarded(entrant):
            reason = entrant.drafter.skip(CellFacts(ask.sampling.is_greedy, num_prompt, "live"))
            if reason:
                entrant.fail("incompatible", reason)
        return entrant

    def _reply(self, entrant: Entrant, result: TurnResult, ask: Ask, turn: TracedTurn | None) -> Reply:
        stops = StopStrings(self._chat.decode, ask.until)
        text = self._chat.decode(result.tokens)
        judged = None
        if turn is not None and ask.sampling.is_greedy:
            traced, gaps = turn.tokens.tolist(), turn.gaps.tolist()
            judged = judge(result.tokens, traced, gaps, self.target.tolerance_dtype)
        return Reply(stops.cut(text), result, self._has_ended(result, ask), judged, entrant.drafter)

    def _has_ended(self, result: TurnResult, ask: Ask) -> bool:
        text = self._chat.decode(result.tokens)
        return result.tokens[-1] in self.stop_tokens or any(stop in text for stop in ask.until if stop)

    def _traced(
        self,
        prompt: torch.Tensor,
        features: Features,
        logits: torch.Tensor,
        result: TurnResult,
        cache: KVCache,
        prefill_s: float,
        ask: Ask,
    ) -> TracedTurn:
        """The target's own reply as a trace: one pass over it gives all log-probabilities."""
        tokens = torch.tensor(result.tokens, dtype=torch.int64)
        rows = [logits.reshape(1, -1)]
        cache.truncate(len(prompt))
        if len(tokens) > 1:
            walked = self.target.prefill(tokens[:-1], cache, Requires(logits=True)).features.logits
            assert walked is not None
            rows.append(walked)
        said = torch.cat(rows).cpu()
        top = said.topk(2, dim=-1).values
        if ask.sampling.is_greedy:
            logprobs = said.double().log_softmax(-1)
        else:
            logprobs = Sampler(ask.sampling, 0).probabilities(said).log()
        return TracedTurn(
            prompt=prompt,
            ingested=prompt,
            ingested_features=features,
            first_logits=logits.reshape(-1),
            tokens=tokens,
            reply_features=Features(),
            logprobs=logprobs.gather(1, tokens[:, None]).squeeze(1),
            gaps=(top[:, 0] - top[:, 1]).double(),
            stop_reason="eos" if self._has_ended(result, ask) else "limit",
            start=len(prompt),
            prefill_s=prefill_s,
            decode_s=result.decode_s,
        )

    def _cache_for(self, capacity: int) -> KVCache:
        """The one cache, emptied; made anew only for a longer prompt than any before."""
        info = self.target.info
        if not info.extrapolate:
            capacity = min(capacity, info.max_positions)
        if self._cache is None or self._cache.capacity < capacity:
            self._cache = None  # let go of the old one before the new one is made
            self._cache = self.target.new_cache(capacity)
        self._cache.truncate(0)
        return self._cache

    def _seed_of(self, prompt: Sequence[int], ask: Ask, label: str) -> int:
        """Depends on the prompt and not on the order in which prompts come."""
        text = repr((self.seed, tuple(prompt), ask.take, ask.sampling.label, label))
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
