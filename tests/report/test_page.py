"""The report as a file: self-contained, escaped, the same every time, naming nobody."""

from __future__ import annotations

import dataclasses
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from hyflash_bench.errors import UsageError
from hyflash_bench.report.page import render, write_report
from hyflash_bench.report.view import REIMPLEMENTATION
from hyflash_bench.results.reader import Run, load_run
from tests.results.factory import DRAFTERS, FAILING, FakeDrafter, make_run

HOSTILE = "</script><script>alert(1)</script><img src=x onerror='alert(\"2\")'>&amp;"
PLOTLY_JS = re.compile(r"<script>/\*\*.*?</script>", re.DOTALL)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run with every kind of failure."""
    return load_run(make_run(tmp_path_factory.mktemp("page") / "run", DRAFTERS + FAILING, num_per_group=5))


@pytest.fixture
def small(tmp_path: Path) -> Run:
    """A run too small for intervals, which take most of the time."""
    return load_run(make_run(tmp_path / "small", num_per_group=2))


@pytest.fixture(scope="module")
def page(run: Run) -> str:
    """Its report."""
    return render(run)


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
    return page.replace(found[0], "")


def test_the_same_run_gives_the_same_bytes(small: Run, tmp_path: Path) -> None:
    """Also when loaded anew: reports can be compared and kept under version control."""
    first = write_report(small, tmp_path / "a.html")
    second = write_report([load_run(small.folder)], tmp_path / "deeper" / "b.html")

    assert first.read_bytes() == second.read_bytes()


def test_nothing_is_loaded_from_anywhere(page: str) -> None:
    """No element has an address besides the page's own anchors, and the policy forbids the rest."""
    parsed = Parsed(_without_library(page))

    assert not parsed.attribute("src")
    assert all(link.startswith("#") for link in parsed.attribute("href"))
    assert "default-src 'none'" in page
    assert "@import" not in page
    assert "url(" not in _without_library(page)


def test_links_lead_to_places_and_places_are_unique(page: str) -> None:
    """Figures find their place by id too."""
    parsed = Parsed(_without_library(page))
    ids = parsed.attribute("id")
    figures = json.loads(_figures(page))

    assert len(ids) == len(set(ids))
    assert {link[1:] for link in parsed.attribute("href")} <= set(ids)
    assert figures
    assert set(figures) <= set(ids)


