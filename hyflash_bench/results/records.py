"""The lines of a run folder: what is measured, once, in SI base units.

``null`` means "not measured", never zero. A line is the unit of loss: a killed run loses at most the
conversation in flight. Frames for analysis are made from these by :mod:`hyflash_bench.results.reader`.
"""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from hyflash_bench.results.columns import StepLedger, TraceSteps
from hyflash_bench.spec.base import Spec
from hyflash_bench.spec.plan import CapKind, CapPolicy

__all__ = [
    "SCHEMA_VERSION",
    "CellRecord",
    "ConversationRecord",
    "LikelihoodRecord",
    "Lossless",
    "Manifest",
    "ReportedTurn",
    "Status",
    "StepColumns",
    "TraceRecord",
    "TraceTurn",
    "TurnRecord",
]

SCHEMA_VERSION = 3

Status = Literal["ok", "oom", "incompatible", "mismatch", "timeout", "error", "interrupted"]
Lossless = Literal["identical", "near_tie", "mismatch", "not_judged"]
StopReason = Literal["eos", "limit"]


class CellRecord(Spec):
    """Identity of a cell; what became of it follows from its conversations."""

    cell_id: str
    target: str
    target_id: str
    drafter: str = Field(description="Label: name with the options that were given.")
    drafter_name: str
    drafter_options: dict[str, Any] = Field(description="All options, defaults included.")
    is_reference: bool
    suite: str
    suite_hash: str
    task: str
    memory_cap_bytes: int | None
    cap_kind: CapKind | None
    cap_policy: CapPolicy | None = Field(None, description="What is done at the cap.")
    device: str | None = Field(None, description="Device profile whose usable memory the cap is.")
    weight_bits: int | None = Field(
        None, description="Bits that the target's weights are counted with under the cap; null for as loaded."
    )
    temperature: float | None = Field(description="Null where an imported file does not say; so below.")
    top_k: int | None
    top_p: float | None
    sampling: str = Field(description="Label of the sampling.")
    seed: int | None
    repeat: int
    max_new_tokens: int | None
    draft_budget: int | None
    num_conversations: int = Field(description="Conversations planned for this cell.")


class Manifest(Spec):
    """``manifest.json``: written before the first measurement, replaced atomically."""

    schema_version: int = SCHEMA_VERSION
    run_id: str
    created_at: str = Field(description="UTC, ISO 8601.")
    finished_at: str | None = None
    package_version: str
    command: list[str] = Field(description="As typed.")
    earlier_commands: list[list[str]] = Field(
        default_factory=list, description="Others that wrote into the same folder, the oldest first."
    )
    request: dict[str, Any] = Field(description="RunSpec as given.")
    resolved: dict[str, Any] = Field(description="RunSpec with every default filled in.")
    target: dict[str, Any] | None = Field(None, description="TargetInfo, fingerprint included.")
    suites: list[dict[str, Any]] = Field(
        default_factory=list, description="name, version, title, description, licence, suite_hash, spec."
    )
    devices: list[dict[str, Any]] = Field(
        default_factory=list, description="Profiles of the devices asked for, whole."
    )
    environment: dict[str, Any] = Field(default_factory=dict)
    git: dict[str, Any] | None = None
    networks: dict[str, dict[str, Any]] = Field(
        default_factory=dict, description="Configuration of what drafters with weights run, by label."
    )
    imported: list[dict[str, Any]] = Field(
        default_factory=list,
        description="Files of other programs that the numbers come from: file, sha256, format, drafter, "
        "cells, notes on what could not be converted, and what the file itself reports.",
    )
    cells: list[CellRecord] = Field(default_factory=list)


