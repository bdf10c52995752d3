"""Colours and dashes of drafters."""

from __future__ import annotations

import pytest

from hyflash_bench.report.theme import DASHES, KNOWN, OTHERS, styles


def test_a_known_drafter_keeps_its_colour_whatever_stands_beside_it() -> None:
    """Readers compare reports."""
    alone = styles(["hyflash"])["hyflash"]
    beside = styles(["suffix", "hyflash", "zebra", "autoregressive"])["hyflash"]

    assert alone == beside
    assert alone.colour == KNOWN["hyflash"]


def test_options_of_one_drafter_differ_in_dash_and_marker() -> None:
    """One colour says which drafter, the dash says which options."""
    looks = styles(["hyflash", "hyflash:window=64", "hyflash:window=256"])

    assert len({look.colour for look in looks.values()}) == 1
    assert len({(look.dash, look.symbol) for look in looks.values()}) == 3


@pytest.mark.parametrize("count", [1, len(OTHERS), len(OTHERS) * len(DASHES)])
def test_unknown_drafters_are_told_apart(count: int) -> None:
    """Colour or dash differs for as many drafters as a figure can bear."""
    looks = styles(f"mine-{number:02d}" for number in range(count))

    assert len({(look.colour, look.dash) for look in looks.values()}) == count


def test_order_and_doubles_do_not_matter() -> None:
    """The same drafters look the same on every figure of a page."""
    assert styles(["b", "a", "b"]) == styles(["a", "b"])


def test_band_is_the_colour_made_thin() -> None:
    """Bands of several drafters can lie over each other."""
    assert styles(["autoregressive"])["autoregressive"].band == "rgba(127,127,127,0.16)"
