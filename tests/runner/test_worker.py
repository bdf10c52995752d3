"""The worker seen from outside: how it ends."""

from __future__ import annotations

import multiprocessing

import pytest

from hyflash_bench.runner.undercap import Signs
from hyflash_bench.runner.worker import Job, serve
from hyflash_bench.spec.drafter import DrafterSpec
from hyflash_bench.spec.target import TargetSpec


def test_a_worker_whose_parent_is_gone_ends_without_a_word(capfd: pytest.CaptureFixture[str]) -> None:
    """It shares the parent's terminal, where somebody else may be typing by then."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    ours.close()
    job = Job(TargetSpec(), (DrafterSpec(name="no-such-drafter"),), {})
    process = context.Process(target=serve, args=(theirs, job, Signs()))

    process.start()
    theirs.close()
    process.join()

    assert process.exitcode == 0
    assert capfd.readouterr().err == ""
