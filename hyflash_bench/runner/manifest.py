"""The manifest of a run: what was asked for, on what machine, with which target, suites and cells."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import hyflash_bench
from hyflash_bench.memory.lookup import networks_of
from hyflash_bench.results.layout import Layout
from hyflash_bench.results.load import read_manifest
from hyflash_bench.results.records import Manifest
from hyflash_bench.runner.asked import asked_devices
from hyflash_bench.runner.environment import environment, git_state
from hyflash_bench.runner.plan import Plan
from hyflash_bench.spec.run import RunSpec
from hyflash_bench.suites.suite import Suite

__all__ = ["manifest_of"]


def manifest_of(
    spec: RunSpec,
    plan: Plan,
    suites: Sequence[Suite],
    layout: Layout,
    command: Sequence[str],
    busy: float | None,
) -> Manifest:
    """All that is known before the first measurement.

    Args:
        spec: The request.
        plan: Its cells.
        suites: Its suites.
        layout: Of the run folder, which may hold a run already.
        command: The command line.
        busy: Share of the machine that other programs use; None if nothing is going to be measured.
    """
    return Manifest(
        run_id=layout.folder.resolve().name,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        package_version=hyflash_bench.__version__,
        command=list(command),
        request=spec.model_dump(mode="json", exclude_unset=True),
        resolved=spec.to_mapping(),
        target=dict(plan.target),
        suites=[
            {
                "suite_hash": suite.suite_hash,
                **suite.spec.model_dump(mode="json", include={"name", "version", "title", "licence"}),
                "description": suite.spec.description,
            }
            for suite in suites
        ],
        environment={**environment(), "busy_share": _busiest(layout, busy)},
        git=git_state(Path(hyflash_bench.__file__).parent),
        devices=[device.model_dump(mode="json") for device in asked_devices(spec)],
        networks=networks_of(spec.drafters, str(plan.target["name"])),
        cells=list(plan.cells),
    )


def _busiest(layout: Layout, busy: float | None) -> float | None:
    """The largest busy share of all commands that measured something for the run."""
    before = read_manifest(layout).environment.get("busy_share") if layout.is_run else None
    shares = [share for share in (before, busy) if isinstance(share, float | int)]
    return round(max(shares), 2) if shares else None
