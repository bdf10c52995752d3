"""``fit``: what fits in how much memory, from formulas alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hyflash_bench.cli.base import command as declare
from hyflash_bench.cli.options import (
    contexts_option,
    devices_option,
    draft_budget_option,
    drafters_option,
    json_option,
    kv_dtype_option,
    memory_caps_option,
    option,
    output_option,
    target_option,
)
from hyflash_bench.errors import UnknownName, UsageError

if TYPE_CHECKING:
    from hyflash_bench.memory.fit import Budget, Plan
    from hyflash_bench.results.reader import Run
    from hyflash_bench.spec.device import DeviceProfile
    from hyflash_bench.spec.drafter import DrafterSpec

__all__ = ["command"]

CONTEXTS = tuple(512 * 2**power for power in range(9))
DEFAULT_TARGET = "smollm2-135m"
LIMITS = (
    *("budget", "drafter", "largest_context", "limited_by", "memory_context", "tokens_lost_to_drafter"),
    *("context_bytes_per_token", "tokens_per_gib"),
)


@declare(
    "fit",
    examples=(
        "fit --memory-cap 1GiB --context 8192",
        "fit --device phone-android-midrange --weight-bits 4 --kv-dtype float16",
        "fit --target org/name --drafter hyflash --drafter eagle --device rtx-4090-24gb --json",
        "fit --run results/RUN --device raspberry-pi-5-8gb",
    ),
)
@target_option(
    "Preset, hub id, local folder, fetched GGUF file or config.json; only its sizes are read.",
    shown="smollm2-135m, or the run's",
)
@drafters_option("NAME or NAME:key=value,key=value.", shown="as for run, or the run's")
@memory_caps_option("Memory to stay within")
@devices_option(
    "Name or YAML file of a device, whose usable memory to stay within.",
    shown="all shipped, unless a cap is given",
)
@contexts_option("Context length to judge.", shown="512, 1024, ... 131072", kind=click.IntRange(1, 10**9))
@option(
    "--weight-bits",
    "--weights-bits",
    type=click.Choice(["32", "16", "8", "4"]),
    default="32",
    shown="32",
    help="Bits of the target's weights; a drafter's own have 32 or 16.",
)
@kv_dtype_option(
    "Precision of the KV caches of target and drafter.",
    shown="float32 with weights of 32 bits, else float16",
    default="auto",
)
@draft_budget_option(click.IntRange(1, 256), default=16)
@option(
    "--speeds",
    is_flag=True,
    help="Also simulate each device: plain decoding, and the acceptance length at which a drafter pays.",
)
@option(
    "--confirm",
    "is_confirmed",
    is_flag=True,
    help="Also run the target just below and just past three solved limits, and tell what happened.",
)
@option(
    "--run",
    metavar="RUN",
    help="Take target and drafters from this run folder; simulate says how fast they would be.",
)
@json_option
@output_option("Write all as .json, or the table of limits as .csv, .md, .tex or .parquet.")
def command(
    target: str | None,
    drafters: tuple[str, ...],
    memory_caps: tuple[str, ...],
    devices: tuple[str, ...],
    contexts: tuple[int, ...],
    weight_bits: str,
    kv_dtype: str,
    draft_budget: int,
    speeds: bool,
    is_confirmed: bool,
    run: str | None,
    as_json: bool,
    output: Path | None,
) -> None:
    """Solve the longest context that fits a memory cap or a device, for each drafter; loads nothing.

    Use it to see what a drafter costs in context before anything is downloaded or run. Bytes are those
    of weights, KV caches, the drafter and what a pass needs for a moment; the program itself comes on
    top. Speeds are simulated, never measured.
    """
    from typing import cast

    from hyflash_bench import console
    from hyflash_bench.memory.fit import Plan
    from hyflash_bench.memory.lookup import read_shape
    from hyflash_bench.memory.shapes import KVDtype, WeightBits

    _check_output(output)
    measured = None if run is None else _load(run)
    if measured is not None:
        target = target or str(measured.manifest.resolved.get("target"))
        drafters = drafters or tuple(dict.fromkeys(cell.drafter for cell in measured.manifest.cells))
    target = target or DEFAULT_TARGET
    profiles = _profiles(devices, memory_caps)
    if speeds and not profiles:
        raise UsageError("Speeds are simulated for devices, and none was given. Add --device PROFILE.")
    budgets = _budgets(memory_caps, profiles)
    specs = _specs(drafters, target)
    bits = int(weight_bits)
    kv = ("float32" if bits == 32 else "float16") if kv_dtype == "auto" else kv_dtype
    plan = Plan.of(
        read_shape(target),
        specs,
        bits=cast("WeightBits", bits),
        kv_dtype=cast("KVDtype", kv),
        draft_budget=draft_budget,
    )
    lengths = tuple(dict.fromkeys(contexts)) or CONTEXTS
    document: dict[str, Any] = {
        "target": plan.facts(),
        "devices": [profile.model_dump(mode="json") for profile in profiles],
        "limits": plan.limits(budgets),
        "verdicts": plan.verdicts(budgets, lengths),
    }
    if speeds:
        document["simulated"] = plan.speeds(profiles, lengths)
    if is_confirmed:
        document["confirmed"] = _confirmed(plan, target)
    if output is not None:
        _write(document, output)
    if as_json:
        console.write_json(document)
    elif output is None:
        _show(document, plan, lengths)
    else:
        console.note(f"Written to {output}")


def _profiles(given: Sequence[str], memory_caps: Sequence[str]) -> list[DeviceProfile]:
    from hyflash_bench.spec.device import device_names, read_devices

    names = tuple(given) or (() if memory_caps else tuple(device_names()))
    return read_devices(dict.fromkeys(names))


def _budgets(memory_caps: Sequence[str], profiles: Sequence[DeviceProfile]) -> list[Budget]:
    from hyflash_bench.memory.fit import Budget
    from hyflash_bench.spec.units import parse_bytes

    caps = [Budget(cap, parse_bytes(cap)) for cap in dict.fromkeys(memory_caps)]
    return caps + [Budget(profile.name, profile.memory_usable.value) for profile in profiles]


def _specs(given: Sequence[str], target: str) -> list[DrafterSpec]:
    from hyflash_bench.registry import require_drafter
    from hyflash_bench.spec.drafter import DrafterSpec
    from hyflash_bench.spec.run import RunSpec

    values: dict[str, Any] = {"target": target} | ({"drafters": list(given)} if given else {})
    specs = list(RunSpec.parse(values, where="fit").drafters)
    for spec in specs:
        require_drafter(spec)
    reference = DrafterSpec(name="autoregressive")
    return specs if reference in specs else [reference, *specs]


def _confirmed(plan: Plan, target: str) -> list[dict[str, Any]]:
    """A row for each cap that was run: of the plain target, and of two drafters with a trained network."""
    from dataclasses import asdict

    from hyflash_bench import console
    from hyflash_bench.memory.forms import is_exact
    from hyflash_bench.runner.confirm import NUM_LIMITS, confirm

    if plan.bits != 32 or plan.kv_dtype != "float32":
        raise UsageError(
            "--confirm runs the target as it is loaded, in float32. Drop --weight-bits and --kv-dtype."
        )
    labels = [label for label, form in plan.drafters if form is not None and is_exact(form)][:NUM_LIMITS]
    with console.Progress() as progress:
        found = confirm(plan, target, labels, listener=progress)
    return [asdict(one) | {"agrees": one.agrees} for one in found]


def _load(run: str) -> Run:
    from hyflash_bench.results.reader import load_run

    return load_run(run)


def _show(document: dict[str, Any], plan: Plan, contexts: Sequence[int]) -> None:
    from hyflash_bench import console

    target = document["target"]
    console.table(
        document["limits"],
        f"Longest context of {target['name']} in tokens (weights {target['weight_bits']} bits, "
        f"KV {target['kv_dtype']})",
        LIMITS,
    )
    by_row: dict[tuple[str, str], dict[str, Any]] = {}
    for row in document["verdicts"]:
        key = (row["budget"], row["drafter"])
        cells = by_row.setdefault(key, {"budget": row["budget"], "drafter": row["drafter"]})
        cells[f"{row['context_length']:,}"] = row["verdict"]
    console.table(list(by_row.values()), "Context length: fits, fits without the drafter, or does not fit")
    if "simulated" in document:
        console.table(
            document["simulated"],
            "Simulated: plain decoding, and the acceptance length at which a drafter begins to pay",
        )
    if "confirmed" in document:
        console.table(document["confirmed"], "Solved limits, and what runs under such caps did")
    for label, form in plan.drafters:
        if form is not None and form.note:
            console.note(f"{label}: {form.note}.")
        if form is None:
            console.note(f"{label}: its bytes cannot be known beforehand; run it with --memory-cap.")
    for budget in dict.fromkeys(row["budget"] for row in document["limits"]):
        full = [
            row["drafter"]
            for row in document["limits"]
            if row["budget"] == budget and row["limited_by"] == "weights"
        ]
        if full:
            console.note(
                f"{budget}: weights alone leave no room for a context, with {', '.join(full)}. Give more "
                "memory, or fewer --weight-bits."
            )
    limit = plan.target.max_positions
    if limit is not None and max(contexts) > limit:
        console.note(
            f"{plan.target.name} was made for {limit:,} positions; longer contexts are on paper only."
        )


def _check_output(path: Path | None) -> None:
    from hyflash_bench.results.export import FORMATS

    known = [f".{name}" for name in dict.fromkeys(("json", *FORMATS))]
    if path is not None and path.suffix not in known:
        raise UnknownName("format of tables", path.suffix, known)


def _write(document: dict[str, Any], path: Path) -> None:
    if path.suffix == ".json":
        import json

        from hyflash_bench.atomic import write_text

        write_text(path, json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
        return
    import pandas as pd

    from hyflash_bench.results.export import export_table

    export_table(pd.DataFrame(document["limits"]), path)
