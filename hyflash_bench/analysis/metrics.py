"""Every metric once: name, unit, direction, definition, formula, source. Terminal, files, page ask here."""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from hyflash_bench.analysis.metric import Metric
from hyflash_bench.errors import UnknownName
from hyflash_bench.results.status import SEVERITY

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["METRICS", "QUANTILES", "Metric", "definitions_of", "metric_named"]

QUANTILES: Final = (50, 95, 99)
"""Percentiles of what is timed."""


def _timed(name: str, definition: str) -> Metric:
    return Metric(
        name=name, unit="seconds per turn", better="lower", definition=definition,
        formula=f"mean of {name} over turns", rows="live", above=name,
    )  # fmt: skip


def _quantile(name: str, percent: int, of: str, definition: str) -> Metric:
    return Metric(
        name=f"{name}_p{percent}_s", unit=f"seconds per {of}", better="lower",
        definition=f"{definition}, {percent} % are at most this long. Missing where too few were timed "
        "to tell it from the longest.",
        formula=f"{percent}th percentile over {of}s, pooled", source="linear between neighbours, as in numpy",
        rows="live", pooling="table", table="latency.latency",
    )  # fmt: skip


def _share(part: str, definition: str) -> Metric:
    return Metric(
        name=f"{part}_share", unit="share, 0..1", better="neither", definition=definition,
        formula=f"sum of {part}_s / sum of decode_s", rows="live",
        above=f"{part}_s", below="decode_s",
    )  # fmt: skip


def _bytes(name: str, definition: str, source: str = "live tensors, counted once each") -> Metric:
    return Metric(
        name=name, unit="bytes", better="lower", definition=definition,
        formula=f"largest {name} over turns", source=source,
        rows="all", pooling="max", above=name,
    )  # fmt: skip


def _lossless(word: str, definition: str) -> Metric:
    return Metric(
        name=f"num_{word}", unit="turns", better="neither", definition=definition,
        formula=f"turns with lossless = {word}", rows="live", pooling="count",
        above=f"lossless={word}", gate=frozenset(SEVERITY),
    )  # fmt: skip


