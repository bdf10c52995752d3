"""``convert``: a trained drafter in the layout of vllm-project/speculators."""

from __future__ import annotations

from pathlib import Path

import click

from hyflash_bench.cli.base import command as declare
from hyflash_bench.cli.options import PathType, target_option

__all__ = ["command"]


@declare(
    "convert",
    examples=(
        "convert my-training/eagle --to eagle-speculators",
        "convert hyflash-l1 --to hyflash-speculators",
        "convert my-training/eagle --target org/name --to eagle-speculators",
    ),
)
@click.argument("checkpoint")
@target_option("Target that it was trained for.")
@click.option(
    "--to",
    "folder",
    required=True,
    metavar="DIR",
    type=PathType(file_okay=False),
    help="Folder for config.json and model.safetensors; made if it is not there.",
)
def command(checkpoint: str, target: str | None, folder: Path) -> None:
    """Write a trained drafter in the layout of vllm-project/speculators.

    Use it to serve a drafter with an engine that loads the layout, or to publish it in the form that people
    know. CHECKPOINT is a folder that train wrote, or the name of a baseline. An eagle that was trained with
    last_hidden=false, token_residual=false and copy_window=0 is an EAGLE-3, which other programs can serve.
    All others are written under a type of their own that no other program runs, and why is said. Give the
    new folder to run, as any checkpoint. Public checkpoints need no conversion.
    """
    from hyflash_bench import console
    from hyflash_bench.drafters.formats import read_network
    from hyflash_bench.drafters.formats.export import export_speculators, why_not_servable
    from hyflash_bench.drafters.networks.checkpoint import find_checkpoint
    from hyflash_bench.drafters.networks.public import PublicNetwork
    from hyflash_bench.errors import UsageError
    from hyflash_bench.spec.formats.recognise import recognise
    from hyflash_bench.spec.target import TargetSpec
    from hyflash_bench.targets.load import load_target

    spec = TargetSpec() if target is None else TargetSpec.parse({"target": target}, "--target")
    console.note(f"Loading {spec.target}, for which the drafter was trained ...")
    context = load_target(spec).load_context()
    source = find_checkpoint("eagle", checkpoint, context)
    network = read_network(source, context)
    if isinstance(network, PublicNetwork):
        raise UsageError(f"{source} is in a public layout already. Give that folder to run, or to a server.")
    export_speculators(network, folder, context, recognise(source).config.get("training"))
    reason = why_not_servable(network)
    if reason is None:
        console.note("Written as eagle3: engines that load the speculators layout can serve it.")
    else:
        console.note(f"Written as hyflash-bench, which other programs cannot run: {reason}.")
    for name in ("config.json", "model.safetensors", *_copied(source, folder)):
        console.line(folder / name)


def _copied(source: Path, folder: Path) -> list[str]:
    """The card, and what a drafter reads beside its weights."""
    from shutil import copyfile

    from hyflash_bench.atomic import replacing
    from hyflash_bench.drafters.hyflash import FOREIGN_FILE

    found = [name for name in ("README.md", FOREIGN_FILE) if (source / name).is_file()]
    for name in found:
        with replacing(folder / name) as temporary:
            copyfile(source / name, temporary)
    return found
