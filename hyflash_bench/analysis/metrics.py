"""Every metric once: name, unit, definition, and how it follows from the turns.

Almost all are ratios of sums. Each is first summed per conversation; :meth:`Metric.over` then pools
the conversations, and intervals resample them document by document.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal

from hyflash_bench.errors import UnknownName, UsageError
from hyflash_bench.results.status import NUMBER_STATUSES, SEVERITY

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

    from hyflash_bench.results.records import Status

__all__ = ["CONVERSATION", "METRICS", "Metric", "metric_named"]

CONVERSATION: Final = ("suite", "item_id")
"""What makes two rows the same conversation, whatever the drafter, the cap or the repeat."""

Rows = Literal["scored", "live", "all"]
Pooling = Literal["ratio", "mean", "max", "count", "paired", "table"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A number with everything needed to read it.

    Attributes:
        name: Column name, unit included.
        unit: In words, for tables.
        better: Which direction is good, if one is.
        definition: What it is, in a sentence.
        formula: Over turns or steps.
        source: Whose definition this is, or how it differs from others of the same name.
        rows: Turns it is read off: ``scored`` (the replay, or live where nothing was replayed),
            ``live``, or ``all``.
        pooling: ``ratio`` of sums; ``mean`` of each conversation's ratio; ``max``; ``count``;
            ``paired`` and ``table`` have functions of their own.
        above: Column summed in the numerator.
        below: Column summed in the denominator; None counts the turns where ``above`` is known.
        gate: Statuses under which the number is shown.
    """

    name: str
    unit: str
    better: Literal["higher", "lower", "neither"]
    definition: str
    formula: str
    source: str = "this project"
    rows: Rows = "scored"
    pooling: Pooling = "ratio"
    above: str = ""
    below: str | None = None
    gate: frozenset[Status] = NUMBER_STATUSES

    @property
    def has_interval(self) -> bool:
        """Whether resampling documents makes sense for it."""
        return self.pooling in ("ratio", "mean")

    @property
    def is_whole(self) -> bool:
        """Whether it is a whole number: bytes and counts."""
        return self.pooling in ("max", "count")

    def per_conversation(self, turns: pd.DataFrame, by: Sequence[str] = ()) -> pd.DataFrame:
        """Sums of each conversation: ``by``, suite, item_id, ``above``, ``below``.

        Turns where either was not measured are left out of both.

        Args:
            turns: The turns table of a run, or some of its rows.
            by: Columns to keep apart besides.
        """
        self._require_turns()
        rows = turns[_counted(turns, self)]
        keys = list(dict.fromkeys([*by, *CONVERSATION]))
        above = _column(rows, self.above)
        below = _column(rows, self.below) if self.below else above.notna().astype("float64")
        known = above.notna() & below.notna()
        parts = rows.loc[known, keys].assign(above=above[known], below=below[known])
        groups = parts.groupby(keys, dropna=False, sort=False)
        if self.pooling == "max":
            return groups.max().reset_index()
        sums = groups.sum().reset_index()
        if self.pooling == "mean":
            sums = sums[sums["below"] > 0]
            return sums.assign(above=sums["above"] / sums["below"], below=1.0)
        return sums

    def over(self, turns: pd.DataFrame, by: Sequence[str] = ()) -> pd.Series[float]:
        """The number for each group; groups without a measurement are absent or NaN.

        Args:
            turns: The turns table of a run, or some of its rows.
            by: Columns that make the groups; one group named ``all`` without them.
        """
        sums = self.per_conversation(turns, by)
        keys = [sums[name] for name in by] or [sums["suite"].map(lambda _: "all")]
        groups = sums.groupby(keys, dropna=False)
        if self.pooling == "max":
            value = groups["above"].max()
        elif self.pooling == "count":
            value = groups["above"].sum()
        else:
            below = groups["below"].sum()
            value = groups["above"].sum() / below.where(below > 0)
        return value.rename(self.name)

    def _require_turns(self) -> None:
        if self.pooling in ("paired", "table"):
            raise UsageError(
                f"Metric {self.name!r} does not follow from turns alone; use hyflash_bench.analysis."
                f"{'summary.headline' if self.pooling == 'paired' else 'positions.position_acceptance'}."
            )


def _counted(turns: pd.DataFrame, metric: Metric) -> pd.Series[bool]:
    """Rows of finished conversations in the metric's mode."""
    # A mismatch is a finished conversation too, for those metrics that speak about it.
    finished = turns["status"].isin({"ok", "mismatch"} & metric.gate)
    if metric.rows == "live":
        return finished & (turns["mode"] == "live")
    return finished & turns["is_scored"] if metric.rows == "scored" else finished


def _column(rows: pd.DataFrame, name: str) -> pd.Series[float]:
    """A column as floats; ``lossless=word`` is 1 where the column says the word."""
    column, _, word = name.partition("=")
    values = rows[column] == word if word else rows[column]
    return values.astype("Float64").astype("float64")


def _timed(name: str, definition: str) -> Metric:
    return Metric(
        name=name, unit="seconds per turn", better="lower", definition=definition,
        formula=f"mean of {name} over turns", rows="live", above=name,
    )  # fmt: skip


def _share(part: str, definition: str) -> Metric:
    return Metric(
        name=f"{part}_share", unit="share, 0..1", better="neither", definition=definition,
        formula=f"sum of {part}_s / sum of decode_s", rows="live",
        above=f"{part}_s", below="decode_s",
    )  # fmt: skip


def _bytes(name: str, definition: str) -> Metric:
    return Metric(
        name=name, unit="bytes", better="lower", definition=definition,
        formula=f"largest {name} over turns", source="live tensors, counted once each",
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
        pooling="paired",
    ),
    _timed("ttft_s", "Time to the first token: prefill, the drafter's reading of the prompt, a token."),
    _timed("prefill_s", "The target's pass over the new prompt tokens."),
    _timed("observe_prompt_s", "The drafter's reading of the prompt, part of ttft_s."),
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
