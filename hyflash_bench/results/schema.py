"""Columns of every table: name, dtype, meaning.

Missing text, integers and truth values are ``<NA>``/NaN, missing floats NaN; none of them is zero.
The frames are the stable surface of a run; its files may change with the schema version.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

__all__ = ["CONTEXT", "IDENTITY", "TABLES", "TABLES_VERSION", "Column", "conform", "empty"]

TABLES_VERSION = 2
"""Raised when a column changes its meaning, so that Parquet files are made anew."""

TEXT, COUNT, FLOAT, FLAG, MAYBE_FLAG = "str", "Int64", "float64", "bool", "boolean"


class Column(NamedTuple):
    """One column of a table."""

    name: str
    dtype: str
    meaning: str


IDENTITY: Final = (
    Column("cell_id", TEXT, "The cell."),
    Column("target", TEXT, "Name of the target."),
    Column("target_id", TEXT, "Hash over all of the target that changes output or speed."),
    Column("drafter", TEXT, "Label: name with the options that were given."),
    Column("drafter_name", TEXT, "Registered name."),
    Column("is_reference", FLAG, "Whether this is plain decoding, which others are compared to."),
    Column("suite", TEXT, "Name of the suite."),
    Column("suite_hash", TEXT, "Hash over its content and version."),
    Column("task", TEXT, "Name of the task within the suite."),
    Column("memory_cap_bytes", COUNT, "Cap asked for; missing for none."),
    Column("cap_kind", TEXT, "simulated or enforced; missing without a cap."),
    Column("cap_policy", TEXT, "At the cap: stop, no-draft or window; missing without a cap."),
    Column("device", TEXT, "Device profile whose usable memory the cap is; missing for a plain size."),
    Column("weight_bits", COUNT, "Bits the target's weights are counted with; missing for as loaded."),
    Column("sampling", TEXT, "Label of the sampling: greedy, T=0.7 ..."),
    Column("temperature", FLOAT, "0 is greedy."),
    Column("seed", COUNT, "Seed of the run."),
    Column("repeat", COUNT, "Repetition of the timed loop, from 0."),
    Column("max_new_tokens", COUNT, "Token limit of a reply."),
    Column("draft_budget", COUNT, "Most tokens a drafter may propose in a step."),
)

CONTEXT: Final = (
    Column("item_id", TEXT, "The conversation."),
    Column("kind", TEXT, "What the target is asked to do."),
    Column("category", TEXT, "Finer grouping."),
    Column("context_rung", COUNT, "Context length the suite asked for; missing if it fixes none."),
    Column("document", TEXT, "Text that it is about; missing for one of its own, and where it is not known."),
)

STATE: Final = (
    Column("status", TEXT, "What became of the conversation."),
    Column("cell_status", TEXT, "What became of its cell: the worst of its conversations."),
)

COUNTS: Final = (
    Column("num_steps", COUNT, "Steps of the turn."),
    Column("num_drafted", COUNT, "Tokens proposed."),
    Column("num_accepted", COUNT, "Of these, kept by the target."),
    Column("num_committed", COUNT, "Tokens that entered the reply by steps, bonus tokens included."),
    Column("num_uncut_steps", COUNT, "Steps that the token limit did not cut short."),
    Column("num_uncut_drafted", COUNT, "Tokens proposed in those."),
    Column("num_uncut_accepted", COUNT, "Tokens accepted in those."),
    Column("num_uncut_committed", COUNT, "Tokens committed in those."),
    Column("num_eos_cut_steps", COUNT, "Steps that committed the end of sequence."),
)

TIMES: Final = (
    Column("prefill_s", FLOAT, "Target's pass over the new prompt tokens, seconds."),
    Column("observe_prompt_s", FLOAT, "Drafter's ingestion of them, seconds."),
    Column("ttft_s", FLOAT, "Time to the first token, both included, seconds."),
    Column("decode_s", FLOAT, "All steps, seconds."),
    Column("draft_s", FLOAT, "Of these, drafting."),
    Column("verify_s", FLOAT, "Of these, verifying by the target."),
    Column("observe_s", FLOAT, "Of these, the drafter's reading of verified tokens."),
    Column("overhead_s", FLOAT, "Of these, what is left: the loop itself."),
)

MEMORY: Final = (
    Column("drafter_bytes", COUNT, "All kinds of the drafter together at the turn's end."),
    Column("drafter_weights_bytes", COUNT, "Its own weights; those shared with the target are not."),
    Column("drafter_kv_bytes", COUNT, "Its key-value cache."),
    Column("drafter_state_bytes", COUNT, "Its state of fixed size."),
    Column("drafter_buffer_bytes", COUNT, "Its work space."),
    Column("drafter_peak_bytes", COUNT, "All kinds but weights, after the largest step."),
    Column("target_kv_bytes", COUNT, "The target's key-value cache at the turn's end."),
    Column("drafter_bytes_per_context_token", FLOAT, "All kinds but weights at the end / tokens then."),
    Column("target_bytes_per_context_token", FLOAT, "The target's cache likewise."),
    Column("ledger_bytes", COUNT, "All that target, drafter and a pass hold, at its highest in the turn."),
    Column("measured_peak_bytes", COUNT, "Peak of torch's allocator on a GPU, else of the whole process."),
    Column("unexplained_bytes", COUNT, "measured_peak_bytes - ledger_bytes: program, harness, error."),
    Column("formula_difference_bytes", COUNT, "Live tensors - closed formulas at worst; 0: they agree."),
    Column("energy_j", FLOAT, "Drawn by the GPU during the turn, joules."),
    Column("power_w", FLOAT, "Drawn by it on average, watts."),
)

TABLES: Final[Mapping[str, tuple[Column, ...]]] = MappingProxyType(
    {
        "cells": (
            *IDENTITY,
            Column("status", TEXT, "Worst of its conversations; interrupted if some are missing."),
            Column("message", TEXT, "Why, when the status is not ok."),
            Column("num_conversations", COUNT, "Conversations planned."),
            Column("num_ok", COUNT, "Conversations that went well."),
            Column("num_oom", COUNT, "Conversations past the memory cap."),
            Column("num_incompatible", COUNT, "Conversations the drafter cannot do."),
            Column("num_mismatch", COUNT, "Conversations whose live output was another one."),
            Column("num_timeout", COUNT, "Conversations that took too long."),
            Column("num_error", COUNT, "Conversations that failed."),
            Column("num_interrupted", COUNT, "Conversations begun and not ended."),
            Column("num_pending", COUNT, "Conversations never begun."),
            Column("num_steps", COUNT, "Steps that count for acceptance_length."),
            Column("acceptance_length", FLOAT, "Tokens per step, pooled; missing unless status allows."),
            Column("acceptance_rate", FLOAT, "Accepted / drafted, pooled; likewise."),
            Column("decode_tok_per_s", FLOAT, "Live decoding speed, tokens per second; likewise."),
            Column("drafter_bytes", COUNT, "Most bytes of the drafter at any turn's end; likewise."),
        ),
        "conversations": (
            *IDENTITY,
            *CONTEXT,
            *STATE,
            Column("message", TEXT, "Why, when the status is not ok."),
            Column("trace_id", TEXT, "Trace it was scored against."),
            Column("context_reached", COUNT, "With oom: context length at the breach."),
            Column("peak_bytes", COUNT, "With oom: the ledger's total at the breach."),
            Column("enforced_by", TEXT, "What held an enforced cap: cgroup, rlimit_data, cuda_fraction ..."),
            Column("policy_turn", COUNT, "Turn in which the cap was first reached; missing for never."),
            Column("policy_step", COUNT, "Step of that turn."),
            Column("policy_context", COUNT, "Tokens in the cache then."),
            Column("policy_drafter", TEXT, "With window: the drafter that was replayed instead."),
            Column("num_turns", COUNT, "Turns recorded, replayed and live counted apart."),
        ),
        "turns": (
            *IDENTITY,
            *CONTEXT,
            *STATE,
            Column("turn", COUNT, "From 0."),
            Column("mode", TEXT, "replay or live."),
            Column("is_scored", FLAG, "Counts for acceptance: replay where the cell has any, else live."),
            Column("is_pooled", FLAG, "Stands for many turns, imported as sums."),
            Column("context_length", COUNT, "Tokens before the reply, history included."),
            Column("num_prompt_tokens", COUNT, "Of these, new in this turn."),
            Column("num_output_tokens", COUNT, "Tokens of the reply, the first one included."),
            Column("stop_reason", TEXT, "eos or limit."),
            *COUNTS,
            *TIMES,
            Column("lossless", TEXT, "identical, near_tie, mismatch or not_judged."),
            Column("divergence_position", COUNT, "First reply token that differs from the trace."),
            Column("divergence_gap", FLOAT, "Target's top-two logit gap there."),
            *MEMORY,
            Column("degenerate", MAYBE_FLAG, "Whether the target repeats itself in this reply."),
            Column("repeated_share", FLOAT, "Share of the reply in repeated 8-grams, 0..1."),
            Column("copied_share", FLOAT, "Share of the reply copied from the context, 0..1."),
            Column("score", FLOAT, "Quality of the target's reply, 0..1."),
        ),
        "steps": (
            Column("cell_id", TEXT, "The cell."),
            Column("drafter", TEXT, "Label of the drafter."),
            Column("suite", TEXT, "Name of the suite."),
            Column("task", TEXT, "Name of the task."),
            Column("memory_cap_bytes", COUNT, "Cap asked for; missing for none."),
            Column("cap_policy", TEXT, "What is done at the cap; missing without one."),
            Column("device", TEXT, "Device whose usable memory the cap is; missing for a plain size."),
            Column("sampling", TEXT, "Label of the sampling."),
            *CONTEXT,
            *STATE,
            Column("turn", COUNT, "From 0."),
            Column("mode", TEXT, "replay or live."),
            Column("is_scored", FLAG, "Counts for acceptance, as in turns."),
            Column("degenerate", MAYBE_FLAG, "Whether the target repeats itself in this reply."),
            Column("step", COUNT, "From 0 within the turn."),
            Column("context_length", COUNT, "Tokens before the step's first committed one."),
            Column("drafted", COUNT, "Tokens proposed; nodes in a tree."),
            Column("depth", COUNT, "Longest path; equals drafted in a chain."),
            Column("accepted", COUNT, "Kept by the target."),
            Column("committed", COUNT, "Entered the reply, bonus token included."),
            Column("eos_cut", FLAG, "End of sequence was committed in this step."),
            Column("limit_cut", FLAG, "The token limit cut this step short."),
            Column("rejected_tokens", TEXT, "Ids of drafted tokens that were not kept; of trees one path."),
            Column("rejected_text", TEXT, "Their text; missing if there are none or it is not known which."),
            Column("draft_s", FLOAT, "Drafting, seconds."),
            Column("verify_s", FLOAT, "Verifying, seconds."),
            Column("observe_s", FLOAT, "Reading verified tokens, seconds."),
            Column("drafter_bytes", COUNT, "All kinds of the drafter but weights, after the step."),
            Column("drafter_kv_bytes", COUNT, "Of these, keys and values."),
            Column("drafter_state_bytes", COUNT, "Of these, state of fixed size."),
            Column("drafter_buffer_bytes", COUNT, "Of these, all else."),
            Column("drafter_weights_bytes", COUNT, "Its own weights; those of the target are not."),
            Column("target_weights_bytes", COUNT, "The target's weights, as a cap counts them."),
            Column("target_kv_bytes", COUNT, "The target's cache in use, after the step."),
            Column("pass_bytes", COUNT, "What the step's pass needs for a moment."),
            Column("features_bytes", COUNT, "Of these, the features that the drafter reads."),
            Column("logits_bytes", COUNT, "Of these, logits."),
            Column("workspace_bytes", COUNT, "Of these, temporary tensors at the layer that needs most."),
            Column("rejected_kv_bytes", COUNT, "Of these, rows of the cache that were dropped again."),
            Column("ledger_bytes", COUNT, "All of them: what a cap is held against."),
        ),
        "traces": (
            Column("trace_id", TEXT, "The trace."),
            Column("suite", TEXT, "Name of the suite."),
            Column("task", TEXT, "Name of the task."),
            *CONTEXT,
            Column("content_hash", TEXT, "SHA-256 over all that the target read of it."),
            Column("sampling", TEXT, "Label of the sampling."),
            Column("temperature", FLOAT, "0 is greedy."),
            Column("seed", COUNT, "Seed of the run."),
            Column("extrapolated", FLAG, "Longer than the target was made for."),
            Column("turn", COUNT, "From 0."),
            Column("context_length", COUNT, "Tokens before the reply."),
            Column("num_prompt_tokens", COUNT, "Of these, new in this turn."),
            Column("num_output_tokens", COUNT, "Tokens of the reply."),
            Column("stop_reason", TEXT, "eos or limit."),
            Column("mean_logprob", FLOAT, "Mean log-probability of the reply's tokens, nats."),
            Column("repeated_share", FLOAT, "Share of the reply in repeated 8-grams, 0..1."),
            Column("copied_share", FLOAT, "Share of the reply copied from the context, 0..1."),
            Column("degenerate", FLAG, "Whether the target repeats itself."),
            Column("score", FLOAT, "Quality of the reply, 0..1."),
            Column("ledger_bytes", COUNT, "The ledger's total of plain decoding at the turn's end."),
            Column("text", TEXT, "The reply."),
        ),
        "trace_steps": (
            Column("trace_id", TEXT, "The trace."),
            Column("suite", TEXT, "Name of the suite."),
            Column("task", TEXT, "Name of the task."),
            *CONTEXT,
            Column("sampling", TEXT, "Label of the sampling."),
            Column("turn", COUNT, "From 0."),
            Column("step", COUNT, "Passes of the target after the first token, from 0 within the turn."),
            Column("context_length", COUNT, "Tokens before the one that the pass gives; all cached then."),
            Column("target_weights_bytes", COUNT, "The target's weights."),
            Column("target_kv_bytes", COUNT, "Its cache in use, after the pass."),
            Column("logits_bytes", COUNT, "Logits of the pass."),
            Column("workspace_bytes", COUNT, "Temporary tensors at the layer that needs most."),
            Column("ledger_bytes", COUNT, "All of them: what plain decoding holds."),
            Column("features_held_bytes", COUNT, "Kept by the harness for drafters to read; in no total."),
        ),
        "memory": (
            *IDENTITY,
            *CONTEXT,
            *STATE,
            Column("turn", COUNT, "From 0."),
            Column("mode", TEXT, "replay or live."),
            Column("context_length", COUNT, "Tokens before the reply."),
            Column("end_length", COUNT, "Tokens at the turn's end, where the bytes were counted."),
            Column("owner", TEXT, "target, drafter, process ..."),
            Column("memory_kind", TEXT, "weights, kv, state, buffer, rss ..."),
            Column("bytes", COUNT, "Missing where it was not measured."),
        ),
    }
)


def empty(name: str) -> pd.DataFrame:
    """A table without rows, with all its columns."""
    return conform(name, {})


def conform(name: str, columns: Mapping[str, Any]) -> pd.DataFrame:
    """Columns in the table's order and dtypes; absent ones are missing throughout.

    Args:
        name: One of :data:`TABLES`.
        columns: Values by column name; others than the table's are left out.
    """
    import pandas as pd

    length = len(next(iter(columns.values()), ()))
    return pd.DataFrame(
        {
            column.name: pd.Series(columns.get(column.name, [None] * length), dtype=column.dtype)
            for column in TABLES[name]
        }
    )
