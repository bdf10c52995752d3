"""Answers to lm-eval's requests as a run folder: a task is a suite, a prompt a conversation of one turn."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence

import torch

from hyflash_bench.drafters.base import Drafter, Features
from hyflash_bench.engine.trace import Trace, TracedTurn
from hyflash_bench.integrations.likelihood import Scored
from hyflash_bench.integrations.prompts import Prompt
from hyflash_bench.integrations.replies import Answers, Reply, Round
from hyflash_bench.integrations.stops import StopStrings
from hyflash_bench.memory.ledger import ledger_of
from hyflash_bench.results.records import (
    CellRecord,
    ConversationRecord,
    LikelihoodRecord,
    Lossless,
    Manifest,
    TraceRecord,
    TurnRecord,
)
from hyflash_bench.results.writer import FINAL_STATUSES, RunWriter
from hyflash_bench.runner.bookkeeping import book
from hyflash_bench.runner.plan import drafter_version, target_id
from hyflash_bench.runner.recording import now, trace_record, turn_record
from hyflash_bench.runner.work import Work, WorkCell
from hyflash_bench.spec.drafter import DrafterSpec
from hyflash_bench.spec.plan import Cell, content_id
from hyflash_bench.suites.chat import ChatTokenizer
from hyflash_bench.suites.conversation import Conversation, Item, UserTurn
from hyflash_bench.targets.target import Target

__all__ = ["KIND", "Keeper"]

KIND = "lm-eval"

_VERDICTS: tuple[Lossless, ...] = ("not_judged", "identical", "near_tie", "mismatch")
"""The worse, the later."""


class Keeper:
    """The run folder as a shelf: what an earlier process answered is found again.

    Args:
        writer: Of the run folder.
        manifest: Without cells, which are known once the prompts are.
        target: The model.
        drafters: Loaded, by label.
        specs: What was asked for, by label.
        suite_hashes: By task, of everything that its prompts depend on.
        draft_budget: Most tokens of a draft.
        seed: Of the request.
    """

    def __init__(
        self,
        writer: RunWriter,
        manifest: Manifest,
        target: Target,
        drafters: Mapping[str, Drafter],
        specs: Mapping[str, DrafterSpec],
        *,
        suite_hashes: Mapping[str, str],
        draft_budget: int,
        seed: int,
    ) -> None:
        self._writer = writer
        self._manifest = writer.write_manifest(manifest)
        self._stored = writer.conversations()
        self._target = target
        self._drafters = drafters
        self._specs = specs
        self._suite_hashes = suite_hashes
        self._draft_budget = draft_budget
        self._seed = seed
        self._ledger = ledger_of(target)
        self._chat = ChatTokenizer(target.tokenizer)
        self._target_id = target_id(target.info.to_json())
        self._cells: dict[str, Cell] = {}
        self._items: dict[str, set[str]] = defaultdict(set)
        self._verdicts: dict[tuple[str, str], Lossless] = {}

    def expect(self, prompts: Sequence[Prompt]) -> None:
        """Write down which cells the prompts belong to."""
        for prompt in prompts:
            for cell in self._cells_of(prompt).values():
                self._cells[cell.cell_id] = cell
                self._items[cell.cell_id].add(prompt.item_id)
        self._write_manifest()

    def recall(self, prompt: Prompt) -> Answers:
        """What the folder holds; drafters that broke down are asked again."""
        answers, cells = Answers(), self._cells_of(prompt)
        work = self._work(prompt, cells)
        trace = self._writer.traces().get(work.trace_id)
        if trace is None:
            return answers
        for label, cell in cells.items():
            record = self._stored.get((cell.cell_id, prompt.item_id))
            if record is None or record.trace_id != trace.trace_id or record.status not in FINAL_STATUSES:
                continue
            if record.turns:
                tokens = record.turns[0].output_tokens or trace.turns[0].tokens
                answers.texts[label] = StopStrings(self._chat.decode, prompt.ask.until).text(tokens)
            else:
                answers.failed[label] = str(record.message)
            if self._drafters[label].is_reference:
                answers.turn = _remembered(prompt, trace)
            self._note(prompt, label, record)
        return answers

    def keep(self, played: Round) -> dict[str, ConversationRecord]:
        """Write the trace and a line for each drafter; returns the lines by label."""
        prompt, cells = played.prompt, self._cells_of(played.prompt)
        work = self._work(prompt, cells)
        is_traced = any(self._drafters[label].is_reference for label in played.replies)
        if played.turn is not None and is_traced:
            trace = Trace((played.turn,))
            info = self._target.info
            told = self._conversation(prompt)
            self._writer.append_trace(trace_record(work, told, trace, self._chat, info, self._ledger))
        asked = [*played.replies, *played.failed]
        records = {
            label: self._record(work, played, label, cells[label]) for label in cells if label in asked
        }
        for label, record in records.items():
            self._writer.append_conversation(record)
            self._note(prompt, label, record)
        return records

    def scored(self) -> dict[str, Scored]:
        """Likelihoods that the folder holds, by key."""
        return {
            key: Scored(logprob, is_greedy)
            for record in self._writer.likelihoods()
            for key, logprob, is_greedy in zip(record.keys, record.logprobs, record.greedy, strict=True)
        }

    def keep_scored(self, scored: Mapping[str, Scored]) -> None:
        """Write what one pass scored: all of it or nothing."""
        self._writer.append_likelihoods(
            LikelihoodRecord(
                keys=list(scored),
                logprobs=[each.logprob for each in scored.values()],
                greedy=[each.is_greedy for each in scored.values()],
                recorded_at=now(),
            )
        )

    def verdict(self, task: str, label: str) -> Lossless:
        """How far the drafter's replies to a task are the target's own: the worst of them."""
        return self._verdicts.get((task, label), "not_judged")

    def close(self) -> None:
        """Write down that everything was answered."""
        self._manifest = self._manifest.model_copy(update={"finished_at": now()})
        self._write_manifest()

    def _write_manifest(self) -> None:
        cells = [self._cell_record(cell) for cell in self._cells.values()]
        self._writer.write_manifest(self._manifest.model_copy(update={"cells": cells}))

    def _note(self, prompt: Prompt, label: str, record: ConversationRecord) -> None:
        key = (prompt.origin.task, label)
        found = [turn.lossless for turn in record.turns]
        self._verdicts[key] = max([self._verdicts.get(key, "not_judged"), *found], key=_VERDICTS.index)

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
        result, start = reply.result, len(played.prompt.tokens)
        booked = book(self._ledger, reply.drafter, played.cache, start, result)
        record = turn_record(0, "live", played.turn, result, reply.judged, (), booked, {}, self._chat)
        # A stop string ends a reply as well as a stop token does.
        return record.model_copy(update={"stop_reason": "eos" if reply.has_ended else "limit"})

    def _conversation(self, prompt: Prompt) -> Conversation:
        origin = prompt.origin
        task, rung = origin.task, origin.context_rung
        # Takes of one prompt are not independent of each other.
        item = Item(prompt.item_id, task, task, KIND, task, rung, 1, document=origin.item_id)
        text = str(self._target.tokenizer.decode(list(prompt.tokens)))
        digest = hashlib.sha256(repr(prompt.tokens).encode()).hexdigest()
        return Conversation(item, (UserTurn(text),), None, digest)

    def _work(self, prompt: Prompt, cells: Mapping[str, Cell]) -> Work:
        ask, task = prompt.ask, prompt.origin.task
        said = [list(prompt.tokens), list(ask.until), ask.max_new_tokens, ask.sampling.label, self._seed]
        return Work(
            trace_id=content_id([self._target_id, self._suite_hashes[task], prompt.item_id, said]),
            suite=task,
            item_id=prompt.item_id,
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

    def _cells_of(self, prompt: Prompt) -> dict[str, Cell]:
        """The cell of each drafter, by label."""
        task, target = prompt.origin.task, self._target.info.name
        return {
            label: Cell(
                target_id=self._target_id,
                target=target,
                drafter=spec,
                drafter_version=drafter_version(spec, target),
                suite=task,
                suite_hash=self._suite_hashes[task],
                task=task,
                cap=None,
                sampling=prompt.ask.sampling,
                seed=self._seed,
                repeat=0,
                max_new_tokens=prompt.ask.max_new_tokens,
                draft_budget=self._draft_budget,
                mode="live",
            )
            for label, spec in self._specs.items()
        }

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
            num_conversations=len(self._items[cell.cell_id]),
        )


def _remembered(prompt: Prompt, trace: TraceRecord) -> TracedTurn:
    """The target's own reply as it was stored, without the features that only a live pass has."""
    (told,) = trace.turns
    tokens = torch.tensor(prompt.tokens)
    return TracedTurn(
        prompt=tokens,
        ingested=tokens,
        ingested_features=Features(),
        first_logits=torch.empty(0),
        tokens=torch.tensor(told.tokens),
        reply_features=Features(),
        logprobs=torch.tensor(told.logprobs, dtype=torch.float64),
        gaps=torch.tensor(told.gaps, dtype=torch.float64),
        stop_reason=told.stop_reason,
        start=told.context_length,
        prefill_s=trace.prefill_s,
        decode_s=trace.decode_s,
    )
