"""Suites of one's own in a temporary folder, and a tokenizer that needs no model."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from hyflash_bench.suites import ChatTokenizer, Suite, load_suite

SENTENCES = (
    "The harbour was quiet{0}.",
    "Nobody had seen the {0} boat since the storm, and nobody asked!",
    "Who would count the nets?",
    "There were {0} of them in the shed, all of them mended twice.",
    "Rain came.",
)


class WordTokenizer:
    """One token for each word and each mark; the template adds three."""

    chat_template = "some"
    eos_token_id = 0

    def __call__(self, texts: list[str], *, add_special_tokens: bool) -> dict[str, list[list[int]]]:
        return {"input_ids": [self.encode(text, add_special_tokens=add_special_tokens) for text in texts]}

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        return [len(word) for word in re.findall(r"\w+|[^\w\s]", text)]

    def apply_chat_template(self, messages: list[dict[str, str]], **_: Any) -> str:
        return "user " + " ".join(message["content"] for message in messages) + " assistant ."


@pytest.fixture(scope="session")
def words() -> ChatTokenizer:
    return ChatTokenizer(WordTokenizer())


def story(number: int, salt: str) -> str:
    parts = [SENTENCES[index % len(SENTENCES)].format(f" {salt}{index}") for index in range(number)]
    return "\n\n".join(" ".join(parts[start : start + 4]) for start in range(0, number, 4))


def suite_values() -> dict[str, Any]:
    """A suite over two local stories."""
    prompt = "[Read|Please read] this[:| text:| old text:| old and short text:]\n\n{text}\n\n"
    return {
        "name": "mine",
        "version": 1,
        "title": "Mine",
        "description": "A test.",
        "licence": "CC0-1.0",
        "max_new_tokens": 20,
        "sources": {"stories": {"type": "file", "path": "stories", "licence": "CC0-1.0"}},
        "tasks": [
            {
                "name": "reading",
                "builder": "documents",
                "options": {
                    "source": "stories",
                    "contexts": [100, 200, 400],
                    "neighbours": ["*.txt"],
                    "kinds": {
                        "summary": {"prompt": prompt + "[Summarise it.|Summarise it, please.]"},
                        "continuation": {"grow": "backward", "prompt": prompt},
                    },
                    "documents": [
                        {"id": "one", "file": "part_1.txt"},
                        {"id": "two", "file": "part_2.txt"},
                        {"id": "ten", "file": "part_10.txt"},
                    ],
                },
            }
        ],
    }


def write_suite(folder: Path, values: dict[str, Any]) -> Path:
    stories = folder / "stories"
    stories.mkdir(exist_ok=True)
    for number in (1, 2, 10):
        (stories / f"part_{number}.txt").write_text(story(40, f"p{number}x"))
    path = folder / f"{values['name']}.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


@pytest.fixture
def mine(tmp_path: Path) -> Suite:
    return load_suite(write_suite(tmp_path, suite_values()))


@pytest.fixture(scope="session")
def longctx() -> Suite:
    """The shipped suite with its texts, fetched by the set-up."""
    suite = load_suite("longctx")
    suite.prepare()
    return suite
