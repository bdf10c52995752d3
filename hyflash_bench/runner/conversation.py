"""One conversation from trace to records: the life of a piece of work inside the worker."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

import torch

from hyflash_bench.drafters.base import CellFacts, Drafter, Requires
from hyflash_bench.drafters.sampler import Sampler
from hyflash_bench.engine.ingest import ingest
from hyflash_bench.engine.live import live_turn
from hyflash_bench.engine.lossless import judge
from hyflash_bench.engine.replay import replay_turn
from hyflash_bench.engine.steps import TurnResult
from hyflash_bench.engine.trace import Known, Trace, TracedTurn, trace_conversation
from hyflash_bench.errors import ContextTooLong, DrafterError, HyFlashError, TargetError
from hyflash_bench.memory.ledger import (
    drafter_memory,
    logits_bytes,
    process_memory,
    target_memory,
    working_bytes,
)
from hyflash_bench.results.records import ConversationRecord, Status, TurnRecord
from hyflash_bench.runner.caps import apply_cap
from hyflash_bench.runner.events import ConversationFinished, Event, PhaseStarted, described
from hyflash_bench.runner.recording import now, trace_record, turn_finished, turn_record
from hyflash_bench.runner.work import Work, WorkResult
from hyflash_bench.suites.chat import ChatTokenizer
from hyflash_bench.suites.conversation import Conversation
from hyflash_bench.targets.cache import KVCache
from hyflash_bench.targets.target import Target

__all__ = ["ConversationRunner", "is_out_of_memory"]

Listener = Callable[[Event], None]
Mode = Literal["replay", "live"]

_OUT_OF_MEMORY = ("DefaultCPUAllocator", "not enough memory", "out of memory")


@dataclass(slots=True)
class _Runner:
    """One drafter on its way through the conversation."""

    label: str
    drafter: Drafter
    turns: dict[tuple[int, Mode], list[TurnRecord]] = field(default_factory=dict)
    skipped: dict[Mode, str] = field(default_factory=dict)  # with the drafter's reason
    status: Status = "ok"
    message: str | None = None
    stands_before: int | None = None  # the turn that its state is ready for

    @property
    def is_running(self) -> bool:
        """Whether its turns count (a mismatch is measured to the end)."""
        return self.status in ("ok", "mismatch")

    def fail(self, status: Status, message: str) -> None:
        # A drafter's message may hold half characters, which no file takes.
        self.status, self.message = status, message.encode(errors="backslashreplace").decode()


class ConversationRunner:
    """Runs pieces of work on one loaded target.

    Args:
        target: The model.
        drafters: Loaded drafters by label.
        listener: Told what goes on.
    """

    def __init__(self, target: Target, drafters: dict[str, Drafter], listener: Listener) -> None:
        self._target = target
        self._drafters = drafters
        self._tell = listener
        self._chat = ChatTokenizer(target.tokenizer)
        self._stops = frozenset(target.info.eos_token_ids) | self._chat.stop_tokens
        self._cache: KVCache | None = None

    def run(self, work: Work, conversation: Conversation) -> WorkResult:
        """Trace, replay and live for every cell of the work.

        Raises:
            TargetError: The target computes something that is no number.
        """
        runners = [_Runner(spec.label, self._drafters[spec.label]) for spec in work.drafters]
        for runner in runners:
            self._skip(runner, work, conversation)
        try:
            capacity = self._capacity(work, conversation)
        except ContextTooLong as error:
            for runner in runners:
                runner.fail("incompatible", str(error))
            return WorkResult(trace=None, conversations=tuple(self._records(work, runners)))
        cache = self._cache_for(capacity)
        trace = self._trace(work, conversation, cache, runners)
        _require_finite(trace)
        record = trace_record(work, conversation, trace, self._chat, self._target.info)
        if work.mode != "live":
            self._replay_all(work, trace, runners, cache)
        if work.mode != "replay":
            self._live_all(work, trace, runners, cache)
        records = tuple(self._records(work, runners))
        for done in records:
            label = next(c.drafter.label for c in work.cells if c.cell_id == done.cell_id)
            self._tell(ConversationFinished(work.item_id, label, done.status, done.message))
        return WorkResult(trace=None if work.known else record, conversations=records)

    # -- trace ---------------------------------------------------------------------------------

    def _prompt(self, conversation: Conversation, turn: int, reply_ended: bool) -> list[int]:
        text = conversation.turns[turn].text
        if turn == 0:
            return self._chat.first_turn(text, conversation.system)
        return self._chat.next_turn(text, reply_ended=reply_ended)

    def _capacity(self, work: Work, conversation: Conversation) -> int:
        """Positions that the conversation can need at most, drafts included.

        Raises:
            ContextTooLong: The text alone goes past the target's limit.
        """
        num_turns = len(conversation.turns)
        prompts = sum(len(self._prompt(conversation, turn, False)) for turn in range(num_turns))
        text = prompts + num_turns * work.max_new_tokens
        limit = self._target.info.max_positions
        if text > limit and not self._target.info.extrapolate:
            raise ContextTooLong(
                f"{work.item_id} can need {text:,} tokens ({prompts:,} of prompt, {num_turns} replies of "
                f"up to {work.max_new_tokens}), but {self._target.info.name} was made for {limit:,}. "
                "Use a smaller --max-new-tokens or --contexts, another target, or --extrapolate."
            )
        with_drafts = text + work.draft_budget + 1
        return with_drafts if self._target.info.extrapolate else min(with_drafts, limit)

    def _cache_for(self, capacity: int) -> KVCache:
        if self._cache is None or self._cache.capacity < capacity:
            self._cache = None  # let go of the old one before the new one is made
            self._cache = self._target.new_cache(capacity)
        self._cache.truncate(0)
        return self._cache

    def _trace(
        self, work: Work, conversation: Conversation, cache: KVCache, runners: Sequence[_Runner]
    ) -> Trace:
        requires = Requires()
        for runner in runners:
            if runner.is_running:
                with _guarded(runner):
                    requires = requires | self._requires(runner.drafter)
        known = None
        if work.known is not None:
            known = [Known(t.tokens, t.logprobs, t.gaps, t.stop_reason) for t in work.known.turns]
        self._tell(PhaseStarted(work.item_id, "prefill" if known else "trace", None))
        return trace_conversation(
            self._target,
            cache,
            lambda turn, ended: self._prompt(conversation, turn, ended),
            len(conversation.turns),
            Sampler(work.sampling, _seed(work, "trace")),
            max_new_tokens=work.max_new_tokens,
            stop_tokens=self._stops,
            requires=requires,
            known=known,
        )

    def _requires(self, drafter: Drafter) -> Requires:
        """What a drafter reads, refused if the target has it not: one trace serves all drafters.

        Raises:
            DrafterError: A layer that the target has not got.
        """
        requires, num_layers = drafter.requires, self._target.info.num_layers
        absent = [layer for layer in requires.taps if not 0 <= layer < num_layers]
        if absent:
            raise DrafterError(
                f"Drafter {drafter.name} reads layer {absent[0]}; the target has 0 to {num_layers - 1}."
            )
        return requires

    # -- replay and live -----------------------------------------------------------------------

    def _replay_all(self, work: Work, trace: Trace, runners: Sequence[_Runner], cache: KVCache) -> None:
        for runner in runners:
            if not runner.is_running or "replay" in runner.skipped:
                continue
            self._tell(PhaseStarted(work.item_id, "replay", runner.label))
            with _guarded(runner):
                runner.drafter.reset()
                sampler = Sampler(work.sampling, _seed(work, "replay", runner.label))
                for index, turn in enumerate(trace.turns):
                    result = replay_turn(
                        runner.drafter,
                        turn,
                        sampler,
                        budget=work.draft_budget,
                        capacity=cache.capacity,
                        vocab_size=self._target.info.vocab_size,
                        stop_tokens=self._stops,
                        drafter_bytes=working_bytes,
                    )
                    self._keep(work, runner, "replay", index, turn, trace, result, cache)
            runner.stands_before = None

    def _live_all(self, work: Work, trace: Trace, runners: Sequence[_Runner], cache: KVCache) -> None:
        """Turn by turn, drafters interleaved, so that the machine's moods hit all of them alike."""
        repeats = sorted({cell.repeat for cell in work.cells})
        samplers = {
            (runner.label, repeat): Sampler(work.sampling, _seed(work, "live", runner.label, repeat))
            for runner in runners
            for repeat in repeats
        }
        for index, turn in enumerate(trace.turns):
            reach = turn.start + work.max_new_tokens + work.draft_budget + 1
            saved = cache.save(turn.start, min(reach, cache.capacity))
            for repeat in repeats:
                for runner in _rotated(runners, by=index + repeat):
                    if not runner.is_running or "live" in runner.skipped:
                        continue
                    self._tell(PhaseStarted(work.item_id, "live", runner.label))
                    cache.length = turn.start
                    with _guarded(runner):
                        self._live(work, trace, index, runner, samplers[runner.label, repeat], cache)
            cache.restore(saved)

    def _live(
        self,
        work: Work,
        trace: Trace,
        index: int,
        runner: _Runner,
        sampler: Sampler,
        cache: KVCache,
    ) -> None:
        turn = trace.turns[index]
        if runner.stands_before != index:
            runner.drafter.reset()
            ingest(runner.drafter, *trace.history(index))
        runner.stands_before = None
        result = live_turn(
            self._target,
            cache,
            runner.drafter,
            sampler,
            ingested=turn.ingested,
            ingested_features=turn.ingested_features,
            first_logits=turn.first_logits,
            budget=work.draft_budget,
            max_new_tokens=work.max_new_tokens,
            stop_tokens=self._stops,
        )
        if result.tokens == turn.tokens.tolist():
            runner.stands_before = index + 1
        self._keep(work, runner, "live", index, turn, trace, result, cache)

    def _keep(
        self,
        work: Work,
        runner: _Runner,
        mode: Mode,
        index: int,
        turn: TracedTurn,
        trace: Trace,
        result: TurnResult,
        cache: KVCache,
    ) -> None:
        tokens = turn.tokens.tolist()
        judged = None
        if mode == "live" and work.sampling.is_greedy:
            judged = judge(result.tokens, tokens, turn.gaps.tolist(), self._target.dtype)
            if judged.verdict == "mismatch":
                runner.fail(
                    "mismatch",
                    f"turn {index}: live output leaves the target's own at token {judged.position} "
                    f"(top-two logit gap {judged.gap})",
                )
        memory = {
            **target_memory(self._target, cache, turn.start + len(result.tokens) - 1),
            "features": trace.held_bytes(),
            "logits": logits_bytes(self._target, max(result.steps.drafted, default=0) + 1),
            **drafter_memory(runner.drafter),
            **process_memory(),
        }
        record = turn_record(index, mode, turn, result, judged, self._stops, memory)
        runner.turns.setdefault((index, mode), []).append(record)
        self._tell(turn_finished(work.item_id, runner.label, record))

    # -- records -------------------------------------------------------------------------------

    def _skip(self, runner: _Runner, work: Work, conversation: Conversation) -> None:
        """Ask once, for each mode, whether the drafter can run this conversation."""
        modes: tuple[Mode, ...] = ("replay", "live") if work.mode == "both" else (work.mode,)
        context = conversation.item.context_length
        with _guarded(runner):
            for mode in modes:
                reason = runner.drafter.skip(CellFacts(work.sampling.is_greedy, context, mode))
                if reason:
                    runner.skipped[mode] = reason
        if runner.is_running and len(runner.skipped) == len(modes):
            runner.fail("incompatible", runner.skipped[modes[0]])

    def _records(self, work: Work, runners: Sequence[_Runner]) -> Iterator[ConversationRecord]:
        by_label = {runner.label: runner for runner in runners}
        repeats = sorted({cell.repeat for cell in work.cells})
        for cell in work.cells:
            runner = by_label[cell.drafter.label]
            turns: list[TurnRecord] = []
            measured = sorted(runner.turns.items()) if runner.is_running else []
            for (_, mode), repetitions in measured:
                if mode == "live":
                    turns.append(repetitions[repeats.index(cell.repeat)])
                elif cell.repeat == 0:
                    turns += repetitions
            record = ConversationRecord(
                cell_id=cell.cell_id,
                item_id=work.item_id,
                trace_id=work.trace_id,
                status=runner.status,
                message=runner.message,
                turns=turns,
                recorded_at=now(),
            )
            if cell.memory_cap_bytes is not None:
                record = apply_cap(
                    record,
                    cell_id=cell.cell_id,
                    cap_bytes=cell.memory_cap_bytes,
                    kv_bytes_per_token=self._target.info.kv_bytes_per_token,
                )
            yield record


@contextmanager
def _guarded(runner: _Runner) -> Iterator[None]:
    """A drafter's failure is a row of its own cell; the others go on."""
    try:
        yield
    except HyFlashError as error:
        runner.fail("error", str(error))
    except Exception as error:  # noqa: BLE001 - a drafter may be anybody's code
        if is_out_of_memory(error):
            runner.fail("oom", f"out of memory: {error}")
        else:
            runner.fail("error", described(error))


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out; torch's CPU allocator says so in words only."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _OUT_OF_MEMORY)


def _require_finite(trace: Trace) -> None:
    for index, turn in enumerate(trace.turns):
        if not (turn.logprobs.isfinite().all() and turn.gaps.isfinite().all()):
            raise TargetError(
                f"turn {index}: the target's logits are NaN or infinite. Use another --dtype; float16 "
                "overflows on many models."
            )


def _rotated(runners: Sequence[_Runner], by: int) -> list[_Runner]:
    shift = by % len(runners)
    return [*runners[shift:], *runners[:shift]]


def _seed(work: Work, *purpose: object) -> int:
    """A seed that depends on the conversation and the purpose, not on the order of work."""
    text = repr((work.seed, work.item_id, work.sampling.label, purpose))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
