"""From a recipe to a corpus: parts, exclusions, resuming."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from hyflash_bench.data import data_folder
from hyflash_bench.errors import DataError, SpecError, UnknownName
from hyflash_bench.spec.corpus import CorpusRecipe
from hyflash_bench.spec.yaml import read_yaml
from hyflash_bench.targets.target import Target
from hyflash_bench.training.corpus.build import BuildStatus, build_corpus
from hyflash_bench.training.corpus.plan import planned_tokens
from hyflash_bench.training.corpus.store import Corpus, Role
from hyflash_bench.training.corpus.texts import files_of_suites
from tests.training.corpus.conftest import ASKED, recipe_values


def build(recipe: CorpusRecipe, folder: Path, target: Target, name: str = "corpus", **options: Any) -> Corpus:
    build_corpus(recipe, folder / name, target, texts_folder=folder, **options)
    return Corpus.open(folder / name, target.info)


def texts_of(corpus: Corpus, target: Target) -> list[str]:
    return [target.tokenizer.decode(corpus.document(i)[0].tolist()) for i in range(corpus.num_documents)]


def test_every_part_gives_what_it_is_to_give(recipe: CorpusRecipe, folder: Path, target: Target) -> None:
    corpus = build(recipe, folder, target)

    by_part: dict[str, list[int]] = {}
    for index in range(corpus.num_documents):
        by_part.setdefault(corpus.origin(index), []).append(index)
    assert list(by_part) == ["documents", "answers", "self-talk"]
    assert {len(corpus.document(i)[0]) for i in by_part["self-talk"]} == {160}
    assert {len(corpus.document(i)[0]) for i in by_part["answers"]} == {128 + 32, 192 + 32}
    for index in by_part["answers"]:
        prompt = {160: 128, 224: 192}[corpus.length(index)]
        roles = corpus.document(index)[1]
        assert (roles[:prompt] == Role.FORCED).all()
        assert int(roles[prompt]) in {Role.GREEDY, Role.SAMPLED}
    pieces = [corpus.document(i) for i in by_part["documents"]]
    assert all((roles == Role.NATURAL).all() and len(roles) <= 512 for _, roles in pieces)
    assert corpus.manifest.licences == ("CC0-1.0",)


def test_what_a_suite_holds_is_left_out_and_counted(
    recipe: CorpusRecipe, folder: Path, target: Target
) -> None:
    corpus = build(recipe, folder, target, parts=["documents"])

    assert corpus.manifest.parts[0].contaminated == 1
    assert set(corpus.manifest.suites) == {"tiny"}
    assert not any(ASKED[20:60] in text for text in texts_of(corpus, target))


def test_a_file_that_a_suite_names_is_left_out_whole(folder: Path, target: Target) -> None:
    suites, story = folder / "suites", folder / "texts" / "story.txt"
    (suites / "own").mkdir()
    (suites / "own" / "story.txt").write_text(story.read_text())
    talks = suites / "talks" / "talk.yaml"
    talks.write_text(talks.read_text() + "    document: {source: own, file: story.txt}\n")
    suite = suites / "tiny.yaml"
    sources = "sources: {own: {type: file, path: own, licence: CC0-1.0}}"
    suite.write_text(suite.read_text().replace("tasks:", f"{sources}\ntasks:"))
    (folder / "texts" / "more.txt").write_text("Nothing of this is in any suite. " * 40)
    recipe = CorpusRecipe.parse(recipe_values(self_talk=None), "test")

    corpus = build(recipe, folder, target)

    assert files_of_suites() == {"story.txt"}
    assert not any("keeper of light" in text for text in texts_of(corpus, target))


def test_a_build_that_was_stopped_goes_on_to_the_same_corpus(
    recipe: CorpusRecipe, folder: Path, target: Target
) -> None:
    whole = build(recipe, folder, target)

    def stop(status: BuildStatus) -> None:
        if status.part == "self-talk" and status.units_done == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(recipe, folder, target, "torn", on_status=stop)
    assert 0 < Corpus.open(folder / "torn").num_documents < whole.num_documents
    assert build(recipe, folder, target, "torn").hash == whole.hash
    assert build(recipe, folder, target, "torn").hash == whole.hash


def test_parts_built_in_another_order_make_the_same_corpus(
    recipe: CorpusRecipe, folder: Path, target: Target
) -> None:
    whole = build(recipe, folder, target)
    build(recipe, folder, target, "parts", parts=["self-talk"])

    parts = build(recipe, folder, target, "parts")

    assert parts.hash == whole.hash


def test_a_limit_keeps_the_recipe_s_proportions(recipe: CorpusRecipe, folder: Path, target: Target) -> None:
    full = planned_tokens(recipe)

    limited = planned_tokens(recipe, sum(full.values()) // 2)

    assert {name: tokens // 2 for name, tokens in full.items()} == limited
    assert planned_tokens(recipe, 10**9) == full
    least, answers, talk = planned_tokens(recipe, 1), recipe.answers, recipe.self_talk
    assert answers is not None
    assert talk is not None
    assert least["answers"] == answers.rows * (answers.contexts[0] + answers.new_tokens)
    assert least["self-talk"] == talk.rows * talk.length
    corpus = build(recipe, folder, target, max_tokens=1, parts=["answers", "self-talk"])
    assert [part.units_done for part in corpus.manifest.parts] == [0, 1, 1]


def test_another_seed_gives_another_corpus(folder: Path, target: Target) -> None:
    one, other = (
        build(CorpusRecipe.parse(recipe_values(seed=seed), "test"), folder, target, str(seed))
        for seed in (1, 2)
    )

    assert one.num_tokens > 0
    assert not torch.equal(one.token_counts(), other.token_counts())


def test_mistakes_in_a_recipe_are_told(folder: Path, target: Target) -> None:
    values = recipe_values()
    with pytest.raises(SpecError, match="needs self_talk, answers or documents"):
        CorpusRecipe.parse({}, "recipe")
    with pytest.raises(SpecError, match="source 'own' is not under sources"):
        CorpusRecipe.parse(values | {"sources": {}}, "recipe")
    with pytest.raises(SpecError, match=r"needs \{text\} exactly once"):
        CorpusRecipe.parse(values | {"answers": values["answers"] | {"prompts": ["Why?"]}}, "recipe")
    with pytest.raises(UnknownName, match="part of the recipe 'selftalk'"):
        build(CorpusRecipe.parse(values, "recipe"), folder, target, parts=["selftalk"])
    long = values["answers"] | {"contexts": [2000]}
    too_long = CorpusRecipe.parse(values | {"answers": long}, "recipe")
    (folder / "texts" / "story.txt").unlink()
    with pytest.raises(DataError, match="too short for prompts of 2000 tokens"):
        build(too_long, folder, target, parts=["answers"])


def test_the_shipped_recipe_is_valid_and_mostly_the_target_s_own_words() -> None:
    recipe = CorpusRecipe.parse(read_yaml(data_folder("baselines") / "corpus.yaml"), "shipped")

    planned = planned_tokens(recipe)

    assert planned["self-talk"] > sum(planned.values()) / 2
    assert recipe.self_talk is not None
    assert len(set(recipe.self_talk.openers)) == len(recipe.self_talk.openers) >= 100
