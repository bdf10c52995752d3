"""``import``: results of other programs as a run."""

from __future__ import annotations

from pathlib import Path

import click

from hyflash_bench.cli.base import command as declare
from hyflash_bench.cli.base import typed
from hyflash_bench.cli.options import PathType, option

__all__ = ["command"]


@declare(
    "import",
    examples=(
        "import vicuna-7b-vanilla.jsonl vicuna-7b-eagle2.jsonl --suite spec-bench -o results/spec-bench-7b",
        "import bench.json --drafter eagle3 --suite mt-bench -o results/vllm",
        "import after.txt --format vllm-metrics --before before.txt --drafter eagle3 -o results/server",
        "import profile_export.jsonl --temperature 0 -o results/aiperf",
    ),
)
@click.argument("files", nargs=-1, required=True, type=PathType(), metavar="FILE...")
@option(
    "--format",
    "format_name",
    metavar="NAME",
    shown="recognised",
    help="spec-bench, fastchat, vllm-bench, vllm-metrics or aiperf.",
)
@click.option(
    "--output-path",
    "-o",
    required=True,
    type=PathType(file_okay=False),
    metavar="DIR",
    help="Run folder to write, or to add to.",
)
@option(
    "--drafter",
    "drafters",
    metavar="LABEL",
    multiple=True,
    shown="as the file says",
    help="What to call the method. Once for each file, in their order.",
)
@option("--target", metavar="NAME", shown="as the file says", help="What to call the model.")
@option(
    "--suite",
    metavar="NAME",
    shown="not-stated",
    help="Which questions these are; the same name is compared.",
)
@option("--temperature", type=float, metavar="T", shown="as the file says", help="0 for greedy.")
@click.option("--plain", is_flag=True, help="The file is plain decoding, which others are compared to.")
@click.option(
    "--before",
    type=PathType(dir_okay=False),
    metavar="FILE",
    help="With vllm-metrics: an earlier reading, whose counts are taken off.",
)
@click.option("--fresh", is_flag=True, help="Discard what the folder holds.")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    files: tuple[Path, ...],
    format_name: str | None,
    output_path: Path,
    drafters: tuple[str, ...],
    target: str | None,
    suite: str | None,
    temperature: float | None,
    plain: bool,
    before: Path | None,
    fresh: bool,
) -> None:
    """Read results of other programs into a run folder.

    Use it to put numbers that you have already beside those of this program. Each number is converted to
    this project's definition, or left out where it cannot be; what was done is said on stderr and kept in
    the manifest. show, report, export and compare read the folder like any other. Of several files each is
    a drafter; give the same --suite to files about the same questions. The path of the run folder is the
    only line on stdout.
    """
    from hyflash_bench import console
    from hyflash_bench.errors import UsageError
    from hyflash_bench.results.importers import Labels, read_results, write_imported

    if drafters and len(drafters) != len(files):
        raise UsageError(f"{len(files)} files have {len(drafters)} --drafter labels. Give one for each file.")
    if plain and len(files) > 1:
        raise UsageError(
            "--plain says that of all files. Import the file of plain decoding by itself, first."
        )
    read = []
    for number, path in enumerate(files):
        imported = read_results(path, format_name, before=before)
        label = drafters[number] if drafters else None
        read.append((path, imported, Labels(label, target, suite, temperature, plain)))
        console.note(f"{path}: {imported.format}, {len(imported.conversations)} conversations")
        for line in imported.notes:
            console.note(f"  {line}")
    write_imported(output_path, read, command=typed(ctx), fresh=fresh)
    console.note(f"More: hyflash-bench show {output_path}")
    console.line(output_path)
