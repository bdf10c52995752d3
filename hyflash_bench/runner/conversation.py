"""One conversation from trace to records: the life of a piece of work inside the worker."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

import torch

from hyflash_bench.drafters.base import CellFacts, Drafter, Requires
from hyflash_bench.drafters.sampler import Sampler
from hyflash_bench.engine.ingest import ingest
from hyflash_bench.engine.live import live_turn
from hyflash_bench.engine.lossless import judge
from hyflash_bench.engine.repetition import DEGENERATE_SHARE, copied_share, repeated_share
from hyflash_bench.engine.replay import replay_turn
from hyflash_bench.engine.steps import Steps, TurnResult
from hyflash_bench.engine.trace import Known, Trace, TracedTurn, trace_conversation
from hyflash_bench.errors import ContextTooLong, HyFlashError
from hyflash_bench.memory.ledger import drafter_memory, process_memory, working_bytes
from hyflash_bench.results.records import (
    ConversationRecord,
    Status,
    StepColumns,
    TraceRecord,
    TraceTurn,
    TurnRecord,
)
from hyflash_bench.runner.caps import apply_cap
from hyflash_bench.runner.events import ConversationFinished, Event, PhaseStarted, TurnFinished
from hyflash_bench.runner.work import Work, WorkResult
from hyflash_bench.suites.chat import ChatTokenizer
from hyflash_bench.suites.conversation import Conversation
from hyflash_bench.suites.scoring import score
from hyflash_bench.targets.cache import KVCache
from hyflash_bench.targets.target import Target

__all__ = ["ConversationRunner"]

Listener = Callable[[Event], None]


@dataclass(slots=True)
class _Runner:
    """One drafter on its way through the conversation."""

    label: str
    drafter: Drafter
    turns: dict[tuple[int, Literal["replay", "live"]], list[TurnRecord]] = field(default_factory=dict)
    status: Status = "ok"
    message: str | None = None
    stands_before: int | None = None  # the turn that its state is ready for

    @property
    def is_running(self) -> bool:
        """Whether its turns count (a mismatch is measured to the end)."""
        return self.status in ("ok", "mismatch")

    def fail(self, status: Status, message: str) -> None:
        self.status, self.message = status, message


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
        """Trace, replay and live for every cell of the work."""
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
        record = self._trace_record(work, conversation, trace)
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
                requires = requires | runner.drafter.requires
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

    def _trace_record(self, work: Work, conversation: Conversation, trace: Trace) -> TraceRecord:
        turns = []
        context: list[int] = []
        for index, turn in enumerate(trace.turns):
            context += turn.prompt.tolist()
            tokens = turn.tokens.tolist()
            text = self._chat.decode(tokens)
            repeated = repeated_share(tokens)
            expected = conversation.turns[index].expected
            turns.append(
                TraceTurn(
                    turn=index,
                    context_length=turn.start,
                    prompt_tokens=turn.prompt.tolist(),
                    tokens=tokens,
                    logprobs=turn.logprobs.tolist(),
                    gaps=turn.gaps.tolist(),
                    stop_reason=turn.stop_reason,
                    text=text,
                    repeated_share=repeated,
                    copied_share=copied_share(tokens, context),
                    degenerate=repeated > DEGENERATE_SHARE,
                    score=None if expected is None else score(expected, text),
                )
            )
            context += tokens
        item = conversation.item
        return TraceRecord(
            trace_id=work.trace_id,
            item_id=item.item_id,
            suite=item.suite,
            task=item.task,
            kind=item.kind,
            category=item.category,
            content_hash=conversation.content_hash,
            sampling=work.sampling.label,
            temperature=work.sampling.temperature,
            seed=work.seed,
            extrapolated=trace.turns[-1].start + trace.turns[-1].num_tokens > self._target.info.max_positions,
            context_rung=item.context_length,
            turns=turns,
            prefill_s=sum(turn.prefill_s for turn in trace.turns),
            decode_s=sum(turn.decode_s or 0.0 for turn in trace.turns),
            recorded_at=_now(),
        )

    # -- replay and live -----------------------------------------------------------------------

    def _replay_all(self, work: Work, trace: Trace, runners: Sequence[_Runner], cache: KVCache) -> None:
        for runner in runners:
            if not runner.is_running or self._skip_reason(runner, work, "replay"):
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
                    if not runner.is_running or self._skip_reason(runner, work, "live"):
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
        mode: Literal["replay", "live"],
        index: int,
        turn: TracedTurn,
        trace: Trace,
        result: TurnResult,
        cache: KVCache,
    ) -> None:
        steps = result.steps
        judged = None
        if mode == "live" and work.sampling.is_greedy:
            judged = judge(result.tokens, turn.tokens.tolist(), turn.gaps.tolist(), self._target.dtype)
            if judged.verdict == "mismatch":
                runner.fail(
                    "mismatch",
                    f"turn {index}: live output leaves the target's own at token {judged.position} "
                    f"(top-two logit gap {judged.gap})",
                )
        differs = result.tokens != turn.tokens.tolist()
        info = self._target.info
        record = TurnRecord(
            turn=index,
            mode=mode,
            context_length=turn.start,
            num_prompt_tokens=len(turn.prompt),
            num_output_tokens=len(result.tokens),
            stop_reason="eos" if result.tokens[-1] in self._stops else "limit",
            steps=_columns(steps),
            prefill_s=None if mode == "replay" else turn.prefill_s,
            observe_prompt_s=result.observe_prompt_s,
            ttft_s=None
            if result.observe_prompt_s is None or result.choose_s is None
            else turn.prefill_s + result.observe_prompt_s + result.choose_s,
            decode_s=result.decode_s,
            lossless="not_judged" if judged is None else judged.verdict,
            divergence_position=None if judged is None else judged.position,
            divergence_gap=None if judged is None else judged.gap,
            output_tokens=result.tokens if differs else None,
            memory={
                "target_weights": info.weight_bytes,
                "target_kv": (turn.start + len(result.tokens) - 1) * info.kv_bytes_per_token,
                "target_kv_allocated": cache.bytes(),
                "features": trace.held_bytes(),
                "logits": 4 * info.vocab_size * (max(steps.drafted, default=0) + 1),
                **drafter_memory(runner.drafter),
                **process_memory(),
            },
        )
        runner.turns.setdefault((index, mode), []).append(record)
        rate = (len(result.tokens) - 1) / result.decode_s if result.decode_s else None
        num_steps = len(steps.committed)
        self._tell(
            TurnFinished(
                work.item_id,
                runner.label,
                mode,
                index,
                sum(steps.committed) / num_steps if num_steps else None,
                rate,
            )
        )

    # -- records -------------------------------------------------------------------------------

    def _skip(self, runner: _Runner, work: Work, conversation: Conversation) -> None:
        modes: tuple[Literal["replay", "live"], ...]
        modes = ("replay", "live") if work.mode == "both" else (work.mode,)
        reasons = [self._skip_reason(runner, work, mode, conversation) for mode in modes]
        if all(reasons):
            runner.fail("incompatible", str(reasons[0]))

    def _skip_reason(
        self,
        runner: _Runner,
        work: Work,
        mode: Literal["replay", "live"],
        conversation: Conversation | None = None,
    ) -> str | None:
        context = None if conversation is None else conversation.item.context_length
        return runner.drafter.skip(CellFacts(work.sampling.is_greedy, context, None, mode))

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
                recorded_at=_now(),
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
    except (MemoryError, torch.OutOfMemoryError) as error:
        runner.fail("oom", f"out of memory: {error}")
    except HyFlashError as error:
        runner.fail("error", str(error))
    except Exception as error:  # noqa: BLE001 - a drafter may be anybody's code
        where = error.__traceback__
        while where is not None and where.tb_next is not None:
            where = where.tb_next
        line = f" ({where.tb_frame.f_code.co_qualname}, line {where.tb_lineno})" if where else ""
        runner.fail("error", f"{type(error).__name__}: {error}{line}")


def _columns(steps: Steps) -> StepColumns:
    timed = bool(steps.draft_s)
    return StepColumns(
        drafted=steps.drafted,
        depth=steps.depth,
        accepted=steps.accepted,
        committed=steps.committed,
        eos_cut=steps.eos_cut,
        limit_cut=steps.limit_cut,
        draft_s=steps.draft_s if timed else None,
        verify_s=steps.verify_s if timed else None,
        observe_s=steps.observe_s if timed else None,
        drafter_bytes=steps.drafter_bytes or None,
    )


def _rotated(runners: Sequence[_Runner], by: int) -> list[_Runner]:
    shift = by % len(runners)
    return [*runners[shift:], *runners[:shift]]


def _seed(work: Work, *purpose: object) -> int:
    """A seed that depends on the conversation and the purpose, not on the order of work."""
    text = repr((work.seed, work.item_id, work.sampling.label, purpose))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
