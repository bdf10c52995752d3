"""The report as a file: self-contained, escaped, the same every time, naming nobody."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from hyflash_bench.errors import UsageError
from hyflash_bench.report import explorer
from hyflash_bench.report.explorer import LONGEST_REJECTED, LONGEST_TEXT
from hyflash_bench.report.page import render, write_report
from hyflash_bench.report.view import REIMPLEMENTATION
from hyflash_bench.results.reader import Run, load_run
from tests.results.factory import DRAFTERS, FAILING, FakeDrafter, make_run, records

HOSTILE = "</script><script>alert(1)</script><img src=x onerror='alert(\"2\")'>&amp;"
NASTY = f"{HOSTILE}/home/ada/secret/own.py:Mine odd\x1b[31m\x07\u202ename"
PLOTLY_JS = re.compile(r'<script id="plotly-source" type="text/plain">.*?</script>', re.DOTALL)
OWN_JS = re.compile(r'<script>\s*"use strict";.*?</script>', re.DOTALL)


class Parsed(HTMLParser):
    """Elements, attributes and text of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Remember it."""
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        """Remember it."""
        self.texts.append(data)

    def attribute(self, name: str) -> list[str]:
        """All values of an attribute."""
        return [value for _, attrs in self.tags if (value := attrs.get(name)) is not None]


def _without_library(page: str) -> str:
    found = PLOTLY_JS.findall(page)
    assert len(found) == 1, "plotly.js stands in the page exactly once"
    return OWN_JS.sub("", page.replace(found[0], ""))


def _data(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="page-data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    values: dict[str, Any] = json.loads(found.group(1), parse_constant=_no_constant)
    return values


def _no_constant(word: str) -> None:
    raise AssertionError(f"{word} is no JSON")


def test_the_same_run_gives_the_same_bytes(small: Run, small_page: str, tmp_path: Path) -> None:
    """Also when loaded anew: reports can be compared and kept under version control."""
    again = write_report([load_run(small.folder)], tmp_path / "deeper" / "b.html")

    assert again.read_bytes() == small_page.encode()


def test_nothing_is_loaded_from_anywhere(page: str) -> None:
    """No element has an address besides the page's own anchors, and the policy forbids the rest."""
    parsed = Parsed(_without_library(page))

    assert not parsed.attribute("src")
    assert all(link.startswith("#") for link in parsed.attribute("href"))
    assert "default-src 'none'" in page
    assert "@import" not in _without_library(page)
    assert "url(" not in _without_library(page)


def test_links_lead_to_places_and_places_are_unique(page: str) -> None:
    """Figures find their place by id too."""
    parsed = Parsed(_without_library(page))
    ids = parsed.attribute("id")
    figures = _data(page)["figures"]

    assert len(ids) == len(set(ids))
    assert {link[1:] for link in parsed.attribute("href")} <= set(ids)
    assert figures
    assert set(figures) <= set(ids)


def test_it_can_be_read_without_scripts(page: str) -> None:
    """Every figure has a sentence and every number of it stands in a table."""
    parsed = Parsed(_without_library(page))
    labels = parsed.attribute("aria-label")
    tags = [tag for tag, _ in parsed.tags]

    assert tags.count("figcaption") == tags.count("figure") > 4
    assert any(
        label.startswith("Acceptance length on longctx, greedy, no memory cap: from 1.00") for label in labels
    )
    assert tags.count("table") > 8


def test_everything_analysed_has_its_place(page: str) -> None:
    """Simulated speeds, crossings, slots with intervals and what steps commit stand on the page."""
    text = " ".join(Parsed(_without_library(page)).texts)
    figures = _data(page)["figures"]
    kinds = {key.removeprefix("run-1-").rpartition("-g")[0] for key in figures}

    assert {"simulated", "break-even-0", "positions", "steps", "acceptance", "pareto", "decoding"} <= kinds
    assert "Where drafters overtake each other" in text
    assert re.search(r"no crossing: .+ is ahead from 512 to 8,192 tokens", text)
    slots = next(figure for key, figure in figures.items() if key.startswith("run-1-positions"))
    assert any(trace.get("fill") == "toself" for trace in slots["data"])


def test_figures_say_whether_they_have_intervals(page: str, small_page: str) -> None:
    """Too few conversations have none, and are not said to."""
    assert "Bands: 95 % intervals" in page
    assert "95 % intervals" not in "".join(re.findall("<figcaption>.*?</figcaption>", small_page))
    assert "No intervals (" in small_page


def test_the_answer_comes_first_with_numbers(page: str) -> None:
    """Suite, conditions, drafter, speed, interval."""
    text = " ".join(Parsed(_without_library(page)).texts)

    assert re.search(
        r"On quick \(greedy, no memory cap\), hyflash:window=256 decodes fastest, [\d.]+ tokens/s, "
        r"[\d.]+ times plain decoding \(95 % interval [\d.]+ to [\d.]+\)",
        text,
    )
    assert page.index("decodes fastest") < page.index('<section id="run-1-headline">')


