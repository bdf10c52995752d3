"""Replies to prompts of other tools: one prefill, then the real loop once for each drafter."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch

from hyflash_bench.drafters.base import CellFacts, Drafter, Features, Requires
from hyflash_bench.drafters.sampler import Sampler
from hyflash_bench.engine.live import live_turn
from hyflash_bench.engine.lossless import Judgement, judge
from hyflash_bench.engine.prefix import Prefix
from hyflash_bench.engine.steps import TurnResult
from hyflash_bench.engine.tally import Tally
from hyflash_bench.engine.trace import TracedTurn
from hyflash_bench.errors import ContextTooLong, DrafterError
from hyflash_bench.integrations.prompts import CHUNK_SIZE, Ask, Prompt
from hyflash_bench.integrations.stops import StopStrings
from hyflash_bench.memory.ledger import held_by
from hyflash_bench.runner.entrant import Entrant, guarded, requires_of
from hyflash_bench.suites.chat import ChatTokenizer
from hyflash_bench.targets.cache import KVCache
from hyflash_bench.targets.target import Target

__all__ = ["Answers", "Replies", "Reply", "Round", "Shelf"]


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
    """Drafters on one prompt.

    Attributes:
        prompt: What was asked.
        turn: The target alone, with log-probabilities; None if it was not among the drafters.
        replies: By label.
        failed: Drafters that broke down, with how they stand.
        cache: The target's.
    """

    prompt: Prompt
    turn: TracedTurn | None
    replies: dict[str, Reply]
    failed: dict[str, Entrant]
    cache: KVCache


@dataclass(slots=True)
class Answers:
    """What is known of the replies to one prompt.

    Attributes:
        texts: By label.
        failed: By label, why there is no text.
        turn: The target alone, which the drafters that are still to come are held against.
    """

    texts: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    turn: TracedTurn | None = None

    def lacks(self, label: str) -> bool:
        """Whether a drafter has not been asked yet."""
        return label not in self.texts and label not in self.failed


class Shelf(Protocol):
    """Where replies outlast the process."""

    def expect(self, prompts: Sequence[Prompt]) -> None:
        """Told of all prompts before the first is answered."""

    def recall(self, prompt: Prompt) -> Answers:
        """What an earlier process kept."""

    def keep(self, played: Round) -> None:
        """Take in what was just answered."""


@dataclass
class Replies:
    """Answers prompts, and remembers the answers: each drafter's are asked for in turn.

    Attributes:
        target: The model.
        drafters: Loaded, by label; if plain decoding is among them, the others are held against it.
        draft_budget: Most tokens of a draft.
        seed: Of every random choice.
        shelf: Keeps the answers; None to have them in this process only.
        tallies: What was achieved, by task and label.
    """

    target: Target
    drafters: Mapping[str, Drafter]
    draft_budget: int = 16
    seed: int = 0
    shelf: Shelf | None = None
    tallies: dict[tuple[str, str], Tally] = field(default_factory=dict)
    _known: dict[str, Answers] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Look up what does not change."""
        self._chat = ChatTokenizer(self.target.tokenizer)
        self._prefix = Prefix(self.target, CHUNK_SIZE)
        self._reference = next((name for name, d in self.drafters.items() if d.is_reference), None)
        self.stop_tokens = frozenset(self.target.info.eos_token_ids) | self._chat.stop_tokens

    def answer(self, drafter: str, prompts: Sequence[Prompt]) -> Iterator[tuple[int, str]]:
        """Replies of one drafter, each with its place; those that share a beginning follow each other.

        The first drafter asked has all of them answer.

        Raises:
            ContextTooLong: A prompt and its reply do not fit the target.
            DrafterError: The drafter cannot do it, or broke down.
        """
        for prompt in prompts:
            self._check(prompt)
        self._prefix.reserve(max(map(self._capacity, prompts), default=1))
        if self.shelf is not None:
            self.shelf.expect(prompts)
        for index in sorted(range(len(prompts)), key=lambda i: prompts[i].tokens):
            answers = self._answers(prompts[index])
            if drafter in answers.failed:
                raise DrafterError(f"{drafter}: {answers.failed[drafter]}")
            yield index, answers.texts[drafter]

    def play(
        self, prompt: Prompt, labels: Sequence[str] | None = None, turn: TracedTurn | None = None
    ) -> Round:
        """Prefill once, then let drafters write their replies from there.

        Args:
            prompt: What is asked.
            labels: Drafters; None for all.
            turn: The target alone, where it was asked before.

        Raises:
            ContextTooLong: Prompt and reply do not fit the target.
        """
        self._check(prompt)
        self._prefix.reserve(self._capacity(prompt))
        ask, start = prompt.ask, len(prompt.tokens)
        entrants = [self._entrant(label, prompt) for label in labels or self.drafters]
        self._prefix.read(prompt.tokens, requires_of(entrants, self.target.info.num_layers))
        cache, features = self._prefix.cache, self._prefix.features
        tokens, first_logits = torch.tensor(prompt.tokens), self._prefix.logits
        stops = StopStrings(self._chat.decode, ask.until)
        replies: dict[str, Reply] = {}
        for entrant in filter(lambda entrant: entrant.is_running, entrants):
            cache.truncate(start)
            with guarded(entrant):
                entrant.drafter.reset()
                result = live_turn(
                    self.target,
                    cache,
                    entrant.drafter,
                    Sampler(ask.sampling, self._seed_of(prompt, entrant.label)),
                    ingested=tokens,
                    ingested_features=features,
                    first_logits=first_logits,
                    budget=self.draft_budget,
                    max_new_tokens=ask.max_new_tokens,
                    stop_tokens=self.stop_tokens,
                    read_held=held_by,
                    ends_at=stops,
                )
                has_ended = result.tokens[-1] in self.stop_tokens or stops.end(result.tokens)
                if entrant.label == self._reference:
                    turn = self._traced(tokens, features, first_logits, result, ask, has_ended=has_ended)
                judged = self._judged(result, turn) if turn is not None and ask.sampling.is_greedy else None
                text = stops.text(result.tokens)
                replies[entrant.label] = Reply(text, result, has_ended, judged, entrant.drafter)
        failed = {entrant.label: entrant for entrant in entrants if not entrant.is_running}
        return Round(prompt, turn, replies, failed, cache)

    def _answers(self, prompt: Prompt) -> Answers:
        key = hashlib.sha256(repr(prompt).encode()).hexdigest()
        if key not in self._known:
            answers = Answers() if self.shelf is None else self.shelf.recall(prompt)
            missing = [label for label in self.drafters if answers.lacks(label)]
            if missing:
                played = self.play(prompt, missing, answers.turn)
                answers.texts |= {label: reply.text for label, reply in played.replies.items()}
                answers.failed |= {label: str(lost.message) for label, lost in played.failed.items()}
                for label, reply in played.replies.items():
                    who, said = (prompt.origin.task, label), reply.result
                    self.tallies[who] = self.tallies.get(who, Tally()) + Tally.of(said.steps, said.decode_s)
                if self.shelf is not None:
                    self.shelf.keep(played)
            answers.turn = None
            self._known[key] = answers
        return self._known[key]

    def _check(self, prompt: Prompt) -> None:
        info = self.target.info
        if prompt.num_tokens > info.max_positions and not info.extrapolate:
            raise ContextTooLong(
                f"A prompt of {len(prompt.tokens):,} tokens with up to {prompt.ask.max_new_tokens:,} of "
                f"reply exceeds the {info.max_positions:,} positions that {info.name} was made for. Choose "
                "shorter prompts (--length), fewer shots or a smaller max_gen_toks, or allow extrapolation."
            )

    def _capacity(self, prompt: Prompt) -> int:
        """Tokens of prompt, reply and last draft."""
        info, wanted = self.target.info, prompt.num_tokens + self.draft_budget + 1
        return wanted if info.extrapolate else min(wanted, info.max_positions)

    def _entrant(self, label: str, prompt: Prompt) -> Entrant:
        entrant = Entrant(label, self.drafters[label])
        with guarded(entrant):
            facts = CellFacts(prompt.ask.sampling.is_greedy, len(prompt.tokens), "live")
            reason = entrant.drafter.skip(facts)
            if reason:
                entrant.fail("incompatible", reason)
        return entrant

    def _judged(self, result: TurnResult, turn: TracedTurn) -> Judgement:
        return judge(result.tokens, turn.tokens.tolist(), turn.gaps.tolist(), self.target.tolerance_dtype)

    def _traced(
        self,
        prompt: torch.Tensor,
        features: Features,
        first_logits: torch.Tensor,
        result: TurnResult,
        ask: Ask,
        *,
        has_ended: bool,
    ) -> TracedTurn:
        """The target's own reply as a trace: one pass over it gives all log-probabilities."""
        tokens = torch.tensor(result.tokens, dtype=torch.int64)
        rows = [first_logits[None]]
        cache = self._prefix.cache
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
            first_logits=first_logits,
            tokens=tokens,
            reply_features=Features(),
            logprobs=logprobs.gather(1, tokens[:, None]).squeeze(1),
            gaps=(top[:, 0] - top[:, 1]).double(),
            stop_reason="eos" if has_ended else "limit",
            start=len(prompt),
            prefill_s=self._prefix.seconds,
            decode_s=result.decode_s,
            held=[sum(tensor.nbytes for tensor in features.tensors())] * (len(tokens) - 1),
        )

    def _seed_of(self, prompt: Prompt, label: str) -> int:
        """Depends on the prompt and not on the order in which prompts come."""
        ask = prompt.ask
        text = repr((self.seed, prompt.tokens, ask.take, ask.sampling.label, label))
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
