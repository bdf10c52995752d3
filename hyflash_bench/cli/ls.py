"""``ls``: what there is to choose from."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from hyflash_bench.cli.base import command as declare
from hyflash_bench.cli.options import json_option

if TYPE_CHECKING:
    from hyflash_bench.results import RunListing
    from hyflash_bench.spec.device import DeviceProfile

__all__ = ["command"]

Rows = list[dict[str, Any]]


@declare("ls", examples=("ls drafters -v", "ls devices -v", "ls runs --json"))
@click.argument("what", type=click.Choice(["suites", "drafters", "targets", "devices", "runs", "metrics"]))
@click.option("-v", "--verbose", is_flag=True, help="Show options, tasks and definitions too.")
@json_option
def command(what: str, verbose: bool, as_json: bool) -> None:
    """List suites, drafters, targets, devices, runs or metrics.

    Use it to find the names that run, show and report take, and with -v what can be set.
    """
    from hyflash_bench import console

    rows = _LISTS[what](verbose)
    if as_json:
        console.write_json(rows)
    else:
        console.table(rows, what.capitalize())


def _suites(verbose: bool) -> Rows:
    from hyflash_bench.suites.catalog import list_suites, load_suite

    specs = [load_suite(name).spec for name in list_suites()]
    return [
        {"name": spec.name, "title": spec.title, "tasks": [task.name for task in spec.tasks]}
        | ({"description": spec.description, "licence": spec.licence} if verbose else {})
        for spec in specs
    ]


def _drafters(verbose: bool) -> Rows:
    from hyflash_bench.registry import drafter_summaries

    summaries = drafter_summaries()
    if not verbose:
        return [{"name": name, "summary": summary} for name, summary in summaries.items()]
    return [row for name in summaries for row in _drafter_options(name)]


def _drafter_options(name: str) -> Rows:
    """A row per option; one row without option for a drafter that has none or cannot be loaded."""
    from hyflash_bench.errors import HyFlashError
    from hyflash_bench.registry import describe_drafter
    from hyflash_bench.spec.drafter import DrafterSpec

    empty = {"name": name, "option": None, "type": None, "default": None}
    try:
        detail = describe_drafter(DrafterSpec(name=name))
    except HyFlashError as error:
        return [empty | {"description": str(error)}]
    options = [
        {
            "name": name,
            "option": option.name,
            "type": option.type,
            "default": option.default,
            "description": option.description,
        }
        for option in detail.options
    ]
    return options or [empty | {"description": detail.summary}]


def _targets(verbose: bool) -> Rows:
    from hyflash_bench.targets.presets import PRESETS

    return [{"name": name, "summary": preset.summary} for name, preset in PRESETS.items()]


def _devices(verbose: bool) -> Rows:
    """A row a profile; with all details a row for each of its numbers, with its source."""
    from hyflash_bench.spec.device import HOST, device_names, host_path, read_device

    names = [*device_names(), *([HOST] if host_path().is_file() else [])]
    profiles = [read_device(name) for name in names]
    if verbose:
        return [row for profile in profiles for row in _device_numbers(profile)]
    return [
        {
            "name": profile.name,
            "title": profile.title,
            "kind": profile.kind,
            "usable_bytes": profile.memory_usable.value,
            "basis": [f"{count} {basis}" for basis, count in sorted(profile.bases().items())],
        }
        for profile in profiles
    ]


def _device_numbers(profile: DeviceProfile) -> Rows:
    from hyflash_bench.spec.device import Rates, Size
    from hyflash_bench.spec.units import format_bytes

    rows = []
    for key, number in profile.sourced().items():
        if isinstance(number, Rates):
            value = f"{min(number.flop_per_s):.3g} to {max(number.flop_per_s):.3g}"
        else:
            value = format_bytes(number.value) if isinstance(number, Size) else f"{number.value:.4g}"
        rows.append(
            {
                "name": profile.name,
                "number": key,
                "value": value,
                "basis": number.basis,
                "source": number.source,
            }
        )
    return rows


def _runs(verbose: bool) -> Rows:
    from hyflash_bench.results import list_runs

    return [_run_row(listing, verbose) for listing in list_runs()]


def _run_row(listing: RunListing, verbose: bool) -> dict[str, Any]:
    manifest = listing.manifest
    if manifest is None:
        names = ["created", "finished", "target", "suites", "num_cells", *(["command"] * verbose)]
        return {"run": str(listing.folder), **dict.fromkeys(names), "problem": listing.problem}
    row = {
        "run": str(listing.folder),
        "created": manifest.created_at,
        "finished": manifest.finished_at,
        "target": (manifest.target or {}).get("name"),
        "suites": [suite["name"] for suite in manifest.suites],
        "num_cells": len(manifest.cells),
    }
    if verbose:
        row["command"] = shlex.join(manifest.command)
    return row | {"problem": None}


_OF_METRIC = ("definition", "formula", "source")


def _metrics(verbose: bool) -> Rows:
    from hyflash_bench.analysis.metrics import METRICS

    return [
        {"name": metric.name, "unit": metric.unit, "better": metric.better}
        | ({name: getattr(metric, name) for name in _OF_METRIC} if verbose else {})
        for metric in METRICS.values()
    ]


_LISTS: dict[str, Callable[[bool], Rows]] = {
    "suites": _suites,
    "drafters": _drafters,
    "targets": _targets,
    "devices": _devices,
    "runs": _runs,
    "metrics": _metrics,
}
