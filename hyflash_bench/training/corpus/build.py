"""From a recipe to a corpus on disk, in units that a kill cannot tear."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hyflash_bench.drafters.base import Requires
from hyflash_bench.spec.corpus import CorpusRecipe
from hyflash_bench.suites import ChatTokenizer
from hyflash_bench.suites.sources import Progress
from hyflash_bench.targets.target import Target
from hyflash_bench.training.corpus.answers import Answers
from hyflash_bench.training.corpus.documents import Documents
from hyflash_bench.training.corpus.keeper import FeatureKeeper
from hyflash_bench.training.corpus.manifest import Manifest, PartCounts, TargetStamp
from hyflash_bench.training.corpus.overlap import Overlap, suites_overlap
from hyflash_bench.training.corpus.part import Part
from hyflash_bench.training.corpus.plan import chosen_parts, planned_tokens
from hyflash_bench.training.corpus.selftalk import SelfTalk
from hyflash_bench.training.corpus.store import Corpus, CorpusWriter
from hyflash_bench.training.corpus.texts import CorpusTexts, files_of_suites
from hyflash_bench.training.features import FeatureStore

__all__ = ["BuildStatus", "build_corpus"]


@dataclass(frozen=True, slots=True)
class BuildStatus:
    """How far a build is.

    Attributes:
        part: The part at work.
        units_done: Units of it that are finished.
        num_units: Units that it has.
        tokens: Tokens of it by now.
        planned_tokens: Tokens that it is to have, more or less.
        tok_per_s: Since this part was taken up; None at first.
        eta_s: Seconds that the part will still take; None at first.
    """

    part: str
    units_done: int
    num_units: int
    tokens: int
    planned_tokens: int
    tok_per_s: float | None
    eta_s: float | None


OnStatus = Callable[[BuildStatus], None]


def build_corpus(
    recipe: CorpusRecipe,
    folder: Path,
    target: Target,
    *,
    texts_folder: Path,
    parts: Sequence[str] = (),
    max_tokens: int | None = None,
    requires: Requires | None = None,
    on_status: OnStatus = lambda _: None,
    progress: Progress | None = None,
) -> Manifest:
    """Build a corpus, or go on with one.

    Args:
        recipe: What it is made of.
        folder: Where it is to lie.
        target: Writes it.
        texts_folder: What paths of texts in the recipe are relative to.
        parts: Only these parts; all by default.
        max_tokens: Most tokens in all, shared among the recipe's parts as it shares them.
        requires: Features to keep of all that is written, where trainings look for them; None for none.
        on_status: Told often how far the build is.
        progress: Called with lines about fetches and suites.

    Returns:
        What is stored.

    Raises:
        UnknownName: A part that the recipe has not got.
        DataError: The folder holds another corpus, or cannot be written; the disk is too small.
        DownloadError: A text cannot be fetched.
    """
    wanted = chosen_parts(recipe, parts)
    overlap, suites = suites_overlap(ChatTokenizer(target.tokenizer), target.info.max_positions, progress)
    manifest = Manifest(
        target=TargetStamp.of(target.info),
        recipe=recipe.model_dump(mode="json"),
        licences=_licences(recipe, target),
        suites=suites,
        parts=tuple(PartCounts(name=name) for name in recipe.parts),
    )
    planned = planned_tokens(recipe, max_tokens)
    texts = CorpusTexts(recipe.sources, texts_folder, files_of_suites())
    say = progress or _silent
    keeper = None if requires is None else FeatureKeeper(folder, target.info, requires)
    on_shard = None if keeper is None else keeper.finish_shard
    with CorpusWriter(folder, manifest, on_shard) as writer, keeper or nullcontext():
        if keeper is not None:
            missing = sum(max(0, planned[name] - writer.num_tokens(name)) for name in wanted)
            say(keeper.require_room(missing))
        for name in wanted:
            part = _make(name, recipe, target, texts=texts, max_tokens=planned[name], progress=progress)
            _build_part(part, writer, overlap, on_status, keeper)
        built = writer.manifest
    if requires is not None and built.shards:
        # What the target has not written itself, or wrote when nobody kept its features.
        FeatureStore(Corpus.open(folder, target.info), target, requires).fill_all(say)
    return built


def _silent(line: str) -> None:
    """Nobody wants to know."""


def _make(name: str, recipe: CorpusRecipe, target: Target, *, texts: CorpusTexts, **limits: Any) -> Part:
    if name == "documents" and recipe.documents is not None:
        chat = ChatTokenizer(target.tokenizer)
        return Documents(recipe.documents, recipe.seed, chat, texts, **limits)
    if name == "answers" and recipe.answers is not None:
        return Answers(recipe.answers, recipe.seed, target, texts, **limits)
    assert recipe.self_talk is not None
    return SelfTalk(recipe.self_talk, recipe.seed, target, limits["max_tokens"])


def _build_part(
    part: Part, writer: CorpusWriter, overlap: Overlap, on_status: OnStatus, keeper: FeatureKeeper | None
) -> None:
    part.requires = None if keeper is None else keeper.requires
    began, before = time.monotonic(), writer.num_tokens(part.name)
    fresh = 0

    def tell(num_tokens: int = 0) -> None:
        nonlocal fresh
        fresh += num_tokens
        elapsed = time.monotonic() - began
        rate = fresh / elapsed if fresh and elapsed > 0 else None
        tokens = before + fresh
        left = max(0, part.planned_tokens - tokens) / rate if rate else None
        done = writer.units_done(part.name)
        on_status(BuildStatus(part.name, done, part.num_units, tokens, part.planned_tokens, rate, left))

    tell()
    for unit in range(writer.units_done(part.name), part.num_units):
        if writer.num_tokens(part.name) >= part.planned_tokens:
            break
        documents = list(part.documents(unit, tell))
        hits = [overlap.holds(document.tokens.tolist()) for document in documents]
        # A text that a suite quotes is left out whole, not only the piece that is quoted.
        known = {document.group for document, is_hit in zip(documents, hits, strict=True) if is_hit} - {None}
        for document, is_hit in zip(documents, hits, strict=True):
            if is_hit or document.group in known:
                writer.leave_out(part.name)
            else:
                writer.add(part.name, document.tokens, document.roles, group=document.group)
                if keeper is not None:
                    keeper.add(document)
        writer.finish_unit(part.name)
        tell()
    writer.flush()


def _licences(recipe: CorpusRecipe, target: Target) -> tuple[str, ...]:
    named = {source.licence for source in recipe.sources.values()}
    if target.info.licence:
        named.add(target.info.licence)
    return tuple(sorted(named))
