"""Pages of a site: links that lead somewhere, for any static host, and names that stay text."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as ET

from hyflash_bench.report.site import publish
from tests.report.sites import ATOM, PageParser, broken_links, tiny_run
from tests.results.factory import DRAFTERS, FakeDrafter

HOSTILE = "</script><script>alert(1)</script><img src=x onerror='alert(\"2\")'>../../&amp;\u202e"


def test_every_link_leads_to_a_file_of_the_site(published: Path) -> None:
    """Also scripts and style sheets; nothing has an address outside."""
    pages = list(published.rglob("*.html"))

    assert len(pages) > 8
    assert broken_links(published) == []


def test_the_site_is_ready_for_any_static_host(published: Path) -> None:
    """What Pages hosts look for is there, and plotly.js once."""
    assert (published / ".nojekyll").exists()
    assert (published / "404.html").exists()
    assert len(list(published.rglob("plotly*.js"))) == 1
    for page in published.rglob("*.html"):
        assert "https://" not in re.sub(r"<script.*?</script>", "", page.read_text(), flags=re.DOTALL)


def test_hostile_names_stay_text_and_never_leave_the_folder(tmp_path: Path) -> None:
    """Run, drafter, target, machine and suite choose names; none becomes an element or a path."""
    drafters = [DRAFTERS[0], FakeDrafter(HOSTILE, 8, keep=0.6, draft_s=0.001)]
    suites = [{"name": "quick", "title": HOSTILE, "licence": HOSTILE, "version": 1, "suite_hash": HOSTILE}]
    hostile = {
        "drafters": drafters,
        "run_id": HOSTILE,
        "target": {"name": HOSTILE},
        "environment": {"cpu": HOSTILE},
        "suites": suites,
    }
    for day in (1, 2):
        publish(tiny_run(tmp_path / f"run-{day}", day, **hostile), tmp_path / "site", title=HOSTILE)

    assert {path.name for path in tmp_path.iterdir()} == {"run-1", "run-2", "site"}
    for path in (tmp_path / "site").rglob("*"):
        assert re.fullmatch(r"[A-Za-z0-9._-]+", path.name)
    for page in (tmp_path / "site").rglob("*.html"):
        parsed = PageParser(page.read_text(encoding="utf-8"))
        assert not parsed.values("onerror")
        assert "img" not in {tag for tag, _ in parsed.tags}
        assert "\u202e" not in page.read_text(encoding="utf-8")
    assert broken_links(tmp_path / "site") == []
    feed = ET.parse(tmp_path / "site" / "feed.xml").getroot()
    assert len(feed.findall(f"{ATOM}entry")) == 2
