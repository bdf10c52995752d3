"""The site in a real browser: filters, sorting, figures; nothing leaves it, nothing complains."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hyflash_bench.report.site import publish, publishing
from tests.report.browser import serious_violations
from tests.report.sites import tiny_run


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site of two runs."""
    folder = tmp_path_factory.mktemp("browser")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(publishing, "render", lambda run, **_: f"<!doctype html><title>{run.run_id}</title>")
        publish([tiny_run(folder / f"run-{day}", day) for day in (1, 2)], folder / "site")
    return folder / "site"


@pytest.fixture
def tab(browser: Any) -> Iterator[Any]:
    """A page that takes note of what goes wrong and of what it asks for."""
    tab = browser.new_page()
    tab.complaints, tab.asked = [], []
    tab.on("console", lambda message: tab.complaints.append(message.text))
    tab.on("pageerror", lambda error: tab.complaints.append(str(error)))
    tab.on("request", lambda request: tab.asked.append(request.url))
    yield tab
    tab.close()


def _shown(tab: Any, column: int) -> list[str]:
    cells = tab.locator(f"#board tbody tr:visible > :nth-child({column})")
    return [cell.get_attribute("data-text") for cell in cells.all()]


def test_the_leaderboard_is_filtered_and_the_address_remembers(tab: Any, site: Path) -> None:
    """At first whole suites; a link to a choice shows that choice."""
    tab.goto((site / "index.html").as_uri())
    everything = tab.locator("#board tbody tr").count()
    wholes = tab.locator("#board tbody tr:visible").count()
    tab.select_option("select[name=drafter]", "prompt-lookup")
    chosen = _shown(tab, 1)

    assert 0 < len(chosen) < wholes < everything
    assert set(chosen) == {"prompt-lookup"}
    assert tab.inner_text("#shown") == f"{len(chosen)} of {everything} rows"

    tab.goto("about:blank")
    tab.go_back()
    assert _shown(tab, 1) == chosen
    tab.click("#filters button")
    assert tab.locator("#board tbody tr:visible").count() == everything
    assert tab.complaints == []


def test_columns_are_sorted_up_and_down_and_back(tab: Any, site: Path) -> None:
    """Rows without a number stay last."""
    tab.goto((site / "index.html").as_uri())
    heads = tab.locator("#board thead th").all_inner_texts()
    column = heads.index("acceptance length") + 1
    before = _shown(tab, column)
    head = tab.locator(f"#board thead th:nth-child({column})")
    head.locator("button").click()
    down = _shown(tab, column)
    assert head.get_attribute("aria-sort") == "descending"
    head.locator("button").click()
    up = _shown(tab, column)
    head.locator("button").click()

    numbers = [float(text) for text in down if text[0].isdigit()]
    assert numbers == sorted(numbers, reverse=True)
    assert [float(text) for text in up if text[0].isdigit()] == numbers[::-1]
    assert all(not text[0].isdigit() for text in (*down[len(numbers) :], *up[len(numbers) :]))
    assert _shown(tab, column) == before
    assert head.get_attribute("aria-sort") is None


def test_figures_draw_and_no_request_leaves_the_site(tab: Any, site: Path) -> None:
    """Those near the screen at once, the others when they come near or are printed."""
    tab.set_default_timeout(120_000)
    tab.goto((site / "drafters" / "prompt-lookup" / "index.html").as_uri())
    tab.wait_for_selector(".plot .main-svg")
    tab.evaluate("dispatchEvent(new Event('beforeprint'))")

    assert tab.locator(".plot").count() == tab.locator(".plot:has(.main-svg)").count() > 0
    assert all(url.startswith(site.as_uri()) for url in tab.asked)
    assert tab.complaints == []


def test_without_scripts_every_row_is_there(browser: Any, site: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    tab = context.new_page()
    tab.goto((site / "index.html").as_uri())

    assert tab.locator("#board tbody tr:visible").count() == tab.locator("#board tbody tr").count() > 0
    assert not tab.locator("#filters").is_visible()
    context.close()


@pytest.mark.parametrize("width", [360, 1280])
def test_no_page_is_wider_than_the_screen(browser: Any, site: Path, width: int) -> None:
    """Tables scroll within their frame."""
    tab = browser.new_page(viewport={"width": width, "height": 800})
    for path in (
        site / "index.html",
        *site.glob("compare/*/index.html"),
        *site.glob("runs/*/data/index.html"),
    ):
        tab.goto(path.as_uri())
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
    tab.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_violation(browser: Any, site: Path, scheme: str) -> None:
    """On a page of each kind."""
    tab = browser.new_page(color_scheme=scheme)
    for kind in ("index.html", "404.html", "*/*/index.html", "runs/*/data/index.html"):
        kinds = {page.relative_to(site).parts[0]: page for page in site.glob(kind)}
        for name, page in kinds.items():
            if name == "runs" and kind == "*/*/index.html":
                continue  # a report, which has a test of its own
            tab.goto(page.as_uri())
            assert serious_violations(tab) == [], page
    tab.close()
