"""Names of files made from names of others."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyflash_bench.report.names import safe_name

SAFE = re.compile(r"[a-z0-9_][a-z0-9._-]*")


@given(st.text())
def test_any_text_becomes_a_name_that_every_system_takes(text: str) -> None:
    name = safe_name(text)

    assert SAFE.fullmatch(name)
    assert len(name) <= 69
    assert not name.endswith((".", "-"))


@given(st.lists(st.text(), unique=True, max_size=20))
def test_two_texts_never_share_a_name(texts: list[str]) -> None:
    assert len({safe_name(text) for text in texts}) == len(texts)


def test_nobody_can_take_the_name_of_another() -> None:
    """A text that is spelt like the name of another is given a name of its own."""
    assert safe_name(safe_name("Run")) != safe_name("Run")


@pytest.mark.parametrize("text", ["prompt-lookup", "run_1.2", "acceptance-g1234abcd"])
def test_what_is_safe_already_stays_as_it_is(text: str) -> None:
    assert safe_name(text) == text


@pytest.mark.parametrize(
    "text", ["", "..", "../../etc/passwd", "con", "nul.txt", "Run", "a/b", "a\\b", ".hidden", "x" * 300]
)
def test_what_is_not_gets_a_hash(text: str) -> None:
    assert re.search(r"(^|-)[0-9a-f]{8}$", safe_name(text))
