"""The system's Chromium and axe-core for tests that load pages, or why they are not there."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from hyflash_bench.data import cache_folder

__all__ = ["NO_AXE", "NO_CHROMIUM", "axe_path", "chromium_path", "serious_violations"]

NO_CHROMIUM = "no Chromium: apt-get install chromium, or name one in HYFLASH_BENCH_CHROMIUM"
NO_AXE = "no axe-core: npm pack axe-core@4.14.1, and name its axe.min.js in HYFLASH_BENCH_AXE"


def chromium_path() -> str | None:
    """The program, from ``HYFLASH_BENCH_CHROMIUM`` or the path."""
    names = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
    given = os.environ.get("HYFLASH_BENCH_CHROMIUM")
    return shutil.which(given) if given else next(filter(None, map(shutil.which, names)), None)


def axe_path() -> Path | None:
    """The script, from ``HYFLASH_BENCH_AXE`` or the cache that ``.ci/run`` fills."""
    given = os.environ.get("HYFLASH_BENCH_AXE")
    path = Path(given) if given else cache_folder() / "axe-core-4.14.1.min.js"
    return path if path.is_file() else None


def serious_violations(tab: Any) -> list[str]:
    """What axe-core finds serious or critical in a page; without axe-core, the test is skipped."""
    axe = axe_path()
    if axe is None:
        pytest.skip(NO_AXE)
    tab.evaluate(axe.read_text(encoding="utf-8"))
    found = tab.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
    return [
        f"{one['id']}: {one['help']} ({len(one['nodes'])}): {one['nodes'][0]['html'][:200]}"
        for one in found
        if one["impact"] in ("serious", "critical")
    ]