class StepColumns(StepLedger):
    """The steps of one turn.

    ``accepted`` counts what verification kept; ``committed`` what entered the text after cuts, the
    bonus token included; so 1 <= committed <= drafted + 1. In trees, ``drafted`` counts nodes and
    ``depth`` the longest path; in chains they are equal.
    """

    length_of = "committed"

    drafted: list[int]
    depth: list[int]
    accepted: list[int]
    committed: list[int]
    eos_cut: list[bool] = Field(description="End of sequence was committed in this step.")
    limit_cut: list[bool] = Field(description="The token limit cut this step short.")
    rejected_tokens: list[list[int] | None] | None = Field(
        None,
        description="Ids of the drafted tokens behind the accepted ones: of a chain all of them, of a tree "
        "the path that was to be tried first; null for drafts that were scored along a sampled trace.",
    )
    rejected_text: list[str | None] | None = Field(
        None, description="Their text, as it would have gone on from the accepted tokens."
    )
    draft_s: list[float] | None = None
    verify_s: list[float] | None = None
    observe_s: list[float] | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        for index, (drafted, committed) in enumerate(zip(self.drafted, self.committed, strict=True)):
            if not 1 <= committed <= drafted + 1:
                raise ValueError(f"step {index}: committed {committed} of {drafted} drafted")
        for index, rejected in enumerate(self.rejected_tokens or ()):
            most = self.drafted[index] - self.accepted[index]
            if rejected is not None and len(rejected) > most:
                raise ValueError(f"step {index}: {len(rejected)} tokens rejected of {most} not accepted")
        return self


class TurnRecord(Spec):
    """One turn of one drafter, replayed or live."""

    turn: int = Field(ge=0)
    mode: Literal["replay", "live"]
    context_length: int = Field(description="Tokens before the reply's first token, history included.")
    num_prompt_tokens: int = Field(description="Of these, new in this turn.")
    num_output_tokens: int = Field(description="Reply tokens, the first one and the stop token included.")
    stop_reason: StopReason
    steps: StepColumns
    prefill_s: float | None = Field(None, description="Target's pass over the new prompt tokens.")
    observe_prompt_s: float | None = Field(None, description="Drafter's ingestion of them.")
    ttft_s: float | None = Field(None, description="prefill_s + observe_prompt_s + choosing a token.")
    decode_s: float | None = Field(None, description="All steps, first token and prefill apart.")
    lossless: Lossless = "not_judged"
    divergence_position: int | None = Field(None, description="First reply token that differs.")
    divergence_gap: float | None = Field(None, description="Target's top-two logit gap there.")
    output_tokens: list[int] | None = Field(None, description="Live output where it differs.")
    memory: dict[str, int | None] = Field(
        default_factory=dict,
        description="Bytes by owner_kind: at the turn's end target_weights (target_weights_simulated: of "
        "other bits), target_kv, drafter_weights, drafter_kv, drafter_state, drafter_buffer; at their "
        "highest in the turn features, logits, workspace, and workspace_measured on CUDA; what the harness "
        "holds besides: trace_features, target_kv_allocated; what the system counts: process_rss, "
        "cuda_allocated_peak, ...",
    )
    prompt_ledger_bytes: int | None = Field(
        None, description="The ledger's total after the prompt, before the first step."
    )
    formula_difference_bytes: int | None = Field(
        None,
        description="Bytes that tensors of drafter and cache hold beyond the closed formulas, where they "
        "differ most; 0 where the two readings agree, null where a drafter has no formula.",
    )
    energy_j: float | None = Field(None, description="Drawn by the GPU during the turn, by its counter.")
    power_w: float | None = Field(None, description="Drawn by the GPU on average during the turn.")


class ReportedTurn(Spec):
    """What another program's file says of a turn, in this project's definitions; null where it does not.

    The sums count every step: such files do not say which ones the token limit cut short.
    """

    turn: int = Field(ge=0)
    is_pooled: bool = Field(False, description="Stands for many turns, of which only sums are known.")
    context_length: int | None = Field(None, ge=0)
    num_prompt_tokens: int | None = Field(None, ge=0)
    num_output_tokens: int | None = Field(None, ge=0)
    stop_reason: StopReason | None = None
    num_steps: int | None = Field(None, ge=0)
    num_drafted: int | None = Field(None, ge=0)
    num_accepted: int | None = Field(None, ge=0)
    num_committed: int | None = Field(None, ge=0)
    ttft_s: float | None = Field(None, ge=0)
    decode_s: float | None = Field(None, ge=0, description="Null if it holds more than steps.")
    drafted: list[int] | None = Field(None, description="Of each step; of trees their nodes.")
    depth: list[int] | None = Field(None, description="Of each step's longest path.")
    accepted: list[int] | None = Field(None, description="Of each step.")
    committed: list[int] | None = Field(None, description="Of each step, bonus token included.")

    @model_validator(mode="after")
    def _check(self) -> Self:
        columns = (self.drafted, self.depth, self.accepted, self.committed)
        lengths = {len(each) for each in columns if each is not None}
        if len(lengths) > 1:
            raise ValueError("columns of steps differ in length")
        if any(count < 1 for count in self.committed or ()):
            raise ValueError("a step committed no token")
        return self


