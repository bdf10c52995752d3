"""``corpus``: the text that drafters are trained on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hyflash_bench.cli.base import CONTEXT, debug_option, foot
from hyflash_bench.cli.base import command as declare
from hyflash_bench.cli.options import (
    PathType,
    backend_option,
    dtype_option,
    folder_option,
    json_option,
    option,
    taps_option,
    target_option,
    threads_option,
)
from hyflash_bench.cli.run import stoppable
from hyflash_bench.errors import UsageError

if TYPE_CHECKING:
    from hyflash_bench.spec.corpus import CorpusRecipe
    from hyflash_bench.training.corpus.build import BuildStatus
    from hyflash_bench.training.corpus.manifest import Manifest
    from hyflash_bench.training.corpus.store import Corpus

__all__ = ["command"]

_PLAIN_EVERY_S = 30.0
"""Seconds between two lines of progress where there is no terminal."""


@click.group(
    "corpus",
    context_settings=CONTEXT,
    epilog=foot(("corpus build --output-path corpus", "corpus show corpus --sample 3")),
)
def command() -> None:
    """Build and look at the text that drafters are trained on.

    Use it before train: a drafter learns to guess what its target says, so most of a corpus is what
    the target says by itself.
    """


command.params.append(debug_option())


@declare(
    "build",
    examples=(
        "corpus build --output-path corpus",
        "corpus build --output-path corpus --parts self-talk --max-tokens 2000000",
        "corpus build --output-path corpus --features",
        "corpus build --recipe mine.yaml --target org/name --backend cuda --dry-run",
    ),
)
@option(
    "--recipe",
    type=PathType(dir_okay=False),
    metavar="FILE",
    shown="the recipe of the shipped baselines",
    help="YAML that says what the corpus is made of.",
)
@target_option("Model that the drafters are for: preset, hub id, local folder or GGUF file.")
@folder_option("Folder to write, or to continue.", shown="corpus")
@option("--parts", metavar="NAME,...", shown="all", help="Only these parts of the recipe.")
@option(
    "--max-tokens",
    type=click.IntRange(min=1),
    metavar="N",
    shown="as the recipe says",
    help="About so many tokens in all; the parts keep their proportions.",
)
@option("--seed", type=int, metavar="N", shown="as the recipe says", help="Seed of every random choice.")
@dtype_option("Precision in which the target writes.", shown="as the recipe says")
@option(
    "--features",
    is_flag=True,
    help="Keep what the target computes while it writes, so that train need not read it all again; takes "
    "about 5 KB a token of disk in the cache.",
)
@taps_option("With --features: layers of the target to keep.")
@backend_option()
@threads_option()
@click.option("--dry-run", is_flag=True, help="Print the plan and the resolved recipe; build nothing.")
def build(
    recipe: Path | None,
    output_path: Path | None,
    parts: str | None,
    max_tokens: int | None,
    dry_run: bool,
    seed: int | None,
    dtype: str | None,
    features: bool,
    taps: tuple[int, ...] | None,
    **of_target: Any,
) -> None:
    """Let a target write a corpus, and cut texts for it.

    Conversations that the target makes up, answers about texts of pinned packages, and such texts as
    they are. What shares 13 tokens in a row with a shipped suite is left out. The same command
    again continues where it stopped; the path of the corpus is the only line on stdout. With --features
    the target's reading is done when the text is, and training starts at once.
    """
    from hyflash_bench import console
    from hyflash_bench.data import data_folder
    from hyflash_bench.spec.target import TargetSpec
    from hyflash_bench.spec.yaml import dump_yaml
    from hyflash_bench.training.corpus.plan import chosen_parts
    from hyflash_bench.training.corpus.texts import CorpusTexts

    path = recipe or data_folder("baselines") / "corpus.yaml"
    resolved = _recipe(path, {"seed": seed, "dtype": dtype})
    wanted = chosen_parts(resolved, [name.strip() for name in parts.split(",")] if parts else [])
    given = {key: value for key, value in of_target.items() if value is not None}
    target = TargetSpec.parse(given | {"dtype": resolved.dtype}, where="corpus build")
    if taps is not None and not features:
        raise UsageError("--taps says which features to keep; add --features, or drop it.")
    CorpusTexts(resolved.sources, path.parent, frozenset()).check_own_files()
    if dry_run:
        _show_plan(resolved, wanted, max_tokens)
        if features:
            _show_features(target.target, taps, resolved, wanted, max_tokens)
        console.line(dump_yaml(resolved.model_dump(mode="json")).rstrip())
        return
    from hyflash_bench.targets.load import load_target
    from hyflash_bench.training.corpus.build import build_corpus
    from hyflash_bench.training.features import wanted_features
    from hyflash_bench.training.session import has_fast_bfloat16

    folder = output_path or Path("corpus")
    with stoppable():
        console.note(f"Loading target {target.target} in {target.dtype}")
        loaded = load_target(target)
        if features and target.dtype == "bfloat16" and not has_fast_bfloat16(target.backend):
            console.note(
                "This machine has no fast bfloat16: reading for --features may take several times as long as "
                "with --dtype float32."
            )
        with _progress() as on_status:
            try:
                manifest = build_corpus(
                    resolved,
                    folder,
                    loaded,
                    texts_folder=path.parent,
                    parts=wanted,
                    max_tokens=max_tokens,
                    requires=wanted_features(loaded.info, taps) if features else None,
                    on_status=on_status,
                    progress=console.note,
                )
            except KeyboardInterrupt:
                console.note("Finished shards are stored; the same command goes on behind them.")
                raise
    _show_counts(manifest, err=True)
    console.line(folder)


@declare("show", examples=("corpus show corpus", "corpus show corpus --sample 3"))
@click.argument("folder", type=PathType())
@option(
    "--sample",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    shown="0",
    help="Also print so many documents, spread over the corpus.",
)
@json_option
def show(folder: Path, sample: int, as_json: bool) -> None:
    """Show how much a corpus holds, and of what.

    Use it to see the share of each part before training, and with --sample what the target says.
    Every shard is checked against its hash.
    """
    from hyflash_bench import console
    from hyflash_bench.training.corpus.store import Corpus

    corpus = Corpus.open(folder)
    texts = list(_samples(corpus, sample))
    if as_json:
        document = corpus.manifest.model_dump(mode="json")
        console.write_json(document | ({"samples": texts} if sample else {}))
        return
    _show_counts(corpus.manifest)
    console.note(f"Corpus hash: {corpus.hash}")
    for text in texts:
        console.line(f"\n--- document {text['index']}, {text['part']}, {text['tokens']} tokens")
        console.line(text["text"])


command.add_command(build)
command.add_command(show)


def _recipe(path: Path, flags: dict[str, Any]) -> CorpusRecipe:
    """Merge the layers: defaults < YAML file < flags."""
    from hyflash_bench.spec.corpus import CorpusRecipe
    from hyflash_bench.spec.yaml import read_yaml

    given = {key: value for key, value in flags.items() if value is not None}
    return CorpusRecipe.parse(read_yaml(path) | given, where=f"recipe {path}")


def _show_plan(recipe: CorpusRecipe, wanted: tuple[str, ...], max_tokens: int | None) -> None:
    from hyflash_bench import console
    from hyflash_bench.training.corpus.plan import planned_tokens

    planned = planned_tokens(recipe, max_tokens)
    for name in wanted:
        console.note(f"{name}: about {planned[name]:,} tokens")


def _show_features(
    target: str,
    taps: tuple[int, ...] | None,
    recipe: CorpusRecipe,
    wanted: tuple[str, ...],
    max_tokens: int | None,
) -> None:
    """What they take of the disk, or an error where there is no room for them."""
    from hyflash_bench import console
    from hyflash_bench.memory.lookup import read_shape
    from hyflash_bench.training.corpus.plan import planned_tokens
    from hyflash_bench.training.features import bytes_per_token, features_root, require_room, wanted_features

    shape, planned = read_shape(target), planned_tokens(recipe, max_tokens)
    of_token = bytes_per_token(wanted_features(shape, taps), shape.hidden_size)
    console.note(require_room(features_root(), sum(planned[name] for name in wanted), of_token))


def _show_counts(manifest: Manifest, *, err: bool = False) -> None:
    from hyflash_bench import console

    total = sum(part.tokens for part in manifest.parts) or 1
    rows = [
        {
            "part": part.name,
            "documents": part.documents,
            "tokens": part.tokens,
            "share": part.tokens / total,
            "scored_tokens": part.scored_tokens,
            "left_out": part.contaminated,
        }
        for part in manifest.parts
    ]
    console.table(rows, f"Corpus for {manifest.target.name}", err=err)
    checked = ", ".join(manifest.suites) or "no suite"
    console.note(f"Left out: documents that share 13 tokens in a row with {checked}.")


def _samples(corpus: Corpus, number: int) -> Iterator[dict[str, Any]]:
    """Documents spread over the corpus, as text."""
    if not number:
        return
    from hyflash_bench.spec.target import TargetSpec
    from hyflash_bench.targets.load import load_tokenizer

    tokenizer = load_tokenizer(TargetSpec(target=corpus.manifest.target.model))
    for nth in range(min(number, corpus.num_documents)):
        index = (2 * nth + 1) * corpus.num_documents // (2 * min(number, corpus.num_documents))
        tokens, _ = corpus.document(index)
        yield {
            "index": index,
            "part": corpus.origin(index),
            "tokens": len(tokens),
            "text": tokenizer.decode(tokens.tolist()),
        }


@contextmanager
def _progress() -> Iterator[Callable[[BuildStatus], None]]:
    """Takes the status of a build to stderr: a bar, or a line now and then where there is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _PlainProgress()
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[numbers]}"))
    with Progress(*columns, console=console, transient=True) as bars:
        bar = bars.add_task("", total=None, numbers="")

        def show(status: BuildStatus) -> None:
            bars.update(
                bar,
                description=status.part,
                completed=status.tokens,
                total=status.planned_tokens,
                numbers=_numbers(status),
            )

        yield show


class _PlainProgress:
    """A line when a part begins and then every half minute."""

    def __init__(self) -> None:
        self._part = ""
        self._last_s = 0.0

    def __call__(self, status: BuildStatus) -> None:
        from hyflash_bench import console

        now = time.monotonic()
        if status.part != self._part or now - self._last_s >= _PLAIN_EVERY_S:
            console.note(f"{status.part}: {_numbers(status)}")
            self._part, self._last_s = status.part, now


def _numbers(status: BuildStatus) -> str:
    from hyflash_bench.report.text import duration_text

    words = [f"{status.tokens:,} of about {status.planned_tokens:,} tokens"]
    if status.tok_per_s is not None:
        words.append(f"{status.tok_per_s:,.0f} tok/s")
    if status.eta_s is not None:
        words.append(f"about {duration_text(status.eta_s)} left")
    return ", ".join(words)
