"""Simulated memory caps: the ledger decides, after the fact and deterministically.

A cap changes nothing of what target and drafter compute until it is reached, so one uncapped pass
serves a whole ladder of caps. What needs exactly the cap's bytes fits.

``stop``
    The conversation ends at the first step whose total passes the cap; turns finished before it are
    kept. Status ``oom``.
``no-draft``
    From that step on the drafter is gone, its bytes with it, and the text goes on token by token: the
    steps are rewritten, the text is the same. What would have been timed from there on is null. If
    plain decoding passes the cap too, the conversation ends there as under ``stop``.
``window``
    The conversation is replayed with a drafter that keeps less of the context, from its first token
    on (:mod:`hyflash_bench.runner.shrinking`).

In all three the moment at which the drafter as asked for first passes the cap is recorded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from hyflash_bench.memory.ledger_totals import TargetLedger
from hyflash_bench.results.columns import DRAFTER_KINDS
from hyflash_bench.results.records import ConversationRecord, StepColumns, TurnRecord
from hyflash_bench.spec.plan import Cap
from hyflash_bench.spec.units import format_bytes

__all__ = ["Moment", "apply_cap", "first_breach", "stopped", "under"]

_OF_DRAFTER = ("drafter_weights_bytes", *DRAFTER_KINDS)


@dataclass(frozen=True, slots=True, order=True)
class Moment:
    """Where in a conversation a cap is passed.

    Attributes:
        turn: The turn.
        step: Step of it; 0 for its prompt too.
        context: Tokens in the target's cache after the step.
        total: What the ledger adds up to.
    """

    turn: int
    step: int
    context: int
    total: int


def under(cap: Cap, ledger: TargetLedger) -> TargetLedger:
    """The target as a cap counts it: weights with the bits that were asked for."""
    if cap.weight_bits == 32:
        return ledger
    return replace(ledger, weight_bytes=ledger.shape.weight_bytes(cap.weight_bits))  # type: ignore[arg-type]


def first_breach(record: ConversationRecord, cap: Cap, ledger: TargetLedger) -> Moment | None:
    """The first moment at which an uncapped conversation passes a cap, in whichever mode.

    Args:
        record: Of the uncapped cell.
        cap: The cap.
        ledger: Of the target as loaded.
    """
    more = under(cap, ledger).weight_bytes - ledger.weight_bytes
    found = (_breach(turn, cap.num_bytes - more) for turn in record.turns)
    moments = [moment for moment in found if moment is not None]
    if not moments:
        return None
    first = min(moments)
    return replace(first, total=first.total + more)


def apply_cap(
    record: ConversationRecord, *, cell_id: str, cap: Cap, ledger: TargetLedger
) -> ConversationRecord:
    """What a conversation measured without a cap becomes under one, by ``stop`` or ``no-draft``.

    Args:
        record: Of the uncapped cell.
        cell_id: Of the capped cell.
        cap: The cap.
        ledger: Of the target as loaded.

    Returns:
        The record under the capped cell's name: as it was if the cap is never reached; else as the
        policy has it, with the moment.
    """
    renamed = record.model_copy(update={"cell_id": cell_id})
    if record.status not in ("ok", "mismatch"):
        return renamed
    simulated = under(cap, ledger)
    more = simulated.weight_bytes - ledger.weight_bytes
    moment = first_breach(record, cap, ledger)
    turns = [_with_weights(turn, simulated.weight_bytes, more) if more else turn for turn in record.turns]
    capped = renamed.model_copy(update={"turns": turns})
    if moment is None:
        return capped
    noted = capped.model_copy(
        update={
            "policy_turn": moment.turn,
            "policy_step": moment.step,
            "policy_context": moment.context,
        }
    )
    return (
        _without_drafter(noted, cap, simulated) if cap.policy == "no-draft" else stopped(noted, cap, moment)
    )


def stopped(record: ConversationRecord, cap: Cap, moment: Moment) -> ConversationRecord:
    """A conversation that ends at a moment: ``oom``, with the turns finished before."""
    message = (
        f"{format_bytes(moment.total)} needed at {moment.context} tokens of context; "
        f"the cap is {format_bytes(cap.num_bytes)}"
    )
    return record.model_copy(
        update={
            "status": "oom",
            "message": message,
            "context_reached": moment.context,
            "peak_bytes": moment.total,
            "turns": [turn for turn in record.turns if turn.turn < moment.turn],
        }
    )


def _totals(turn: TurnRecord) -> Iterator[Moment]:
    """The ledger after the prompt and after every step."""
    context = turn.context_length
    if turn.prompt_ledger_bytes is not None:
        yield Moment(turn.turn, 0, context, turn.prompt_ledger_bytes)
    for step, (committed, total) in enumerate(
        zip(turn.steps.committed, turn.steps.ledger_bytes or (), strict=False)
    ):
        context += committed
        yield Moment(turn.turn, step, context, total)


def _breach(turn: TurnRecord, cap_bytes: int) -> Moment | None:
    return next((moment for moment in _totals(turn) if moment.total > cap_bytes), None)


def _without_drafter(record: ConversationRecord, cap: Cap, ledger: TargetLedger) -> ConversationRecord:
    """Go on token by token from the first breach of each mode; stop where even that does not fit."""
    turns: list[TurnRecord] = []
    dropped: set[str] = set()
    for turn in sorted(record.turns, key=lambda turn: turn.turn):
        moment = Moment(turn.turn, 0, 0, 0) if turn.mode in dropped else _breach(turn, cap.num_bytes)
        if moment is None:
            turns.append(turn)
            continue
        turns.append(_plain_from(turn, moment.step, ledger))
        if turn.mode in dropped:
            turns[-1] = _never_observed(turns[-1], ledger)
        elif (turn.prompt_ledger_bytes or 0) > cap.num_bytes:
            turns[-1] = _dropped_at_prompt(turns[-1], ledger)
        dropped.add(turn.mode)
    breaches = (_breach(turn, cap.num_bytes) for turn in turns)
    beyond = min((moment for moment in breaches if moment is not None), default=None)
    changed = record.model_copy(update={"turns": turns})
    return changed if beyond is None else stopped(changed, cap, beyond)


def _plain_from(turn: TurnRecord, step: int, ledger: TargetLedger) -> TurnRecord:
    """A turn whose steps from one on commit a token each, by plain decoding."""
    steps = turn.steps
    done = sum(steps.committed[:step])
    rest = sum(steps.committed) - done
    contexts = [turn.context_length + done + count + 1 for count in range(rest)]
    plain = {**ledger.plain_columns(contexts), **dict.fromkeys(_OF_DRAFTER, [0] * rest)}
    ended = [turn.stop_reason == "eos" and count == rest - 1 for count in range(rest)]
    nothing, nothing_cut = [0] * rest, [False] * rest
    columns: dict[str, Any] = {
        "drafted": steps.drafted[:step] + nothing,
        "depth": steps.depth[:step] + nothing,
        "accepted": steps.accepted[:step] + nothing,
        "committed": steps.committed[:step] + [1] * rest,
        "eos_cut": steps.eos_cut[:step] + ended,
        "limit_cut": steps.limit_cut[:step] + nothing_cut,
        "rejected_tokens": steps.rejected_tokens and steps.rejected_tokens[:step] + [[]] * rest,
        "rejected_text": steps.rejected_text and steps.rejected_text[:step] + [""] * rest,
        **{name: (getattr(steps, name) or [])[:step] + sizes for name, sizes in plain.items()},
    }
    gone = {f"drafter_{kind}": 0 for kind in ("weights", "kv", "state", "buffer")}
    return turn.model_copy(
        update={
            "steps": StepColumns(**columns),
            "memory": {**turn.memory, **gone},
            "decode_s": None,
            "energy_j": None,
            "power_w": None,
            "lossless": "not_judged",
        }
    )


def _dropped_at_prompt(turn: TurnRecord, ledger: TargetLedger) -> TurnRecord:
    """A turn whose prompt did not fit with the drafter: it is plain throughout."""
    during = ledger.pass_bytes(1, turn.context_length + sum(turn.steps.committed))
    needed = {name: getattr(during, name) for name in ("logits", "features", "workspace")}
    total = ledger.plain_total(turn.context_length)
    return turn.model_copy(update={"prompt_ledger_bytes": total, "memory": {**turn.memory, **needed}})


def _never_observed(turn: TurnRecord, ledger: TargetLedger) -> TurnRecord:
    """A turn after the drafter was dropped: what took its prompt in is not there to be timed."""
    untimed = {"observe_prompt_s": None, "ttft_s": None}
    return _dropped_at_prompt(turn, ledger).model_copy(update=untimed)


def _with_weights(turn: TurnRecord, weight_bytes: int, more: int) -> TurnRecord:
    """The ledger of a turn with weights of other bits; what was measured stays what it was."""
    prompt, num_steps = turn.prompt_ledger_bytes, len(turn.steps.committed)
    memory = {name: size for name, size in turn.memory.items() if name != "target_weights"}
    return turn.model_copy(
        update={
            "steps": turn.steps.model_copy(update={"target_weights_bytes": [weight_bytes] * num_steps}),
            "memory": {"target_weights_simulated": weight_bytes, **memory},
            "prompt_ledger_bytes": None if prompt is None else prompt + more,
        }
    )
