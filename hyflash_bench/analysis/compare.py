"""Like with like: drafters within a run, or the same drafter in two runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hyflash_bench.analysis.groups import Groups
from hyflash_bench.analysis.metrics import METRICS, Metric, metric_named
from hyflash_bench.errors import UnknownName, UsageError
from hyflash_bench.results.merge import differences
from hyflash_bench.results.reader import Run, load_run

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["compare"]

GROUP: Final = ("drafter", "suite", "sampling", "memory_cap_bytes")
_MUST_AGREE: Final = ("target_id", "suite_hash", "max_new_tokens", "draft_budget")


def compare(
    a: Run | Path | str,
    b: Run | Path | str | None = None,
    *,
    metric: str = "acceptance_length",
    reference: str | None = None,
    allow_different: bool = False,
) -> pd.DataFrame:
    """Compare drafters within a run, or run ``b`` against run ``a``, on the conversations they share.

    Args:
        a: A run, its folder or its name; with ``b``, the one that is compared against.
        b: Another run; None to compare the drafters of ``a`` with each other.
        metric: A metric with an interval, such as acceptance_length or decode_tok_per_s (whose
            ratio is the speedup).
        reference: Label of the drafter compared against. By default plain decoding within a run,
            and the drafter of the same label between runs.
        allow_different: Compare in spite of another target, suite version, token limit, draft
            budget or, for times, machine; the ``differences`` column says what differs.

    Returns:
        One row per drafter, suite, sampling and memory cap: ``status``, ``value``, ``reference``,
        ``reference_value``, ``ratio`` with ``ratio_low`` and ``ratio_high``, ``verdict`` (higher,
        lower, no clear difference), ``num_conversations`` in common, ``reason`` why the ratio or
        its interval is missing, ``differences``.

    Raises:
        UsageError: The two are not alike, or share no suite and sampling; the message names what
            differs.
        UnknownName: No such run, metric or drafter.
    """
    chosen = _with_interval(metric)
    one = a if isinstance(a, Run) else load_run(a)
    two = one if b is None else b if isinstance(b, Run) else load_run(b)
    if two is one and reference is None:
        reference = _plain_decoding(one)
    if reference is not None:
        _require_drafter(one, reference)
    found = [] if two is one else _differences(one, two, chosen)
    if found and not allow_different:
        raise UsageError(
            f"Runs {one.run_id} and {two.run_id} are not alike: {'; '.join(found)}. Run both under "
            "the same conditions, or pass allow_different to compare them all the same."
        )
    return _frame(_rows(one, two, chosen, reference, "; ".join(found)))


def _with_interval(name: str) -> Metric:
    metric = metric_named(name)
    if not metric.has_interval:
        known = ", ".join(each.name for each in METRICS.values() if each.has_interval)
        raise UsageError(f"Metric {name!r} has no interval to compare by. Choose one of: {known}.")
    return metric


def _plain_decoding(run: Run) -> str:
    names = list(run.cells.loc[run.cells["is_reference"], "drafter"].unique())
    if not names:
        known = ", ".join(sorted(run.cells["drafter"].unique()))
        raise UsageError(
            f"Run {run.run_id} has no plain decoding to compare with. Name a reference: {known}."
        )
    return str(names[0])


def _require_drafter(run: Run, label: str) -> None:
    known = run.cells["drafter"].unique()
    if label not in known:
        raise UnknownName(f"drafter of run {run.run_id}", label, map(str, known))


def _differences(one: Run, two: Run, metric: Metric) -> list[str]:
    """What makes two runs unlike each other, for this metric.

    Raises:
        UsageError: They have no suite and sampling in common.
    """
    shared = _kinds_of_work(one) & _kinds_of_work(two)
    if not shared:
        raise UsageError(
            f"Runs {one.run_id} and {two.run_id} share no work: one has {_listed(one)}, the other "
            f"{_listed(two)}. Compare runs of the same suite and sampling."
        )
    found = [
        f"{name} of suite {suite} ({sampling}) is {_shown(old)} and {_shown(new)}"
        for suite, sampling in sorted(shared)
        for name in _MUST_AGREE
        if (old := _distinct(one, name, suite, sampling)) != (new := _distinct(two, name, suite, sampling))
    ]
    if metric.rows == "live":
        found += differences("environment", one.manifest.environment, two.manifest.environment)
    return found


def _kinds_of_work(run: Run) -> set[tuple[str, str]]:
    work = run.cells[["suite", "sampling"]].itertuples(index=False)
    return {(str(suite), str(sampling)) for suite, sampling in work}


def _distinct(run: Run, column: str, suite: str, sampling: str) -> set[Any]:
    cells = run.cells[(run.cells["suite"] == suite) & (run.cells["sampling"] == sampling)]
    return set(cells[column])


def _listed(run: Run) -> str:
    return ", ".join(f"{suite} ({sampling})" for suite, sampling in sorted(_kinds_of_work(run))) or "nothing"


def _shown(values: set[Any]) -> str:
    return " and ".join(sorted(map(str, values)))


def _rows(one: Run, two: Run, metric: Metric, reference: str | None, found: str) -> Iterator[dict[str, Any]]:
    old, new = Groups(one, GROUP), Groups(two, GROUP)
    if two is one:
        new = old
    values, old_values = new.values(metric), old.values(metric)
    places = {key: row for row, key in enumerate(_keys(old))}
    for row, (drafter, *work) in enumerate(_keys(new)):
        against = reference if reference is not None else drafter
        place = places.get((against, *work))
        if place is None or (two is one and place == row):
            continue
        interval = new.paired(metric, row, old, place)
        yield {
            **{name: new.table[name].iloc[row] for name in (*GROUP, "status")},
            "value": values[row],
            "reference": against if two is one else f"{against} in {one.run_id}",
            "reference_value": old_values[place],
            "ratio": interval.value,
            "ratio_low": interval.low,
            "ratio_high": interval.high,
            "verdict": interval.verdict(),
            "num_conversations": interval.num_conversations,
            "reason": interval.reason,
            "differences": found or None,
        }


def _keys(groups: Groups) -> list[tuple[str, ...]]:
    """Group names as text, in which a missing cap equals a missing cap."""
    return [tuple(map(str, key)) for key in groups.table[list(GROUP)].itertuples(index=False)]


_DTYPES: Final = {
    **dict.fromkeys(("drafter", "suite", "sampling"), "str"),
    "memory_cap_bytes": "Int64",
    "status": "str",
    "value": "float64",
    "reference": "str",
    "reference_value": "float64",
    **dict.fromkeys(("ratio", "ratio_low", "ratio_high"), "float64"),
    "verdict": "str",
    "num_conversations": "int64",
    **dict.fromkeys(("reason", "differences"), "str"),
}


def _frame(rows: Iterator[dict[str, Any]]) -> pd.DataFrame:
    import pandas as pd

    listed: Sequence[dict[str, Any]] = list(rows)
    return pd.DataFrame(
        {name: pd.Series([row[name] for row in listed], dtype=dtype) for name, dtype in _DTYPES.items()}
    )
