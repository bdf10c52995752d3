"""``simulate``: a finished run on other devices."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from hyflash_bench.cli.base import command as declare
from hyflash_bench.cli.options import PathType, devices_option, json_option, option, output_option
from hyflash_bench.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd

    from hyflash_bench.results.reader import Run
    from hyflash_bench.spec.device import DeviceProfile

__all__ = ["command"]

_BITS = (32, 16, 8, 4)
_SPEEDS = (
    *("suite", "sampling", "drafter", "context_rung", "measured_acceptance_length"),
    *("break_even_acceptance_length", "simulated_tok_per_s", "simulated_speedup", "simulated_ttft_s"),
    *("simulated_energy_j_per_token", "stops_paying_context"),
)
_PARTS = (
    *("suite", "sampling", "drafter", "context_rung", "simulated_draft_s", "simulated_verify_s"),
    *("simulated_observe_s", "simulated_prefill_s", "simulated_plain_tok_per_s"),
)


@declare(
    "simulate",
    examples=(
        "simulate results/RUN --device raspberry-pi-5-8gb --device phone-android-flagship",
        "simulate results/RUN --device h200 --weight-bits 4 -o simulated.csv",
        "simulate results/RUN --device host --against-measured",
    ),
)
@click.argument("run", type=PathType())
@devices_option("Name or YAML file of a device, or host once it is calibrated.", shown="all shipped")
@option(
    "--weight-bits",
    type=click.Choice([str(bits) for bits in _BITS]),
    shown="as in the run",
    help="Bits of the target's weights.",
)
@option(
    "--kv-dtype",
    type=click.Choice(["float32", "bfloat16", "float16", "int8"]),
    shown="as in the run",
    help="Precision of the KV caches of target and drafter.",
)
@option(
    "--against-measured",
    is_flag=True,
    help="Hold the simulation of one device against the speeds that the run measured on it.",
)
@json_option
@output_option("Write the table as .csv, .md, .tex or .parquet.")
def command(
    run: Path,
    devices: tuple[str, ...],
    weight_bits: str | None,
    kv_dtype: str | None,
    against_measured: bool,
    as_json: bool,
    output: Path | None,
) -> None:
    """Simulate how fast a finished run's drafters would be on other devices.

    Use it to see where a drafter pays before you own the device. The acceptance is the run's own; bytes
    and operations of every pass are counted from the model's structure and timed by the device's
    profile. Needs no weights. All speeds are simulated.
    """
    from hyflash_bench.results.reader import load_run
    from hyflash_bench.spec.device import device_names, read_devices

    loaded = load_run(run)
    profiles = read_devices(dict.fromkeys(devices or device_names()))
    if against_measured:
        if weight_bits or kv_dtype:
            raise UsageError("What was measured ran as it was loaded. Drop --weight-bits and --kv-dtype.")
        _show_errors(loaded, profiles, as_json, output)
        return
    from hyflash_bench.analysis.simulated import simulated

    bits = None if weight_bits is None else int(weight_bits)
    table = simulated(loaded, profiles, bits=cast("Any", bits), kv_dtype=cast("Any", kv_dtype))
    _show_speeds(table, loaded, profiles, as_json, output)


def _show_speeds(
    table: pd.DataFrame, run: Run, profiles: list[DeviceProfile], as_json: bool, output: Path | None
) -> None:
    from hyflash_bench import console

    if _written(table, output):
        return
    rows = console.rows_of(table)
    if as_json:
        console.write_json(
            {
                "run_id": run.manifest.run_id,
                "devices": [profile.model_dump(mode="json") for profile in profiles],
                "simulated": rows,
            }
        )
        return
    for profile in profiles:
        here = [row for row in rows if row["device"] == profile.name]
        console.table(
            here, f"{profile.title}: simulated speed, with the acceptance that was measured", _SPEEDS
        )
        console.table(here, f"{profile.title}: simulated parts of a step, and of the first token", _PARTS)
        console.note(f"Numbers of {profile.name}: {_bases(profile)}; ls devices -v lists their sources.")
    console.note("stops paying context: from there on plain decoding is faster; 0 if everywhere.")
    unknown = sorted({str(row["drafter"]) for row in rows if row["simulated_tok_per_s"] is None})
    if unknown:
        console.note(f"The passes of {', '.join(unknown)} cannot be counted.")


def _show_errors(run: Run, profiles: list[DeviceProfile], as_json: bool, output: Path | None) -> None:
    from hyflash_bench import console
    from hyflash_bench.analysis.simulated import AGAINST_MEASURED, against_measured, median_absolute_error
    from hyflash_bench.runner.environment import BUSY_SHARE

    if len(profiles) != 1:
        raise UsageError(
            "What was measured was measured on one device. Name it: --device host "
            "after hyflash-bench calibrate."
        )
    table = against_measured(run, profiles[0])
    if table.empty:
        raise UsageError(
            f"Run {run.manifest.run_id} holds no live speeds to compare with. "
            "Run it with --mode live or --mode both."
        )
    if _written(table, output):
        return
    error = median_absolute_error(table)
    rows = console.rows_of(table)
    if as_json:
        document = {"run_id": run.manifest.run_id, "device": profiles[0].model_dump(mode="json")}
        console.write_json(document | {"median_absolute_error_share": error, "against_measured": rows})
        return
    console.table(rows, "Simulated against measured speed", AGAINST_MEASURED)
    console.line(f"Median absolute error: {error:.1%} of the measured speed, over {len(rows)} rows.")
    busy = run.manifest.environment.get("busy_share")
    if isinstance(busy, float) and busy > BUSY_SHARE:
        console.note(f"The run was measured while other programs used {busy:.0%} of the machine.")


def _written(table: pd.DataFrame, output: Path | None) -> bool:
    if output is None:
        return False
    from hyflash_bench import console
    from hyflash_bench.results.export import export_table

    export_table(table, output)
    console.note(f"Written to {output}")
    return True


def _bases(profile: DeviceProfile) -> str:
    return ", ".join(f"{count} {basis}" for basis, count in sorted(profile.bases().items()))