def test_failures_definitions_and_conditions_are_all_there(page: str) -> None:
    """Nothing is hidden."""
    text = " ".join(Parsed(_without_library(page)).texts)

    for drafter in (*DRAFTERS, *FAILING):
        assert drafter.label in text
    for word in ("oom", "incompatible", "mismatch", "timeout", "error", "interrupted"):
        assert word in text
    assert "sum of committed / sum of steps" in text
    assert "CC0-1.0" in text
    assert "hyflash run --suite quick" in text
    assert "Memory caps are simulated" in text


def test_only_hyflash_results_are_called_a_reimplementation(page: str, small_page: str) -> None:
    """Said where such results are shown, and not where they are not."""
    assert REIMPLEMENTATION in page
    assert REIMPLEMENTATION not in small_page


HOSTILE_RUN = {
    "run_id": HOSTILE,
    "command": [
        "hyflash-bench",
        "run",
        HOSTILE,
        "/home/ada/suites/mine.yaml",
        "--output-path",
        "/home/ada/out",
    ],
    "target": {"name": HOSTILE, HOSTILE: HOSTILE, "model": "/home/ada/models/tiny", "path": "/home/ada"},
    "environment": {"cpu": HOSTILE, "hostname": "adas-laptop", "user": "ada", "cwd": "/x", "busy_share": 0.8},
    "resolved": {"target": f"{HOSTILE}\x1b", "suites": ["/home/ada/suites/mine.yaml"]},
    "suites": [{"name": "quick", "title": HOSTILE, "licence": HOSTILE, "version": 1}],
}


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run in which names, texts and files want to be something else."""
    drafters = [DRAFTERS[0], FakeDrafter(NASTY, 8, keep=0.6, draft_s=0.001)]
    _, traces, _ = records(drafters, num_per_group=1)
    folder = make_run(tmp_path_factory.mktemp("hostile") / "run", drafters, num_per_group=1, **HOSTILE_RUN)
    said = [trace.model_copy(update={"kind": HOSTILE, "category": "\u202eyrogetac"}) for trace in traces]
    turn = said[0].turns[0]
    nasty = f"{HOSTILE}\u202e\x1b[31m" + "w" * 1_000_000
    cut = [0, *range(1, len(turn.tokens))]
    turn = turn.model_copy(update={"text": nasty, "offsets": cut, "request": f"\"{HOSTILE}'"})
    said[0] = said[0].model_copy(update={"turns": [turn, *said[0].turns[1:]]})
    lines = "".join(json.dumps(trace.model_dump()) + "\n" for trace in said)
    (folder / "traces.jsonl").write_text(lines, encoding="utf-8")
    _reject_all(folder, nasty)
    return load_run(folder)


def _reject_all(folder: Path, text: str) -> None:
    """Have every step have rejected a text."""
    path = folder / "conversations.jsonl"
    stored = [json.loads(line) for line in path.read_text().splitlines()]
    for turn in (turn for conversation in stored for turn in conversation["turns"]):
        turn["steps"]["rejected_text"] = [text[:2000]] * len(turn["steps"]["committed"])
    path.write_text("".join(json.dumps(line) + "\n" for line in stored))


@pytest.fixture(scope="module")
def hostile_page(hostile: Run) -> str:
    """Its report."""
    return render(hostile, title=f"{HOSTILE}\x1b[31m\u202e")


def test_hostile_names_and_texts_stay_text(hostile_page: str) -> None:
    """Models, data sets and files choose names; none of them becomes an element."""
    html = _without_library(hostile_page)
    parsed = Parsed(html)

    assert "<img" not in html
    assert not parsed.attribute("onerror")
    assert [tag for tag, _ in parsed.tags].count("script") == 1
    assert "alert(1)" in " ".join(parsed.texts)
    names = [
        trace.get("name") or "" for figure in _data(html)["figures"].values() for trace in figure["data"]
    ]
    assert any("alert" in name for name in names)
    assert all("<" not in name for name in names)


def test_control_characters_are_seen_and_never_stand_in_the_page(hostile_page: str) -> None:
    """In names, texts, commands and configurations; figures hold them no more than tables do."""
    html = _without_library(hostile_page)

    assert not set(html) & {chr(code) for code in (*range(9), *range(11, 32), 127, 0x202E)}
    assert "odd\u241b[31m\u2407\\u202ename" in html
    assert "\\u001b" not in html


def test_a_text_of_a_megabyte_is_cut(hostile_page: str) -> None:
    """The page stays readable, and says nothing that is not so."""
    turn = _data(hostile_page)["explorers"][0]["conversations"][0]["turns"][0]
    assert len("".join(turn["pieces"])) <= LONGEST_TEXT + 200
    assert "w" * LONGEST_TEXT not in hostile_page
    rejected = [text for walk in turn["rejected"].values() for text in walk]
    assert rejected
    assert all("\u202e" not in text and len(text) <= LONGEST_REJECTED + 200 for text in rejected)


@pytest.mark.usefixtures("few_sections")
def test_what_no_room_is_left_for_is_counted(small: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Conversations are left out whole, and the page says how many."""
    whole = _data(render(small))["explorers"][0]
    monkeypatch.setattr(explorer, "MOST_BYTES", 0)
    html = render(small)

    assert len(_data(html)["explorers"][0]["conversations"]) == 1
    assert f"{len(whole['conversations']) - 1} conversations found no room on this page" in html


