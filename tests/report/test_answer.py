"""The question answered in sentences."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from hyflash_bench.report.answer import answer_of

NAN = math.nan
NO_CONTEXT = pd.DataFrame(columns=["suite", "sampling", "memory_cap_bytes", "acceptance_length"])


def _row(drafter: str, speed: float, speedup: float, half: float = 0.1, **changes: Any) -> dict[str, Any]:
    row = {
        "drafter": drafter,
        "suite": "quick",
        "sampling": "greedy",
        "memory_cap_bytes": pd.NA,
        "status": "ok",
        "acceptance_length": 2.5,
        "acceptance_length_low": 2.4,
        "acceptance_length_high": 2.6,
        "decode_tok_per_s": speed,
        "decode_tok_per_s_low": speed - half,
        "decode_tok_per_s_high": speed + half,
        "speedup": speedup,
        "speedup_low": speedup - half,
        "speedup_high": speedup + half,
        "verdict": "higher",
        "reason": None,
        "drafter_bytes": 2**20,
        "num_conversations": 8,
    }
    return row | changes


def _answer(*rows: dict[str, Any]) -> list[str]:
    return answer_of(pd.DataFrame(rows), NO_CONTEXT, {"autoregressive"})


PLAIN = _row("autoregressive", 10.0, NAN, reason="this is the reference")


def test_the_fastest_is_named_with_speed_interval_and_bytes() -> None:
    """Which drafter, and at what cost."""
    assert _answer(PLAIN, _row("suffix", 15.0, 1.5), _row("hyflash", 20.0, 2.0)) == [
        "On quick (greedy, no memory cap), hyflash decodes fastest, 20.0 tokens/s, 2.00 times plain decoding "
        "(95 % interval 1.90 to 2.10), committing 2.50 tokens per step (95 % interval 2.40 to 2.60) "
        "and holding at most 1 MiB."
    ]


def test_a_drafter_on_fewer_conversations_is_not_called_the_best() -> None:
    """It may have had the easier ones."""
    all_of_them = _row("hyflash", NAN, NAN)
    fewer = _row("full-context", NAN, NAN, num_conversations=4, acceptance_length=3.0)
    (sentence,) = _answer(fewer, all_of_them)
    assert sentence.startswith(
        "On quick (greedy, no memory cap), hyflash has the highest acceptance length, 2.50"
    )


def test_plain_decoding_is_no_drafter_to_choose() -> None:
    """Being slower than nothing is said as such."""
    assert _answer(PLAIN, _row("suffix", 8.0, 0.8)) == [
        "On quick (greedy, no memory cap), no drafter is faster than plain decoding, 10.0 tokens/s; "
        "the next is suffix, 0.80 times it (95 % interval 0.70 to 0.90)."
    ]


def test_doubts_stand_beside_the_winner() -> None:
    """Overlap, no clear difference, too few conversations."""
    near = _answer(_row("a", 15.0, 1.5, 2.0), _row("b", 14.0, 1.4, 2.0))[0]
    same = _answer(PLAIN, _row("a", 10.5, 1.0, 1.0, verdict="no clear difference"))[0]
    few = _answer(PLAIN, _row("a", 15.0, 1.5, NAN, reason="2 conversations; an interval needs 5"))[0]

    assert near.endswith("Its interval overlaps that of b.")
    assert "no clear difference from plain decoding." in same
    assert few.endswith("There is no interval: 2 conversations; an interval needs 5.")


def test_an_interval_beside_one_is_no_verdict_where_many_were_compared() -> None:
    """And the sentence says so, since the numbers alone read otherwise."""
    best = _row("a", 15.0, 1.5, verdict="no clear difference")
    assert (
        "no clear difference from plain decoding, since several drafters were compared."
        in _answer(PLAIN, best)[0]
    )


def test_many_that_are_as_fast_are_counted() -> None:
    rows = [_row(f"d{number}", 15.0 - number, 1.5, 20.0) for number in range(7)]
    assert _answer(*rows[:4])[0].endswith("overlaps that of d1, d2 and d3.")
    assert _answer(*rows)[0].endswith("overlaps that of d1, d2, d3 and 3 others.")


def test_unfinished_drafters_do_not_win_over_finished_ones() -> None:
    """What they left out may be the slow part."""
    assert "a decodes fastest" in _answer(_row("a", 15.0, 1.5), _row("b", 30.0, 3.0, status="interrupted"))[0]


def test_without_speeds_acceptance_answers_and_without_numbers_the_statuses() -> None:
    """A replay measures no speed."""
    assert "a has the highest acceptance length, 2.50" in _answer(_row("a", NAN, NAN))[0]
    nothing = _row("a", NAN, NAN, status="oom", acceptance_length=NAN)
    assert _answer(nothing)[0].endswith("no drafter finished all conversations (oom).")
