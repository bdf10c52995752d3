"""How long a run will take: right in proportion at once, right in kind soon."""

from __future__ import annotations

import pytest

from hyflash_bench.results.records import TraceRecord
from hyflash_bench.runner.estimate import Effort, Pace, effort_of
from hyflash_bench.runner.work import Work, WorkCell
from hyflash_bench.spec.drafter import DrafterSpec
from hyflash_bench.spec.sampling import GREEDY

SHORT, LONG, CHAT = Effort(512, 300), Effort(7680, 500), Effort(480, 2400)


def true_s(effort: Effort, read_s: float, write_s: float) -> float:
    return effort.read * read_s + effort.written * write_s


def work(**more) -> Work:
    repeats, drafters = more.pop("repeats", 1), more.pop("drafters", 2)
    values = {
        "trace_id": "t", "suite": "s", "item_id": "s/t/one", "sampling": GREEDY, "seed": 0,
        "max_new_tokens": 50, "draft_budget": 8, "mode": "both",
        "cells": tuple(
            WorkCell(cell_id=f"{d}{r}", drafter=DrafterSpec(name=f"d{d}"), memory_cap_bytes=None, repeat=r)
            for d in range(drafters)
            for r in range(repeats)
        ),
    }  # fmt: skip
    return Work(**{**values, **more})


@pytest.mark.parametrize("scale", [0.01, 1.0, 30.0])
def test_one_conversation_tells_how_fast_the_machine_is(scale: float) -> None:
    """Where reading and writing keep the proportion that was guessed, nothing else has to be learned."""
    pace = Pace()
    guess = pace.seconds([LONG]), pace.seconds([SHORT, CHAT])
    pace.learn(LONG, scale * guess[0])
    assert pace.seconds([SHORT, CHAT]) == pytest.approx(scale * guess[1])


@pytest.mark.parametrize(("read_s", "write_s"), [(1 / 3000, 0.03), (1 / 100, 0.005), (1e-5, 0.1), (0.02, 0)])
def test_a_few_conversations_tell_reading_from_writing(read_s: float, write_s: float) -> None:
    """The guess of their proportion may be wrong by far."""
    pace = Pace()
    for effort in (SHORT, LONG, CHAT, SHORT, LONG, CHAT):
        pace.learn(effort, true_s(effort, read_s, write_s))
    left = [SHORT, SHORT, LONG, CHAT]
    assert pace.seconds(left) == pytest.approx(sum(true_s(e, read_s, write_s) for e in left), rel=0.25)


def test_a_first_short_conversation_does_not_promise_that_long_ones_are_short() -> None:
    """The order of suites must not decide what is said is left."""
    pace = Pace()
    pace.learn(SHORT, true_s(SHORT, 1 / 250, 0.04))
    truth = true_s(LONG, 1 / 250, 0.04) + true_s(CHAT, 1 / 250, 0.04)
    assert pace.seconds([LONG, CHAT]) == pytest.approx(truth, rel=0.2)


def test_what_was_measured_never_makes_time_run_backwards() -> None:
    pace = Pace()
    for effort, seconds in ((SHORT, 100.0), (LONG, 1.0), (CHAT, 0.0)):
        pace.learn(effort, seconds)
    assert min(pace.seconds([effort]) for effort in (SHORT, LONG, CHAT)) >= 0


def test_more_of_anything_is_more_work() -> None:
    """Prompt tokens, turns, reply tokens, drafters, repeats and modes all count."""
    base = Pace().seconds([effort_of(work())])
    for more in (
        {"context_length": 2048}, {"num_turns": 4}, {"max_new_tokens": 90}, {"drafters": 3}, {"repeats": 2},
    ):  # fmt: skip
        assert Pace().seconds([effort_of(work(**more))]) > base
    assert Pace().seconds([effort_of(work(mode="replay"))]) < base
    assert Pace().seconds([effort_of(work(mode="live"))]) < base


def test_a_trace_that_is_known_is_read_and_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    known = TraceRecord.model_construct(turns=[])
    fresh, again = work(), work().model_copy(update={"known": known})
    assert effort_of(again).read > effort_of(fresh).read
    assert effort_of(again).written < effort_of(fresh).written
