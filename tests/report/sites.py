"""Sites for tests: tiny runs, and what is in a site's files."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from hyflash_bench.report.sections import Numbers, Section
from hyflash_bench.report.sections.acceptance import acceptance
from hyflash_bench.report.sections.headline import headline
from hyflash_bench.report.sections.outcomes import claims
from hyflash_bench.results.reader import Run, load_run
from tests.results.factory import DRAFTERS, make_run

__all__ = [
    "ATOM",
    "PageParser",
    "broken_links",
    "contents",
    "figures_of",
    "first_sections",
    "index_of",
    "stamps",
    "tiny_run",
]

ATOM = "{http://www.w3.org/2005/Atom}"


def tiny_run(folder: Path, day: int, **changes: Any) -> Run:
    """A run of two drafters with one conversation a group, too small for intervals."""
    settings: dict[str, Any] = {
        "drafters": DRAFTERS[:2],
        "num_per_group": 1,
        "seed": day,
        "run_id": f"run-{day}",
        "created_at": f"2026-11-{day:02}T12:00:00Z",
        "finished_at": f"2026-11-{day:02}T13:00:00Z",
    }
    return load_run(make_run(folder, **{**settings, **changes}))


def first_sections(numbers: Numbers) -> list[Section]:
    """A table, a figure and the claims of a report; the rest takes most of the time."""
    made = [make(numbers) for make in (headline, acceptance, claims)]
    return [section for section in made if section is not None]


class PageParser(HTMLParser):
    """Elements and text of a page."""

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

    def values(self, *names: str) -> list[str]:
        """All values of some attributes."""
        return [value for _, attrs in self.tags for name in names if (value := attrs.get(name)) is not None]


def broken_links(site: Path) -> list[str]:
    """Links of any page that lead nowhere, or out of the site."""
    return [
        f"{page.relative_to(site)}: {link}"
        for page in site.rglob("*.html")
        for link in PageParser(page.read_text(encoding="utf-8")).values("href", "src", "data-src")
        if not _leads_somewhere(link, page, site)
    ]


def _leads_somewhere(link: str, page: Path, site: Path) -> bool:
    parts = urlsplit(link)
    if parts.scheme or parts.netloc or parts.path.startswith("/"):
        return False
    place = (page.parent / unquote(parts.path)).resolve() if parts.path else page.resolve()
    if not place.is_relative_to(site.resolve()) or not place.is_file():
        return False
    if not parts.fragment:
        return True
    return parts.fragment in PageParser(place.read_text(encoding="utf-8")).values("id")


def figures_of(page: Path) -> dict[str, Any]:
    """The figures of one of the site's own pages, by id."""
    html = page.read_text(encoding="utf-8")
    _, _, rest = html.partition('<script type="application/json" id="figures">')
    figures: dict[str, Any] = json.loads(rest.partition("</script>")[0])["figures"]
    return figures


def stamps(folder: Path) -> dict[str, tuple[bytes, int, int]]:
    """Content, inode and time of every file: equal only where nothing was written."""
    return {
        path.relative_to(folder).as_posix(): (path.read_bytes(), path.stat().st_ino, path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def contents(site: Path) -> dict[str, bytes]:
    """Every file by name."""
    return {name: content for name, (content, _, _) in stamps(site).items()}


def index_of(site: Path) -> PageParser:
    """The front page."""
    return PageParser((site / "index.html").read_text(encoding="utf-8"))
