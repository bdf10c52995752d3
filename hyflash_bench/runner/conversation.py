"""One conversation from trace to records: the life of a piece of work inside the worker."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from hyflash_bench.drafters.base import CellFacts, Drafter
from hyflash_bench.drafters.sampler import Sampler
from hyflash_bench.engine.ingest import ingest
from hyflash_bench.engine.live import live_turn
from hyflash_bench.engine.lossless import Judgement, judge
from hyflash_bench.engine.prefix import Prefix
from hyflash_bench.engine.replay import replay_turn
from hyflash_bench.engine.steps import TurnResult
from hyflash_bench.engine.trace import Known, Trace, trace_conversation
from hyflash_bench.errors import ContextTooLong, TargetError
from hyflash_bench.memory.ledger import held_by, ledger_of, workspace_measured
from hyflash_bench.memory.meters import Meter
from hyflash_bench.results.records import TurnRecord
from hyflash_bench.runner.bookkeeping import book
from hyflash_bench.runner.entrant import Entrant, Mode, guarded, is_out_of_memory, requires_of, rotated
from hyflash_bench.runner.events import ConversationFinished, Event, Log, PhaseStarted
from hyflash_bench.runner.outcomes import records_of, uncapped
from hyflash_bench.runner.prompts import Prompts
from hyflash_bench.runner.recording import trace_record, turn_finished, turn_record
from hyflash_bench.runner.work import Work, WorkResult
from hyflash_bench.suites.chat import ChatTokenizer
from hyflash_bench.suites.conversation import Conversation
from hyflash_bench.targets.cache import KVCache
from hyflash_bench.targets.target import Target

__all__ = ["ConversationRunner", "is_out_of_memory"]

Listener = Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class _Scene:
    """What a conversation's replays and live loops share."""

    work: Work
    trace: Trace
    cache: KVCache
    meter: Meter


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
        self._ledger = ledger_of(target)
        self._prefix = Prefix(target)

    @property
    def context_length(self) -> int:
        """Tokens in the target's cache now."""
        return self._prefix.length

    def run(self, work: Work, conversation: Conversation) -> WorkResult:
        """Trace, replay and live for every cell of the work.

        Raises:
            TargetError: The target computes something that is no number.
        """
        entrants = [Entrant(spec.label, self._drafters[spec.label]) for spec in work.drafters]
        for entrant in entrants:
            self._skip(entrant, work, conversation)
        prompts = Prompts(conversation, self._chat)
        try:
            capacity = prompts.capacity(self._target.info, work.max_new_tokens, work.draft_budget)
        except ContextTooLong as error:
            for entrant in entrants:
                entrant.fail("incompatible", str(error))
            return WorkResult(trace=None, conversations=tuple(uncapped(work, entrants)))
        self._reserve(capacity)
        trace = self._trace(work, prompts, entrants)
        _require_finite(trace)
        with Meter(self._target.info.backend) as meter:
            scene = _Scene(work, trace, self._prefix.cache, meter)
            if work.mode != "live":
                self._replay_all(scene, entrants)
            if work.mode != "replay":
                self._live_all(scene, entrants)
            records = tuple(
                records_of(work, entrants, self._ledger, lambda *who: list(self._replay(scene, *who)))
            )
        for done in records:
            label = next(c.drafter.label for c in work.cells if c.cell_id == done.cell_id)
            self._tell(ConversationFinished(work.item_id, label, done.status, done.message))
        record = trace_record(work, conversation, trace, self._chat, self._target.info, self._ledger)
        return WorkResult(trace=None if work.known else record, conversations=records)

    # -- trace ---------------------------------------------------------------------------------

    def _reserve(self, capacity: int) -> None:
        try:
            self._prefix.reserve(capacity)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            raise MemoryError(
                f"the target's cache has no room for the {capacity:,} tokens of the whole conversation "
                f"({error})"
            ) from error

    def _trace(self, work: Work, prompts: Prompts, entrants: Sequence[Entrant]) -> Trace:
        known = None
        if work.known is not None:
            known = [Known(t.tokens, t.logprobs, t.gaps, t.stop_reason) for t in work.known.turns]
        self._tell(PhaseStarted(work.item_id, "prefill" if known else "trace", None))
        return trace_conversation(
            self._target,
            self._prefix,
            prompts.tokens,
            len(prompts),
            Sampler(work.sampling, _seed(work, "trace")),
            max_new_tokens=work.max_new_tokens,
            stop_tokens=self._stops,
            requires=requires_of(entrants, self._target.info.num_layers),
            known=known,
        )

    # -- replay and live -----------------------------------------------------------------------

    def _replay_all(self, scene: _Scene, entrants: Sequence[Entrant]) -> None:
        for entrant in entrants:
            if not entrant.does("replay"):
                continue
            self._tell(PhaseStarted(scene.work.item_id, "replay", entrant.label))
            with guarded(entrant):
                for record in self._replay(scene, entrant.label, entrant.drafter):
                    self._keep(scene, entrant, record)
            entrant.stands_before = None

    def _replay(self, scene: _Scene, label: str, drafter: Drafter) -> Iterator[TurnRecord]:
        """Walk the whole trace with a drafter."""
        drafter.reset()
        sampler = Sampler(scene.work.sampling, _seed(scene.work, "replay", label))
        for index, turn in enumerate(scene.trace.turns):
            scene.cache.length = turn.start  # read by those who watch how far the conversation is
            scene.meter.reset()
            result = replay_turn(
                drafter,
                turn,
                sampler,
                budget=scene.work.draft_budget,
                capacity=scene.cache.capacity,
                vocab_size=self._target.info.vocab_size,
                stop_tokens=self._stops,
                read_held=held_by,
            )
            yield self._record(scene, "replay", index, drafter, result)

    def _live_all(self, scene: _Scene, entrants: Sequence[Entrant]) -> None:
        """Turn by turn, drafters interleaved, so that the machine's moods hit all of them alike."""
        work, cache = scene.work, scene.cache
        repeats = sorted({cell.repeat for cell in work.cells})
        samplers = {
            (entrant.label, repeat): Sampler(work.sampling, _seed(work, "live", entrant.label, repeat))
            for entrant in entrants
            for repeat in repeats
        }
        for index, turn in enumerate(scene.trace.turns):
            reach = turn.start + work.max_new_tokens + work.draft_budget + 1
            saved = cache.save(turn.start, min(reach, cache.capacity))
            for repeat in repeats:
                for entrant in rotated(entrants, by=index + repeat):
                    if not entrant.does("live"):
                        continue
                    self._tell(PhaseStarted(work.item_id, "live", entrant.label))
                    cache.length = turn.start
                    with guarded(entrant):
                        self._live(scene, index, entrant, samplers[entrant.label, repeat])
            cache.restore(saved)

    def _live(self, scene: _Scene, index: int, entrant: Entrant, sampler: Sampler) -> None:
        turn = scene.trace.turns[index]
        if entrant.stands_before != index:
            entrant.drafter.reset()
            ingest(entrant.drafter, *scene.trace.history(index))
        entrant.stands_before = None
        scene.meter.reset()
        result = live_turn(
            self._target,
            scene.cache,
            entrant.drafter,
            sampler,
            ingested=turn.ingested,
            ingested_features=turn.ingested_features,
            first_logits=turn.first_logits,
            budget=scene.work.draft_budget,
            max_new_tokens=scene.work.max_new_tokens,
            stop_tokens=self._stops,
            read_held=held_by,
        )
        if result.tokens == turn.tokens.tolist():
            entrant.stands_before = index + 1
        judged = None
        if scene.work.sampling.is_greedy:
            judged = judge(
                result.tokens, turn.tokens.tolist(), turn.gaps.tolist(), self._target.tolerance_dtype
            )
            if judged.verdict == "mismatch":
                entrant.fail(
                    "mismatch",
                    f"turn {index}: live output leaves the target's own at token {judged.position} "
                    f"(top-two logit gap {judged.gap})",
                )
        self._keep(scene, entrant, self._record(scene, "live", index, entrant.drafter, result, judged))

    def _record(
        self,
        scene: _Scene,
        mode: Mode,
        index: int,
        drafter: Drafter,
        result: TurnResult,
        judged: Judgement | None = None,
    ) -> TurnRecord:
        turn = scene.trace.turns[index]
        booked = book(self._ledger, drafter, scene.cache, turn.start, result)
        readings = {
            "trace_features": scene.trace.held_bytes(),
            **scene.meter.readings(),
            "workspace_measured": workspace_measured(self._target.device),
        }
        return turn_record(index, mode, turn, result, judged, self._stops, booked, readings, self._chat)

    def _keep(self, scene: _Scene, entrant: Entrant, record: TurnRecord) -> None:
        if record.formula_difference_bytes and not entrant.has_differed:
            entrant.has_differed = True
            self._tell(
                Log(
                    f"{entrant.label}: live tensors and closed formulas differ by "
                    f"{record.formula_difference_bytes:,} bytes in {scene.work.item_id}, turn {record.turn} "
                    "(formula_difference_bytes in turns). Its memory() or memory_formula() is wrong."
                )
            )
        entrant.keep(record)
        self._tell(turn_finished(scene.work.item_id, entrant.label, record))

    # -- records -------------------------------------------------------------------------------

    def _skip(self, entrant: Entrant, work: Work, conversation: Conversation) -> None:
        """Ask once, for each mode, whether the drafter can run this conversation."""
        modes: tuple[Mode, ...] = ("replay", "live") if work.mode == "both" else (work.mode,)
        context = conversation.item.context_length
        with guarded(entrant):
            for mode in modes:
                reason = entrant.drafter.skip(CellFacts(work.sampling.is_greedy, context, mode))
                if reason:
                    entrant.skipped[mode] = reason
        if entrant.is_running and len(entrant.skipped) == len(modes):
            entrant.fail("incompatible", entrant.skipped[modes[0]])


def _require_finite(trace: Trace) -> None:
    for index, turn in enumerate(trace.turns):
        if not (turn.logprobs.isfinite().all() and turn.gaps.isfinite().all()):
            raise TargetError(
                f"turn {index}: the target's logits are NaN or infinite. Use another --dtype; float16 "
                "overflows on many models."
            )


def _seed(work: Work, *purpose: object) -> int:
    """A seed that depends on the conversation and the purpose, not on the order of work."""
    text = repr((work.seed, work.item_id, work.sampling.label, purpose))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
