"""The system's Chromium and axe-core for tests that load pages, or why they are not there."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from hyflash_bench.data import cache_folder

__all__ = ["NO_AXE", "NO_CHROMIUM", "axe_path", "chromium_path"]

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
