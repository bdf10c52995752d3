"""``convert``: a trained drafter in the layout that servers load."""

from __future__ import annotations

from pathlib import Path

import click

from hyflash_bench.cli.base import command as declare
from hyflash_bench.cli.base import option

__all__ = ["command"]


@declare(
    "convert",
    examples=(
        "convert my-training/eagle --to eagle-speculators",
        "convert my-training/eagle --target org/name --to eagle-speculators",
    ),
)
@click.argument("checkpoint")
@option("--target", metavar="ID", shown="smollm2-135m", help="Target that it was trained for.")
@click.option(
    "--to",
    "folder",
    required=True,
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for config.json and model.safetensors; made if it is not there.",
)
def command(checkpoint: str, target: str | None, folder: Path) -> None:
    """Write a trained drafter in the layout of vllm-project/speculators.

    CHECKPOINT is a folder that train wrote, or the name of a baseline. Use it to serve the drafter with an
    engine that loads that layout. Only eagle can be written, and only if it was trained with
    last_hidden=false,token_residual=false; other drafters have parts that the layout has no place for, and
    the message says which. Public checkpoints need no conversion: give their folder to run.
    """
    from hyflash_bench import console
    from hyflash_bench.drafters.formats.export import export_speculators
    from hyflash_bench.drafters.networks.checkpoint import find_checkpoint, load_network
    from hyflash_bench.spec.target import TargetSpec
    from hyflash_bench.targets.load import load_target

    spec = TargetSpec() if target is None else TargetSpec.parse({"target": target}, "--target")
    console.note(f"Loading {spec.target}, whose head goes into the checkpoint ...")
    context = load_target(spec).load_context()
    network = load_network(find_checkpoint("eagle", checkpoint, context), context)
    export_speculators(network, folder, context)
    for name in ("config.json", "model.safetensors"):
        console.line(folder / name)