@pytest.mark.usefixtures("few_sections")
def test_no_person_machine_or_folder_is_named(hostile_page: str, hostile: Run) -> None:
    """A report is published as it is, unless names are asked for."""
    html = _without_library(hostile_page)
    assert "adas-laptop" not in html
    assert not re.search(r"\bada\b", html)
    assert "--output-path .../out" in html
    assert str(hostile.folder) not in html

    told = render(hostile, include_host=True)
    assert "adas-laptop" in told
    assert "--output-path /home/ada/out" in told


def test_a_busy_machine_is_told_above_the_numbers(hostile_page: str, small_page: str) -> None:
    """Conditions alone would be read last."""
    assert "Other programs used 80% of the machine" in hostile_page
    assert hostile_page.index("Other programs used") < hostile_page.index('<section id="run-1-headline">')
    assert "Other programs used" not in small_page


@pytest.mark.usefixtures("few_sections")
def test_several_runs_stand_one_after_the_other(small: Run, tmp_path: Path) -> None:
    """Their ids differ, and plotly.js still stands there once."""
    other = load_run(make_run(tmp_path / "other", DRAFTERS[:1], num_per_group=1, run_id="the-other"))
    html = render([small, other])
    ids = Parsed(_without_library(html)).attribute("id")

    assert "Run the-other" in html
    assert {"run-1-headline", "run-2-headline"} <= set(ids)
    assert len(ids) == len(set(ids))


def test_a_run_without_measurements_says_so(tmp_path: Path) -> None:
    """A page is made anyway, small and without figures."""
    folder = make_run(tmp_path / "run", DRAFTERS[:1], num_per_group=1)
    (folder / "conversations.jsonl").write_text("")
    run = load_run(folder)
    manifest = run.manifest.model_copy(update={"finished_at": None})
    html = render(dataclasses.replace(run, manifest=manifest))

    assert "This run is not finished" in html
    assert 'id="plotly-source"' not in html


def test_no_run_is_a_usage_error(tmp_path: Path) -> None:
    """And writes nothing."""
    with pytest.raises(UsageError, match="Give at least one run folder"):
        write_report([], tmp_path / "a.html")

    assert not list(tmp_path.iterdir())


def test_one_conversation_of_one_drafter_makes_a_report(tmp_path: Path) -> None:
    """Figures of one value tell one value, and what cannot be compared is left out."""
    folder = make_run(tmp_path / "one", DRAFTERS[:1], num_per_group=1)
    cells = [
        cell for cell in load_run(folder).manifest.cells if cell.suite == "quick" and not cell.temperature
    ]
    run = load_run(folder)
    manifest = run.manifest.model_copy(update={"cells": cells[:1]})
    keep = [
        line
        for line in (folder / "conversations.jsonl").read_text().splitlines(keepends=True)
        if json.loads(line)["cell_id"] == cells[0].cell_id
    ]
    (folder / "conversations.jsonl").write_text("".join(keep[:1]))
    html = render(load_run(folder).__class__(folder, manifest))

    described = [text for text in Parsed(html).attribute("aria-label") if text.startswith("Decoding speed")]
    assert described
    assert all(" from " not in text for text in described)


def test_the_outline_of_the_page_is_as_it_was(small_page: str) -> None:
    """Headings, captions and column heads in order; numbers apart. UPDATE_GOLDEN=1 writes it anew."""
    outline = "\n".join(Outline(_without_library(small_page)).lines) + "\n"
    outline = re.sub(r"\d[\d,.]*", "#", outline)
    golden = Path(__file__).with_name("golden.txt")
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(outline, encoding="utf-8")
    assert outline == golden.read_text(encoding="utf-8")


class Outline(HTMLParser):
    """What stands in headings, captions and heads of columns, a line each."""

    KEPT = ("title", "h1", "h2", "h3", "caption", "figcaption", "th", "summary", "legend")

    def __init__(self, html: str) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._inside: str | None = None
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin a line."""
        if tag in self.KEPT and self._inside is None and dict(attrs).get("scope") != "row":
            self._inside = tag
            self.lines.append(f"{tag}: ")

    def handle_endtag(self, tag: str) -> None:
        """End it."""
        if tag == self._inside:
            self._inside = None

    def handle_data(self, data: str) -> None:
        """Write on."""
        if self._inside:
            self.lines[-1] += data