_ALL: Final = (
    Metric(
        name="acceptance_length",
        unit="tokens per step",
        better="higher",
        definition="Tokens committed per step, bonus token counted, pooled over all steps. "
        "The first token of a reply comes from prefill and is no step; steps that the token limit "
        "cut short are left out; steps that ended the reply are cut at its end.",
        formula="sum of committed / sum of steps",
        source="tau of the EAGLE papers; pooled as in Spec-Bench and vLLM, exact at the end",
        above="num_uncut_committed",
        below="num_uncut_steps",
    ),
    Metric(
        name="acceptance_length_mean",
        unit="tokens per step",
        better="higher",
        definition="acceptance_length of each conversation, averaged: short replies weigh as much "
        "as long ones.",
        formula="mean over conversations of (sum of committed / sum of steps)",
        source="as averaged by specdec_bench and DFlash",
        pooling="mean",
        above="num_uncut_committed",
        below="num_uncut_steps",
    ),
    Metric(
        name="acceptance_rate",
        unit="share, 0..1",
        better="higher",
        definition="Drafted tokens that the target kept, of all drafted; nodes in a tree.",
        formula="sum of accepted / sum of drafted",
        source="draft acceptance rate of vLLM; the bonus token is not counted",
        above="num_uncut_accepted",
        below="num_uncut_drafted",
    ),
    Metric(
        name="position_acceptance",
        unit="probability, 0..1",
        better="higher",
        definition="Chance that a slot of a chain is accepted, given that all slots before it were.",
        formula="steps with accepted >= j / steps with drafted >= j and accepted >= j - 1",
        source="conditional acceptance; the running product is the joint one",
        pooling="table",
        table="positions.position_acceptance",
    ),
    Metric(
        name="step_share",
        unit="share, 0..1",
        better="neither",
        definition="Steps that committed this many tokens, of all steps.",
        formula="steps with committed = k / steps",
        source="the histogram of vLLM's per-request metrics, bonus token counted",
        pooling="table",
        table="positions.step_distribution",
    ),
    Metric(
        name="token_share",
        unit="share, 0..1",
        better="neither",
        definition="Tokens that came from steps that committed this many, of all tokens from steps.",
        formula="k * steps with committed = k / sum of committed",
        pooling="table",
        table="positions.step_distribution",
    ),
    Metric(
        name="decode_tok_per_s",
        unit="tokens per second",
        better="higher",
        definition="Tokens committed by steps per second of decoding; prefill and first token apart.",
        formula="sum of committed / sum of decode_s",
        rows="live",
        above="num_committed",
        below="decode_s",
    ),
    Metric(
        name="speedup",
        unit="times the reference",
        better="higher",
        definition="Plain decoding's seconds per committed token over this drafter's, on the same "
        "conversations of the same run.",
        formula="(decode_s / committed of the reference) / (decode_s / committed)",
        source="decode only; the prompt's cost stands in ttft_s",
        rows="live",
        pooling="table",
        table="summary.headline",
    ),
    Metric(
        name="time_per_output_token_s",
        unit="seconds per token",
        better="lower",
        definition="Seconds of decoding per token committed by steps: the inverse of decode_tok_per_s.",
        formula="sum of decode_s / sum of committed",
        source="TPOT of the serving benchmarks, the first token apart as there",
        rows="live",
        above="decode_s",
        below="num_committed",
    ),
    _timed("ttft_s", "Time to the first token: prefill, the drafter's reading of the prompt, a token."),
    _timed("prefill_s", "The target's pass over the new prompt tokens."),
    _timed("observe_prompt_s", "The drafter's reading of the prompt, part of ttft_s."),
    *(_quantile("ttft", each, "turn", "Time to the first token: of all turns") for each in QUANTILES),
    *(
        _quantile("time_per_output_token", each, "turn", "Decoding time of a turn per token: of all turns")
        for each in QUANTILES
    ),
    *(
        _quantile("step", each, "step", "Drafting, verifying and observing in one step: of all steps")
        for each in QUANTILES
    ),
    _share("draft", "Part of decoding spent drafting."),
    _share("verify", "Part of decoding spent verifying by the target."),
    _share("observe", "Part of decoding spent on the drafter's reading of verified tokens."),
    _share("overhead", "Part of decoding that is neither: the loop itself."),
    _bytes("drafter_bytes", "All the drafter holds; weights shared with the target are the target's."),
    _bytes("drafter_weights_bytes", "Weights of the drafter's own."),
    _bytes("drafter_kv_bytes", "The drafter's key-value cache, which grows with context."),
    _bytes("drafter_state_bytes", "The drafter's state of fixed size."),
    _bytes("drafter_buffer_bytes", "The drafter's work space."),
    _bytes("drafter_peak_bytes", "All kinds but weights after the largest step."),
    _bytes("target_kv_bytes", "The target's key-value cache."),
    _bytes("ledger_bytes", "All that target, drafter and a pass hold: what a memory cap is held against."),
    _bytes(
        "measured_peak_bytes",
        "Peak of torch's allocator on a GPU, else of the whole process, program and harness included.",
        "torch, or the operating system",
    ),
    _bytes(
        "formula_difference_bytes",
        "Bytes that live tensors hold beyond the closed formulas, at worst; 0 where both agree.",
        "live tensors against closed formulas",
    ),
    Metric(
        name="drafter_bytes_per_context_token",
        unit="bytes per token of context",
        better="lower",
        definition="What the drafter holds besides its weights at a turn's end, over the tokens there.",
        formula="mean over turns of (kv + state + buffer) / context at the turn's end",
        source="live tensors, counted once each",
        rows="all",
        above="drafter_bytes_per_context_token",
    ),
    Metric(
        name="energy_j_per_token",
        unit="joules per token",
        better="lower",
        definition="What the GPU drew during a turn, prefill included, per token of the reply; missing "
        "where there is no energy counter.",
        formula="sum of energy_j / sum of output tokens",
        source="the GPU's own counter, as NVML reads it",
        rows="live",
        above="energy_j",
        below="num_output_tokens",
    ),
    Metric(
        name="score",
        unit="share, 0..1",
        better="higher",
        definition="Quality of the target's own replies where the suite scores them; the same for "
        "every drafter, since none can change the output.",
        formula="mean of score over scored turns",
        above="score",
    ),
    Metric(
        name="degenerate_share",
        unit="share, 0..1",
        better="lower",
        definition="Replies in which the target repeats itself; they flatter every drafter.",
        formula="degenerate turns / turns",
        above="degenerate",
    ),
    _lossless("identical", "Live turns whose output equals the trace."),
    _lossless("near_tie", "Live turns that differ first where the target's top two nearly tie."),
    _lossless("mismatch", "Live turns that differ otherwise: the drafter's numbers are void."),
    _lossless("not_judged", "Live turns that cannot be compared, as when sampling."),
)

METRICS: Final[Mapping[str, Metric]] = MappingProxyType({metric.name: metric for metric in _ALL})
"""Every metric by its name."""


def metric_named(name: str) -> Metric:
    """A metric by its name.

    Raises:
        UnknownName: No such metric.
    """
    if name not in METRICS:
        raise UnknownName("metric", name, METRICS)
    return METRICS[name]


def definitions_of(columns: Iterable[str]) -> list[dict[str, str]]:
    """What stands behind a table's columns, for files: a row for each that is a metric."""
    found = [METRICS[name] for name in dict.fromkeys(columns) if name in METRICS]
    names = ("name", "unit", "better", "definition", "formula", "source")
    return [{name: getattr(metric, name) for name in names} for metric in found]
