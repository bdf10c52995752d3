"""A tiny target, a tiny suite in place of the shipped ones, and a recipe about texts of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hyflash_bench.spec.corpus import CorpusRecipe
from hyflash_bench.spec.target import TargetSpec
from hyflash_bench.targets.load import load_target
from hyflash_bench.targets.target import Target

ASKED = "Which of the seven lighthouses was painted green by the keeper's youngest daughter?"
SUITE = """
name: tiny
version: 1
title: Tiny
description: One conversation.
licence: none
tasks:
  - name: talk
    builder: dialogues
    options: {files: "talks/*.yaml", min_turns: 1}
"""
TALKS = f"""
category: talk
conversations:
  - id: lighthouses
    turns: ["{ASKED}"]
"""
STORY = "\n\n".join(
    f"Chapter {number}. The keeper of light number {number} climbed {number * 7} steps and wrote it down."
    for number in range(40)
)


@pytest.fixture(scope="session")
def target(tiny_target: Path) -> Target:
    return load_target(TargetSpec(target=str(tiny_target)))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Holds ``texts/`` with a story, a text that the suite asks about and one that it names."""
    suites = tmp_path / "suites"
    (suites / "talks").mkdir(parents=True)
    (suites / "tiny.yaml").write_text(SUITE)
    (suites / "talks" / "talk.yaml").write_text(TALKS)
    monkeypatch.setenv("HYFLASH_BENCH_SUITES_DIR", str(suites))
    texts = tmp_path / "texts"
    texts.mkdir()
    (texts / "story.txt").write_text(STORY)
    (texts / "asked.txt").write_text(f"Somebody wanted to know: {ASKED} Nobody could tell, of course.")
    return tmp_path


def recipe_values(**changes: Any) -> dict[str, Any]:
    """A recipe of all parts, as written in YAML."""
    texts = [{"source": "own", "files": ["*.txt"]}]
    talk = {"reply_limits": [12], "user_limit": 9, "top_k": 8, "follow_ups": ["And"]}
    return {
        "dtype": "float32",
        "sources": {"own": {"type": "file", "path": "texts", "licence": "CC0-1.0"}},
        "self_talk": {"waves": 2, "rows": 3, "length": 160, "openers": ["Why"], "talk": talk},
        "answers": {
            "batches": 2,
            "rows": 2,
            "contexts": [128, 192],
            "new_tokens": 32,
            "texts": texts,
            "prompts": ["{text}\n\nSum it up.", "Go on:\n\n{text}"],
            "talk": talk,
        },
        "documents": {"texts": texts, "piece_tokens": 512, "max_tokens": 10_000},
    } | changes


@pytest.fixture
def recipe() -> CorpusRecipe:
    return CorpusRecipe.parse(recipe_values(), "test")