class ConversationRecord(Spec):
    """``conversations.jsonl``: one cell on one conversation. The last line for a pair wins."""

    record: Literal["conversation"] = "conversation"
    cell_id: str
    item_id: str
    trace_id: str | None
    status: Status
    message: str | None = Field(None, description="Why, when the status is not ok.")
    context_reached: int | None = Field(None, description="With oom: context length at the breach.")
    peak_bytes: int | None = Field(None, description="With oom: the ledger's total at the breach.")
    enforced_by: str | None = Field(
        None, description="What held an enforced cap: cgroup, rlimit_data, rlimit_as, cuda_fraction ..."
    )
    policy_turn: int | None = Field(None, description="Turn in which the cap was first reached.")
    policy_step: int | None = Field(None, description="Step of that turn; 0 for its prompt too.")
    policy_context: int | None = Field(None, description="Tokens in the cache then.")
    policy_drafter: str | None = Field(
        None, description="With window: the drafter that was replayed instead."
    )
    turns: list[TurnRecord] = Field(default_factory=list)
    reported: list[ReportedTurn] = Field(
        default_factory=list, description="Of imported results, in place of turns."
    )
    kind: str | None = Field(None, description="Of imported results, which have no trace to say it.")
    category: str | None = None
    recorded_at: str


class TraceTurn(Spec):
    """What the target itself says in one turn."""

    turn: int
    context_length: int
    prompt_tokens: list[int] = Field(description="Token ids new in this turn.")
    tokens: list[int] = Field(description="Reply, stop token included.")
    logprobs: list[float] = Field(description="Of each token, under the sampling in force.")
    gaps: list[float] = Field(description="Top-two logit gap where each token was chosen.")
    stop_reason: StopReason
    text: str
    offsets: list[int] | None = Field(None, description="Where each token begins in text, in characters.")
    request: str | None = Field(None, description="The end of what the user says in this turn.")
    repeated_share: float = Field(description="Share of reply tokens inside a repeated 8-gram of it.")
    copied_share: float = Field(description="Share inside an 8-gram that the context holds.")
    degenerate: bool
    score: float | None = Field(None, description="Quality of a scored reply, 0..1.")
    ledger_bytes: int | None = Field(
        None, description="The ledger's total of plain decoding at the turn's end, where it is highest."
    )
    steps: TraceSteps | None = Field(None, description="What is held in each pass after the first token.")


class TraceRecord(Spec):
    """``traces.jsonl``: the target on one conversation, shared by all drafters."""

    record: Literal["trace"] = "trace"
    trace_id: str
    item_id: str
    suite: str
    task: str
    kind: str
    category: str
    document: str | None = Field(
        None, description="Text that it is about, where others of the suite may be about the same."
    )
    content_hash: str
    sampling: str
    temperature: float
    seed: int
    extrapolated: bool
    context_rung: int | None
    turns: list[TraceTurn]
    prefill_s: float
    decode_s: float
    recorded_at: str


class LikelihoodRecord(Spec):
    """``likelihoods.jsonl``: continuations of one context, scored by the target in one pass."""

    record: Literal["likelihood"] = "likelihood"
    keys: list[str] = Field(description="Hash of context and continuation, as tokens.")
    logprobs: list[float] = Field(description="Of each continuation, natural logarithm.")
    greedy: list[bool] = Field(description="Whether each is what the target would write itself.")
    recorded_at: str