def _figures(page: str) -> str:
    found = re.search(r'<script type="application/json" id="figures">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return found.group(1)


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


def test_the_answer_comes_first_with_numbers(page: str) -> None:
    """Suite, conditions, drafter, speed, interval."""
    text = " ".join(Parsed(_without_library(page)).texts)

    assert re.search(
        r"On quick \(greedy, no memory cap\), hyflash:window=256 decodes fastest, [\d.]+ tokens/s, "
        r"[\d.]+ times plain decoding \(95 % interval [\d.]+ to [\d.]+\)",
        text,
    )
    assert text.index("decodes fastest") < text.index("Headline")


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


def test_only_hyflash_results_are_called_a_reimplementation(page: str, tmp_path: Path) -> None:
    """Said where such results are shown, and not where they are not."""
    others = [drafter for drafter in DRAFTERS if drafter.name != "hyflash"]
    plain = load_run(make_run(tmp_path / "plain", others, num_per_group=2))

    assert REIMPLEMENTATION in page
    assert REIMPLEMENTATION not in render(plain)


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    """Models, data sets and files choose names; none of them becomes an element."""
    drafters = [DRAFTERS[0], FakeDrafter(HOSTILE, 8, keep=0.6, draft_s=0.001)]
    folder = make_run(
        tmp_path / "run",
        drafters,
        num_per_group=2,
        run_id=HOSTILE,
        command=["hyflash-bench", "run", HOSTILE],
        target={"name": HOSTILE, HOSTILE: HOSTILE},
        environment={"cpu": HOSTILE},
        resolved={"target": HOSTILE},
        suites=[{"name": "quick", "title": HOSTILE, "licence": HOSTILE, "version": 1}],
    )
    html = render(load_run(folder), title=HOSTILE)
    parsed = Parsed(_without_library(html))

    assert "<img" not in html.replace(PLOTLY_JS.findall(html)[0], "")
    assert not parsed.attribute("onerror")
    assert [tag for tag, _ in parsed.tags].count("script") == 2
    assert "alert(1)" in " ".join(parsed.texts)
    names = [
        trace.get("name") or "" for figure in json.loads(_figures(html)).values() for trace in figure["data"]
    ]
    assert any("alert" in name for name in names)
    assert all("<" not in name for name in names)


def test_control_characters_are_seen_and_never_stand_in_the_page(tmp_path: Path) -> None:
    """In names, messages, commands and configurations; figures hold them no more than tables do."""
    odd = "odd\x1b[31m\x07\u202ename"
    folder = make_run(
        tmp_path / "run",
        [DRAFTERS[0], FakeDrafter(odd, 8, keep=0.6, draft_s=0.001)],
        num_per_group=2,
        command=["hyflash-bench", "run", odd],
        target={"name": odd},
        resolved={"target": "odd\x1b"},
    )
    html = _without_library(render(load_run(folder), title=odd))

    assert not set(html) & {chr(code) for code in (*range(9), *range(11, 32), 127, 0x202E)}
    assert "odd\u241b[31m\u2407\\u202ename" in html
    assert "\\u001b" not in _figures(html)


@pytest.mark.parametrize(("busy", "told"), [(0.8, True), (0.1, False), (None, False)])
def test_a_busy_machine_is_told_above_the_numbers(tmp_path: Path, busy: float | None, told: bool) -> None:
    """Conditions alone would be read last."""
    folder = make_run(tmp_path / "run", DRAFTERS[:2], num_per_group=2, environment={"busy_share": busy})
    html = render(load_run(folder))

    assert ("Other programs used 80% of the machine" in html) is told
    if told:
        assert html.index("Other programs used") < html.index("Headline")


def test_no_person_machine_or_folder_is_named(tmp_path: Path) -> None:
    """A report is published as it is."""
    folder = make_run(
        tmp_path / "run",
        DRAFTERS[:2],
        num_per_group=2,
        command=["hyflash-bench", "run", "/home/ada/suites/mine.yaml", "--output-path", "/home/ada/out"],
        target={"name": "tiny", "model": "/home/ada/models/tiny", "path": "/home/ada/models"},
        environment={"hostname": "adas-laptop", "user": "ada", "cwd": "/home/ada", "cpu": "fast"},
        resolved={"target": "/home/ada/models/tiny", "suites": ["/home/ada/suites/mine.yaml"]},
    )
    html = _without_library(render(load_run(folder)))

    assert "adas-laptop" not in html
    assert not re.search(r"\bada\b", html)
    assert "--output-path .../out" in html
    assert str(tmp_path) not in html


def test_several_runs_stand_one_after_the_other(small: Run, tmp_path: Path) -> None:
    """Their ids differ, and plotly.js still stands there once."""
    other = load_run(make_run(tmp_path / "other", DRAFTERS, num_per_group=2, run_id="the-other"))
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
    assert "Plotly" not in html


def test_no_run_is_a_usage_error(tmp_path: Path) -> None:
    """And writes nothing."""
    with pytest.raises(UsageError, match="Give at least one run folder"):
        write_report([], tmp_path / "a.html")

    assert not list(tmp_path.iterdir())


def test_plain_decoding_alone_makes_a_report_and_its_figures_tell_one_value(tmp_path: Path) -> None:
    html = render(load_run(make_run(tmp_path / "one", DRAFTERS[:1], num_per_group=2)))

    described = [text for text in Parsed(html).attribute("aria-label") if text.startswith("Decoding speed")]
    assert described
    assert all(" from " not in text for text in described)


def test_a_drafter_given_as_a_file_is_named_without_its_folders(tmp_path: Path) -> None:
    """In tables, sentences, captions and figures alike."""
    own = FakeDrafter("/home/somebody/secret/own.py:Mine", 8, keep=0.9, draft_s=0.001)
    html = render(load_run(make_run(tmp_path / "own", [DRAFTERS[0], own], num_per_group=5)))
    assert "own.py:Mine" in html
    assert "somebody" not in html
