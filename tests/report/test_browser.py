"""The report in a real browser: it draws, answers, stays inside its file, and fits every screen."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hyflash_bench.report.page import write_report
from hyflash_bench.results.reader import load_run
from tests.report.browser import serious_violations
from tests.results.factory import DRAFTERS, make_run

DESK = {"width": 1280, "height": 900}
PHONE = {"width": 390, "height": 844}
A4 = {"width": 690, "height": 1000}
"""Between the margins of the print style, in CSS pixels."""

OVERLAPS = """
() => {
  const places = [...document.querySelectorAll(
    "h1, h2, h3, p, figure, .scroll, pre, dl, ul.notices, ul.downloads, nav, form, summary, blockquote," +
    ".reply, .strips"
  )].filter((one) => one.getClientRects().length && getComputedStyle(one).position !== "absolute");
  const found = [];
  const boxes = places.map((one) => [one, one.getBoundingClientRect()]);
  boxes.forEach(([one, a], at) => {
    for (const [other, b] of boxes.slice(at + 1, at + 12)) {
      if (one.contains(other) || other.contains(one)) continue;
      const width = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const height = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      const told = [one, other].map((each) => each.outerHTML.slice(0, 80)).join(" | ");
      if (width > 2 && height > 2) found.push(told);
    }
  });
  return found;
}
"""
TOO_WIDE = """
() => [...document.querySelectorAll("body *")]
  .filter((one) => !one.closest(".scroll, pre, .plot, .skip, svg, script, style, optgroup, select"))
  .filter((one) => one.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
  .map((one) => one.outerHTML.slice(0, 100))
"""
BRIGHTNESS = "Number(getComputedStyle(document.body).{}.match(/[0-9]+/)[0])"
DRAW_ALL = """
async () => {
  for (const one of document.querySelectorAll("details")) one.open = true;
  dispatchEvent(new Event("beforeprint"));
  const end = Date.now() + 60000;
  while (document.querySelector(".plot:not([data-drawn])") && Date.now() < end) {
    await new Promise((done) => setTimeout(done, 20));
  }
}
"""


class Opened:
    """A page in a tab, with what it said and asked for."""

    def __init__(self, browser: Any, file: Path, **options: Any) -> None:
        self.context = browser.new_context(**options)
        self.tab = self.context.new_page()
        self.said: list[str] = []
        self.asked: list[str] = []
        self.tab.on("console", lambda message: self.said.append(f"{message.type}: {message.text}"))
        self.tab.on("pageerror", lambda error: self.said.append(f"error: {error}"))
        self.tab.on("request", lambda request: self.asked.append(request.url))
        self.tab.goto(file.resolve().as_uri())
        self.tab.wait_for_selector("html[data-ready]")

    def draw_all(self) -> None:
        """Have every figure drawn, also those further down and those folded away."""
        self.tab.evaluate(DRAW_ALL)

    def settle(self) -> None:
        """Let figures take their new size."""
        self.tab.evaluate(
            "async () => {"
            "  for (const one of document.querySelectorAll('.plot')) await window.Plotly.Plots.resize(one);"
            "}"
        )


@pytest.fixture(scope="module")
def opened(browser: Any, page_file: Path) -> Iterator[Opened]:
    """The report in a wide window."""
    rights = ["clipboard-read", "clipboard-write"]
    made = Opened(browser, page_file, viewport=DESK, accept_downloads=True, permissions=rights)
    made.draw_all()
    yield made
    made.context.close()


def test_every_figure_draws_and_nothing_is_asked_for_or_complained_about(
    opened: Opened, page_file: Path
) -> None:
    assert opened.tab.locator(".plot").count() > 10
    assert opened.tab.locator(".plot:not([data-drawn])").count() == 0
    empty = opened.tab.evaluate(
        "[...document.querySelectorAll('.plot')].filter((one) => !one.querySelector('.trace, .bars, .point'))"
        ".map((one) => one.id)"
    )
    assert not empty
    assert opened.said == []
    assert {url for url in opened.asked if not url.startswith(("blob:", "data:"))} == {
        page_file.resolve().as_uri()
    }


def test_a_drafter_that_is_unticked_leaves_tables_and_figures(opened: Opened) -> None:
    tab, name = opened.tab, "prompt-lookup"
    box = tab.locator(f"#filter input[value='{name}']")
    count = (
        f"[...document.querySelectorAll('.plot')].flatMap((one) => one.data)"
        f".filter((one) => one.legendgroup === 'drafter {name}' && one.visible !== false).length"
    )
    assert tab.evaluate(count) > 0
    box.uncheck()
    assert tab.locator(f"tr[data-drafter='{name}']").first.is_hidden()
    assert tab.evaluate(count) == 0
    assert tab.locator("tr[data-drafter='autoregressive']").first.is_visible()
    box.check()
    assert tab.locator(f"tr[data-drafter='{name}']").first.is_visible()
    assert tab.evaluate(count) > 0


def test_it_leaves_the_bars_of_time_too(opened: Opened) -> None:
    """There a trace is a part of the time, and a drafter one bar of each."""
    tab = opened.tab
    bars = (
        "[...document.querySelectorAll('.plot')].filter((one) => one.data.some((trace) => trace.meta))"
        ".map((one) => one.data.map((trace) => trace.y))"
    )
    before = tab.evaluate(bars)
    tab.locator("#filter input[value='prompt-lookup']").uncheck()
    without = tab.evaluate(bars)
    tab.locator("#filter input[value='prompt-lookup']").check()

    assert any("prompt-lookup" in rows for figure in before for rows in figure)
    kept = [[[row for row in rows if row != "prompt-lookup"] for rows in figure] for figure in before]
    assert without == kept
    assert tab.evaluate(bars) == before


def test_conditions_can_be_chosen(opened: Opened) -> None:
    tab = opened.tab
    choice = tab.locator("#filter select")
    key = choice.locator("option").nth(1).get_attribute("value")
    choice.select_option(key)
    shown = tab.evaluate(
        "[...document.querySelectorAll('.part[data-group]')].filter((one) => !one.hidden)"
        ".map((one) => one.dataset.group)"
    )
    assert set(shown) == {key}
    choice.select_option("")
    assert tab.locator(".part[data-group][hidden]").count() == 0


def test_tables_sort_by_number_with_missing_ones_last(opened: Opened) -> None:
    table = opened.tab.locator("#run-1-headline table").first
    column = [head.strip() for head in table.locator("thead th").all_inner_texts()].index("acceptance length")
    head = table.locator("thead th").nth(column)
    values = f"(table) => [...table.tBodies[0].rows].map((row) => row.cells[{column}].dataset.value ?? null)"
    for direction in ("descending", "ascending"):
        head.locator("button").click()
        assert head.get_attribute("aria-sort") == direction
        got = table.evaluate(values)
        numbers = [float(value) for value in got if value is not None]
        assert got[len(numbers) :] == [None] * (len(got) - len(numbers))
        assert numbers == sorted(numbers, reverse=direction == "descending")


def test_downloads_hold_the_tables(opened: Opened, run: Any) -> None:
    tab = opened.tab
    with tab.expect_download() as caught:
        tab.locator(".downloads button[data-table='turns']").click()
    text = Path(caught.value.path()).read_text(encoding="utf-8")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert len(rows) == len(run.turns)
    assert list(rows[0]) == list(run.turns)
    assert [int(row["num_committed"]) for row in rows] == run.turns["num_committed"].tolist()

    with tab.expect_download() as caught:
        tab.locator(".downloads button[data-table='']").click()
    data = json.loads(Path(caught.value.path()).read_text(encoding="utf-8"))
    assert len(data["cells"]) == len(run.cells)
    assert caught.value.suggested_filename == "20261129-1200-demo.json"


def test_commands_can_be_copied(opened: Opened) -> None:
    button = opened.tab.locator(".copy").first
    button.click()
    button.filter(has_text=re.compile("Copied|Selected")).wait_for()


def test_a_conversation_tells_where_each_token_came_from(opened: Opened, run: Any) -> None:
    tab = opened.tab
    section = tab.locator(".explorer")
    section.locator("select").nth(1).select_option(label="prompt-lookup")
    label = section.locator("select").first.evaluate("(one) => one.selectedOptions[0].textContent")
    item = label.partition(",")[0]
    steps = run.steps[
        (run.steps["drafter"] == "prompt-lookup")
        & (run.steps["item_id"] == item)
        & run.steps["is_scored"]
        & run.steps["memory_cap_bytes"].isna()
        & (run.steps["turn"] == 0)
    ]
    steps = steps[steps["sampling"] == "greedy"]
    told = section.locator(".turn").first.inner_text()
    kept = int(steps[["accepted", "committed"]].min(axis="columns").sum())
    assert f"{len(steps)} step" in told
    assert f"{kept} tokens accepted" in told
    tokens = section.locator(".turn").first.locator(".reply")
    text = tokens.evaluate(
        "(one) => [...one.childNodes].filter((each) => !each.matches?.('.rejected'))"
        ".map((each) => each.textContent).join('')"
    )
    assert "<b>reply</b>" in text
    assert tokens.locator("mark").count() == int((steps["accepted"] > 0).sum())


def test_rejected_tokens_stand_struck_through_where_they_were_refused(opened: Opened) -> None:
    """By line and in words, not by colour alone; copied text goes without them."""
    tab = opened.tab
    section = tab.locator(".explorer")
    section.locator("select").nth(1).select_option(label="prompt-lookup")
    reply = section.locator(".reply").first
    struck = reply.locator("del")
    assert struck.count() > 1
    assert re.fullmatch(
        r" \[rejected: ( <i>slot\d</i>\u21b5)+\] ", struck.first.evaluate("(one) => one.textContent")
    )
    title = struck.first.get_attribute("title")
    assert title is not None
    rejected = int(title.rpartition(", ")[2].split()[0])
    assert struck.first.inner_text().count("slot") == rejected
    assert "line-through" in struck.first.evaluate("(one) => getComputedStyle(one).textDecorationLine")
    assert "slot" not in reply.evaluate(
        "(one) => { getSelection().selectAllChildren(one); return getSelection().toString(); }"
    )
    numbers = reply.locator(".count")
    assert numbers.count() == 0
    num_struck = struck.count()
    section.get_by_label("Rejected tokens as text").uncheck()
    assert (struck.count(), numbers.count()) == (0, num_struck)
    assert numbers.first.inner_text() == f"\u2212{rejected}"
    section.get_by_label("Rejected tokens as text").check()


@pytest.mark.usefixtures("few_sections")
def test_a_run_that_did_not_store_what_was_rejected_shows_how_much_it_was(
    browser: Any, tmp_path: Path
) -> None:
    folder = make_run(tmp_path / "run", DRAFTERS[:2], num_per_group=1)
    lines = [json.loads(line) for line in (folder / "conversations.jsonl").read_text().splitlines()]
    for turn in (turn for line in lines for turn in line["turns"]):
        del turn["steps"]["rejected_tokens"], turn["steps"]["rejected_text"]
    (folder / "conversations.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    made = Opened(browser, write_report(load_run(folder), tmp_path / "old.html"))
    made.tab.locator(".explorer").scroll_into_view_if_needed()
    reply = made.tab.locator(".explorer .reply").first
    assert reply.locator("del").count() == 0
    assert re.fullmatch("\u2212\\d", reply.locator(".rejected.count").first.inner_text())
    assert made.said == []
    made.context.close()


@pytest.mark.parametrize("look", ["light", "dark", "phone", "print"])
def test_nothing_overlaps_or_runs_out_of_the_page(opened: Opened, look: str) -> None:
    tab, size = opened.tab, {"phone": PHONE, "print": A4}.get(look, DESK)
    scheme, media = ("dark" if look == "dark" else "light"), ("print" if look == "print" else "screen")
    tab.set_viewport_size(size)
    tab.emulate_media(color_scheme=scheme, media=media)
    opened.settle()
    assert tab.evaluate(OVERLAPS) == []
    assert tab.evaluate(TOO_WIDE) == []
    assert tab.evaluate("document.documentElement.scrollWidth") <= size["width"]
    heads = tab.locator("#run-1-headline thead").first.inner_text()
    assert "acceptance" in heads
    narrow = "(one) => one.getBoundingClientRect().width"
    assert tab.locator("tbody th.name").first.evaluate(narrow) > 100
    is_light_on_dark = tab.evaluate(BRIGHTNESS.format("color")) > tab.evaluate(
        BRIGHTNESS.format("backgroundColor")
    )
    assert is_light_on_dark is (look == "dark")
    assert opened.said == []


def test_on_a_phone_each_drafters_steps_stand_below_its_name(opened: Opened) -> None:
    tab = opened.tab
    tab.set_viewport_size(PHONE)
    top = "(one) => one.getBoundingClientRect().top"
    walks = tab.locator(".turn .walk")
    names = [walks.nth(at).locator(".strip-name").evaluate(top) for at in (0, 1)]
    strips = [walks.nth(at).locator(".strip").evaluate(top) for at in (0, 1)]
    tab.set_viewport_size(DESK)

    assert names[0] < strips[0] < names[1] < strips[1]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_violation(opened: Opened, scheme: str) -> None:
    tab = opened.tab
    tab.set_viewport_size(DESK)
    tab.emulate_media(color_scheme=scheme, media="screen")
    assert serious_violations(tab) == []


def test_it_is_read_without_scripts(browser: Any, page_file: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    tab = context.new_page()
    tab.goto(page_file.resolve().as_uri())
    assert tab.locator(".plot").first.is_hidden()
    assert tab.locator("figcaption").first.is_visible()
    assert tab.locator("#run-1-headline table").first.is_visible()
    assert "The explorer needs JavaScript." in tab.locator(".explorer").inner_text()
    context.close()


def test_a_page_with_split_assets_draws_and_shares_the_library(browser: Any, tmp_path: Path) -> None:
    run = load_run(make_run(tmp_path / "run", DRAFTERS[:2], num_per_group=1))
    page = write_report(run, tmp_path / "site" / "one.html", split_assets=True)
    assert page.stat().st_size < 1_000_000
    made = Opened(browser, page)
    made.draw_all()
    names = {url.rpartition("/")[2] for url in made.asked}
    assert names == {"one.html", *(path.name for path in (tmp_path / "site" / "assets").iterdir())}
    assert made.said == []
    made.context.close()
