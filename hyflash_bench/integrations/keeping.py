"""Replies to lm-eval's prompts as a run folder: a task is a suite, a prompt a conversation of one turn."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping

from hyflash_bench.drafters.base import Drafter
from hyflash_bench.engine.trace import Trace
from hyflash_bench.integrations.replies import Reply, Round
from hyflash_bench.memory.ledger import ledger_of
from hyflash_bench.results.records import CellRecord, ConversationRecord, TurnRecord
from hyflash_bench.results.writer import RunWriter
from hyflash_bench.runner.bookkeeping import book
from hyflash_bench.runner.plan import target_id
from hyflash_bench.runner.recording import now, trace_record, turn_record
from hyflash_bench.runner.work import Work, WorkCell
from hyflash_bench.spec.drafter import DrafterSpec
from hyflash_bench.spec.plan import Cell, content_id
from hyflash_bench.suites.chat import ChatTokenizer
from hyflash_bench.suites.conversation import Conversation, Item, UserTurn
from hyflash_bench.targets.target import Target

__all__ = ["KIND", "Keeper"]

KIND = "lm-eval"


class Keeper:
    """Writes the lines of a run folder as prompts are answered.

    Args:
        writer: Of the run folder.
        target: The model.
        drafters: Loaded, by label.
        specs: What was asked for, by label.
        suite_hash: Of everything that the tasks depend on.
        draft_budget: Most tokens of a draft.
        seed: Of the request.
    """

    def __init__(
        self,
        writer: RunWriter,
        target: Target,
        drafters: Mapping[str, Drafter],
        specs: Mapping[str, DrafterSpec],
        *,
        suite_hash: str,
        draft_budget: int,
        seed: int,
    ) -> None:
        self._writer = writer
        self._target = target
        self._drafters = drafters
        self._specs = specs
        self._suite_hash = suite_hash
        self._draft_budget = draft_budget
        self._seed = seed
        self._ledger = ledger_of(target)
        self._chat = ChatTokenizer(target.tokenizer)
        self._target_id = target_id(target.info.to_json())
        self._cells: dict[str, Cell] = {}
        self._counts: Counter[str] = Counter()

    def keep(self, played: Round) -> dict[str, ConversationRecord]:
        """Write the trace and a line for each drafter; returns the lines by label."""
        cells = {label: self._cell(played, label) for label in self._specs}
        for cell in cells.values():
            self._cells[cell.cell_id] = cell
            self._counts[cell.cell_id] += 1
        work = self._work(played, cells)
        if played.turn is not None:
            trace = Trace((played.turn,))
            info = self._target.info
            told = self._conversation(played)
            self._writer.append_trace(trace_record(work, told, trace, self._chat, info, self._ledger))
        records = {label: self._record(work, played, label, cell) for label, cell in cells.items()}
        for record in records.values():
            self._writer.append_conversation(record)
        return records

    def cells(self) -> list[CellRecord]:
        """All cells, with how many prompts each met."""
        return [self._cell_record(cell) for cell in self._cells.values()]

    def _record(self, work: Work, played: Round, label: str, cell: Cell) -> ConversationRecord:
        record = ConversationRecord(
            cell_id=cell.cell_id,
            item_id=work.item_id,
            trace_id=work.trace_id if played.turn is not None else None,
            status="ok",
            recorded_at=now(),
        )
        if label in played.failed:
            lost = played.failed[label]
            return record.model_copy(update={"status": lost.status, "message": lost.message})
        if played.turn is None:
            return record.model_copy(update={"status": "error", "message": "the target alone has no reply"})
        reply = played.replies[label]
        update: dict[str, object] = {"turns": [self._turn(played, reply)]}
        if reply.judged is not None and reply.judged.verdict == "mismatch":
            where = f"live output leaves the target's own at token {reply.judged.position}"
            update |= {"status": "mismatch", "message": f"{where} (top-two logit gap {reply.judged.gap})"}
        return record.model_copy(update=update)

    def _turn(self, played: Round, reply: Reply) -> TurnRecord:
        assert played.turn is not None
        result, start = reply.result, len(played.prompt)
        booked = book(self._ledger, reply.drafter, played.cache, start, result)
        record = turn_record(0, "live", played.turn, result, reply.judged, (), booked, {})
        # A stop string ends a reply as well as a stop token does.
        return record.model_copy(update={"stop_reason": "eos" if reply.has_ended else "limit"})

    def _conversation(self, played: Round) -> Conversation:
        origin = played.origin
        item = Item(origin.item_id, origin.task, origin.task, KIND, origin.task, origin.context_rung, 1)
        text = str(self._target.tokenizer.decode(list(played.prompt)))
        digest = hashlib.sha256(repr(played.prompt).encode()).hexdigest()
        return Conversation(item, (UserTurn(text),), None, digest)

    def _work(self, played: Round, cells: Mapping[str, Cell]) -> Work:
        ask, origin = played.ask, played.origin
        trace = [self._target_id, self._suite_hash, _item_id(played), list(played.prompt)]
        return Work(
            trace_id=content_id(trace),
            suite=origin.task,
            item_id=_item_id(played),
            sampling=ask.sampling,
            seed=self._seed,
            max_new_tokens=ask.max_new_tokens,
            draft_budget=self._draft_budget,
            mode="live",
            cells=tuple(
                WorkCell.under(None, cell_id=cell.cell_id, drafter=cell.drafter, repeat=0)
                for cell in cells.values()
            ),
        )

    def _cell(self, played: Round, label: str) -> Cell:
        return Cell(
            target_id=self._target_id,
            target=self._target.info.name,
            drafter=self._specs[label],
            drafter_version="",
            suite=played.origin.task,
            suite_hash=self._suite_hash,
            task=played.origin.task,
            cap=None,
            sampling=played.ask.sampling,
            seed=self._seed,
            repeat=0,
            max_new_tokens=played.ask.max_new_tokens,
            draft_budget=self._draft_budget,
            mode="live",
        )

    def _cell_record(self, cell: Cell) -> CellRecord:
        drafter, sampling = self._drafters[cell.drafter.label], cell.sampling
        return CellRecord(
            cell_id=cell.cell_id,
            target=cell.target,
            target_id=cell.target_id,
            drafter=cell.drafter.label,
            drafter_name=cell.drafter.name,
            drafter_options=drafter.options.model_dump(mode="json"),
            is_reference=drafter.is_reference,
            suite=cell.suite,
            suite_hash=cell.suite_hash,
            task=cell.task,
            memory_cap_bytes=None,
            cap_kind=None,
            temperature=sampling.temperature,
            top_k=sampling.top_k,
            top_p=sampling.top_p,
            sampling=sampling.label,
            seed=cell.seed,
            repeat=cell.repeat,
            max_new_tokens=cell.max_new_tokens,
            draft_budget=cell.draft_budget,
            num_conversations=self._counts[cell.cell_id],
        )


def _item_id(played: Round) -> str:
    """Takes of the same prompt are told apart."""
    return played.origin.item_id + (f"#{played.ask.take}" if played.ask.take else "")
