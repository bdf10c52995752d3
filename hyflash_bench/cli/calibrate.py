"""``calibrate``: this machine as a device profile."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hyflash_bench.cli.base import command as declare
from hyflash_bench.cli.options import json_option, option, output_option
from hyflash_bench.errors import UsageError

if TYPE_CHECKING:
    from hyflash_bench.memory.calibrate import Calibration

__all__ = ["command"]


@declare(
    "calibrate",
    examples=(
        "calibrate",
        "calibrate -o devices/my-board.yaml",
        "calibrate --num-threads 2 --dtype float32",
    ),
)
@option(
    "--backend",
    metavar="NAME",
    default="cpu",
    shown="cpu",
    help="Where targets run: cpu, cuda[:N] or mps.",
)
@option(
    "--dtype",
    "dtypes",
    type=click.Choice(["float32", "bfloat16", "float16"]),
    multiple=True,
    shown="float32 and bfloat16",
    help="Precision whose rates are measured besides float32. Repeatable.",
)
@option(
    "--num-threads",
    type=click.IntRange(1, 1024),
    metavar="N",
    shown="torch's own",
    help="CPU threads, as for run.",
)
@output_option("Write the profile to this .yaml file.", shown="where --device host finds it")
@json_option
def command(
    backend: str, dtypes: tuple[str, ...], num_threads: int | None, output: Path | None, as_json: bool
) -> None:
    """Measure this machine's memory, arithmetic and overhead into a device profile.

    Use it on an idle machine, once: then --device host stands for it, and simulate can be held against
    what was measured here. Takes a few minutes. Nothing of any run enters.
    """
    from hyflash_bench import console
    from hyflash_bench.atomic import write_text
    from hyflash_bench.runner.environment import BUSY_SHARE, busy_share, environment
    from hyflash_bench.spec.device import host_path
    from hyflash_bench.spec.target import TargetSpec
    from hyflash_bench.spec.yaml import dump_yaml

    if output is not None and output.suffix not in (".yaml", ".yml"):
        raise UsageError(f"A device profile is a .yaml file, not {str(output)!r}.")
    spec = TargetSpec.parse({"backend": backend}, where="calibrate")
    busy = busy_share()
    if busy > BUSY_SHARE:
        console.note(
            f"Other programs use {busy:.0%} of this machine: it will look slower than it is. "
            "Stop them and calibrate again."
        )
    found = _measured(spec.backend, dtypes, num_threads, str(environment()["cpu"] or "this machine"))
    path = output or host_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, dump_yaml(_as_yaml(found)))
    if as_json:
        console.write_json(found.profile.model_dump(mode="json", exclude_none=True))
        return
    _show(found)
    name = str(path) if output else "host"
    console.note(f"Written to {path}; use it as --device {name}.")


def _measured(backend: str, dtypes: tuple[str, ...], num_threads: int | None, machine: str) -> Calibration:
    import torch

    from hyflash_bench import console
    from hyflash_bench.memory.calibrate import calibrate
    from hyflash_bench.targets.load import check_backend

    check_backend(backend)
    if num_threads is not None:
        torch.set_num_threads(num_threads)
    wanted: Any = dict.fromkeys(("float32", *(dtypes or ("bfloat16",))))
    return calibrate(backend=backend, machine=machine, dtypes=tuple(wanted), tell=console.note)


def _as_yaml(found: Calibration) -> dict[str, Any]:
    """The profile as its file has it: sizes with units, nothing that is unknown."""
    values = found.profile.model_dump(mode="json", exclude_none=True)
    for key in ("memory_total", "memory_usable"):
        values[key]["value"] = f"{values[key]['value']}B"
    return values


def _show(found: Calibration) -> None:
    from hyflash_bench import console
    from hyflash_bench.spec.device import Rates, Size
    from hyflash_bench.spec.units import format_bytes

    rows = []
    for key, number in found.profile.sourced().items():
        if isinstance(number, Rates):
            continue
        value = format_bytes(number.value) if isinstance(number, Size) else f"{number.value:.4g}"
        rows.append({"number": key, "value": value})
    console.table(rows, f"{found.profile.title}, {found.profile.notes}")
    console.table(
        [
            {
                "dtype": rate.dtype,
                "width": rate.hidden_size,
                "rows": rate.rows,
                "pass_s": rate.pass_s,
                "gflop_per_s": rate.product_flop_per_s / 1e9,
            }
            for rate in found.passes
        ],
        "Passes by rows, and the rate of their products",
    )
