"""The runs that the repository shows: their folders, their site and a picture, from finished runs.

    python benchmarks/reference.py results/RUN [results/ANOTHER ...]

Writes ``results/reference`` (the runs' lines, without names of machines and folders), ``reports/reference``
(the site that ``hyflash-bench publish`` makes of them) and ``docs/report.png``, of the first one's report,
and says how big they are.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from hyflash_bench.atomic import write_text
from hyflash_bench.report.site.public import public_manifest, public_text
from hyflash_bench.results import load_run

ROOT = Path(__file__).parents[1]
RUNS, SITE, PICTURE = ROOT / "results/reference", ROOT / "reports/reference", ROOT / "docs/report.png"
TITLE = "HyFlash Bench: reference runs"
LIMITS = {RUNS: 40_000_000, SITE: 28_000_000, PICTURE: 500_000}
"""Bytes that each may take in the repository: git packs runs to a fifth; plotly.js is 4.8 MB of the site."""
SEEN_ARE_DRAWN = """
() => [...document.querySelectorAll(".plot")]
  .filter((one) => one.getBoundingClientRect().top < innerHeight)
  .every((one) => one.dataset.drawn)
"""
WINDOW = {"width": 1360, "height": 1240}


def main() -> None:
    """Copy, publish, take a picture, weigh."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", help="Folders of finished runs.")
    runs = parser.parse_args().runs
    if RUNS.exists():
        shutil.rmtree(RUNS)
    copies = [copy(run) for run in runs]
    publish(copies)
    take_picture(copies[0])
    sys.exit(max(map(weigh, LIMITS)))


def copy(folder: Path) -> Path:
    """Take over what a run is read from; tables are made from it again."""
    run = load_run(folder)
    if run.manifest.finished_at is None:
        sys.exit(f"error: {folder} is not finished. Say its `hyflash-bench run` command again, then this.")
    lines = (folder / "conversations.jsonl").read_text(encoding="utf-8").splitlines()
    manifest = public_manifest(run.manifest, include_host=False)
    if manifest[
        "environment"
    ]:  # says nothing of the machine but that it was busy, and the page warns of that
        manifest["environment"]["busy_share"] = run.manifest.environment.get("busy_share")
    traces = (folder / "traces.jsonl").read_text(encoding="utf-8")
    kept = RUNS / folder.resolve().name
    kept.mkdir(parents=True)
    write_text(kept / "manifest.json", json.dumps(manifest, indent=2, ensure_ascii=False) + "\n")
    write_text(kept / "traces.jsonl", traces)
    write_text(kept / "conversations.jsonl", "".join(f"{without_folders(line)}\n" for line in lines))
    return kept


def without_folders(line: str) -> str:
    """A conversation whose message names no folder; any other stays byte for byte."""
    values = json.loads(line)
    message = values.get("message")
    if not message or public_text(message, include_host=False) == message:
        return line
    return json.dumps({**values, "message": public_text(message, include_host=False)})


def publish(runs: list[Path]) -> None:
    """Make the site anew by the command that users have."""
    if SITE.exists():
        shutil.rmtree(SITE)
    command = [sys.executable, "-m", "hyflash_bench", "publish", *runs, "--to", SITE, "--title", TITLE]
    subprocess.run(list(map(str, command)), check=True)


def take_picture(run: Path) -> None:
    """The top of the run's page as a wide screen shows it."""
    from playwright.sync_api import sync_playwright

    from tests.report.browser import NO_CHROMIUM, chromium_path

    chromium = chromium_path()
    if chromium is None:
        sys.exit(f"error: {NO_CHROMIUM}")
    PICTURE.parent.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        tab = browser.new_page(viewport=WINDOW, color_scheme="light")
        tab.goto(next(SITE.glob(f"runs/{run.name}-*/index.html")).as_uri())
        tab.wait_for_selector("html[data-ready]")
        tab.wait_for_function(SEEN_ARE_DRAWN, timeout=120_000)
        tab.screenshot(path=PICTURE)
        browser.close()


def weigh(path: Path) -> int:
    """Say how big something is, and 1 where that is too much."""
    files = [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
    size = sum(each.stat().st_size for each in files)
    print(f"{path.relative_to(ROOT)}: {size / 1e6:.1f} MB (at most {LIMITS[path] / 1e6:.1f} MB)")
    return int(size > LIMITS[path])


if __name__ == "__main__":
    main()
