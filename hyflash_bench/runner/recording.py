"""From what the engine measured to the records that are stored."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal

from hyflash_bench.engine.lossless import Judgement
from hyflash_bench.engine.repetition import DEGENERATE_SHARE, copied_share, repeated_share
from hyflash_bench.engine.steps import Steps, TurnResult
from hyflash_bench.engine.tally import Tally
from hyflash_bench.engine.trace import Trace, TracedTurn
from hyflash_bench.memory.ledger_totals import TargetLedger
from hyflash_bench.results.columns import TraceSteps
from hyflash_bench.results.records import StepColumns, TraceRecord, TraceTurn, TurnRecord
from hyflash_bench.runner.bookkeeping import Booked
from hyflash_bench.runner.events import TurnFinished
from hyflash_bench.runner.work import Work
from hyflash_bench.suites.chat import ChatTokenizer
from hyflash_bench.suites.conversation import Conversation, UserTurn
from hyflash_bench.suites.scoring import score
from hyflash_bench.targets.info import TargetInfo

__all__ = ["now", "trace_record", "turn_finished", "turn_record"]

REQUEST_LENGTH = 400
"""Characters kept of what the user says: the question stands at the end, the document before it."""
TOKENS_BEFORE = 8
"""Tokens of the reply that rejected ones are decoded behind: a character may have begun in them."""
ENERGY = "nvml_energy_j"
POWER = "nvml_power_w"


def trace_record(
    work: Work,
    conversation: Conversation,
    trace: Trace,
    chat: ChatTokenizer,
    info: TargetInfo,
    ledger: TargetLedger,
) -> TraceRecord:
    """What the target said, with how repetitive and, where it is scored, how good it is."""
    turns: list[TraceTurn] = []
    context: list[int] = []
    for index, turn in enumerate(trace.turns):
        context += turn.prompt.tolist()
        said = _trace_turn(index, turn, context, chat, conversation.turns[index])
        total = ledger.plain_total(turn.start + turn.num_tokens - 1)
        turns.append(said.model_copy(update={"ledger_bytes": total, "steps": _trace_steps(turn, ledger)}))
        context += turn.tokens.tolist()
    item = conversation.item
    return TraceRecord(
        trace_id=work.trace_id,
        item_id=item.item_id,
        suite=item.suite,
        task=item.task,
        kind=item.kind,
        category=item.category,
        document=item.document,
        content_hash=conversation.content_hash,
        sampling=work.sampling.label,
        temperature=work.sampling.temperature,
        seed=work.seed,
        extrapolated=len(context) > info.max_positions,
        context_rung=item.context_length,
        turns=turns,
        prefill_s=sum(turn.prefill_s for turn in trace.turns),
        decode_s=sum(turn.decode_s or 0.0 for turn in trace.turns),
        recorded_at=now(),
    )


def turn_record(
    index: int,
    mode: Literal["replay", "live"],
    turn: TracedTurn,
    result: TurnResult,
    judged: Judgement | None,
    stop_tokens: Collection[int],
    booked: Booked,
    readings: Mapping[str, int | float | None],
    chat: ChatTokenizer,
) -> TurnRecord:
    """One turn of one drafter; what was not clocked or not judged stays null."""
    observe_s, choose_s = result.observe_prompt_s, result.choose_s
    is_timed = observe_s is not None and choose_s is not None
    return TurnRecord(
        turn=index,
        mode=mode,
        context_length=turn.start,
        num_prompt_tokens=len(turn.prompt),
        num_output_tokens=len(result.tokens),
        stop_reason="eos" if result.tokens[-1] in stop_tokens else "limit",
        steps=_columns(result, booked, chat),
        prefill_s=turn.prefill_s if is_timed else None,
        observe_prompt_s=observe_s,
        ttft_s=turn.prefill_s + (observe_s or 0.0) + (choose_s or 0.0) if is_timed else None,
        decode_s=result.decode_s,
        lossless="not_judged" if judged is None else judged.verdict,
        divergence_position=None if judged is None else judged.position,
        divergence_gap=None if judged is None else judged.gap,
        output_tokens=None if result.tokens == turn.tokens.tolist() else result.tokens,
        memory={**booked.memory, **_bytes_of(readings)},
        prompt_ledger_bytes=booked.prompt_ledger_bytes,
        formula_difference_bytes=booked.formula_difference_bytes,
        energy_j=readings.get(ENERGY),
        power_w=readings.get(POWER),
    )


def turn_finished(item_id: str, drafter: str, turn: TurnRecord) -> TurnFinished:
    """The same turn as an event, with the sums behind the two numbers that people watch."""
    return TurnFinished(item_id, drafter, turn.mode, turn.turn, Tally.of(turn.steps, turn.decode_s))


def now() -> str:
    """UTC, ISO 8601, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _trace_turn(
    index: int, turn: TracedTurn, context: list[int], chat: ChatTokenizer, asked: UserTurn
) -> TraceTurn:
    tokens, expected = turn.tokens.tolist(), asked.expected
    text = chat.decode(tokens)
    repeated = repeated_share(tokens)
    return TraceTurn(
        turn=index,
        context_length=turn.start,
        prompt_tokens=turn.prompt.tolist(),
        tokens=tokens,
        logprobs=turn.logprobs.tolist(),
        gaps=turn.gaps.tolist(),
        stop_reason=turn.stop_reason,
        text=text,
        offsets=chat.offsets(tokens),
        request=asked.text[-REQUEST_LENGTH:],
        repeated_share=repeated,
        copied_share=copied_share(tokens, context),
        degenerate=repeated > DEGENERATE_SHARE,
        score=None if expected is None else score(expected, text),
    )


def _trace_steps(turn: TracedTurn, ledger: TargetLedger) -> TraceSteps | None:
    if turn.decode_s is None:  # walked along, without passes of its own
        return None
    contexts = range(turn.start + 1, turn.start + turn.num_tokens)
    columns = ledger.plain_columns(contexts)
    kept = {name: columns[name] for name in TraceSteps.model_fields if name in columns}
    return TraceSteps(**kept, features_held_bytes=list(turn.held))


def _bytes_of(readings: Mapping[str, int | float | None]) -> dict[str, int | None]:
    counts = {name: value for name, value in readings.items() if name not in (ENERGY, POWER)}
    return {name: None if value is None else int(value) for name, value in counts.items()}


def _columns(result: TurnResult, booked: Booked, chat: ChatTokenizer) -> StepColumns:
    steps = result.steps
    is_timed = bool(steps.draft_s)
    return StepColumns(
        drafted=steps.drafted,
        depth=steps.depth,
        accepted=steps.accepted,
        committed=steps.committed,
        eos_cut=steps.eos_cut,
        limit_cut=steps.limit_cut,
        rejected_tokens=steps.rejected,
        rejected_text=list(_rejected_texts(steps, result.tokens, chat)),
        draft_s=steps.draft_s if is_timed else None,
        verify_s=steps.verify_s if is_timed else None,
        observe_s=steps.observe_s if is_timed else None,
        **booked.columns,
    )


def _rejected_texts(steps: Steps, reply: Sequence[int], chat: ChatTokenizer) -> Iterator[str | None]:
    """What the reply would have gone on with at each step, had the rejected tokens been kept."""
    at = 1  # the first token comes from prefill
    for rejected, accepted, committed in zip(steps.rejected, steps.accepted, steps.committed, strict=True):
        before = reply[max(0, at + accepted - TOKENS_BEFORE) : at + accepted]
        yield None if rejected is None else chat.continued(before, rejected) if rejected else ""
        at += committed
