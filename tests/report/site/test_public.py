"""What leaves the machine: no name of a person, a machine or a folder, unless asked for."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest

from hyflash_bench.report.site import publish
from tests.report.sites import tiny_run
from tests.results.factory import DRAFTERS, FakeDrafter

PRIVATE = {
    "drafters": [DRAFTERS[0], FakeDrafter("/home/ada/own.py:Mine", 8, keep=0.6, draft_s=0.001)],
    "command": ["hyflash-bench", "run", "--output-path", "/home/ada/out"],
    "target": {"name": "/home/ada/models/tiny", "path": "/home/ada/models"},
    "environment": {"hostname": "adas-laptop", "user": "ada", "cwd": "/home/ada", "cpu": "fast"},
    "resolved": {"target": "/home/ada/models/tiny"},
}


def _everything(site: Path) -> str:
    """Texts of all files; tables as CSV."""
    kinds = {".html", ".json", ".csv", ".xml"}
    texts = [path.read_text(encoding="utf-8") for path in site.rglob("*") if path.suffix in kinds]
    tables = [pd.read_parquet(path).to_csv() for path in site.rglob("*.parquet")]
    return "\n".join([*texts, *tables])


def test_no_person_machine_or_folder_is_named_unless_asked_for(tmp_path: Path) -> None:
    """In pages, summaries, feeds and tables alike."""
    run = tiny_run(tmp_path / "run", 1, **PRIVATE)
    publish(run, tmp_path / "site")
    text = _everything(tmp_path / "site")

    assert not re.search(r"\bada\b|adas-laptop", text)
    assert str(tmp_path) not in text
    assert "own.py:Mine" in text


@pytest.mark.usefixtures("quick_pages")
def test_asked_for_it_tells_all_in_the_place_of_the_other(tmp_path: Path) -> None:
    run = tiny_run(tmp_path / "run", 1, **PRIVATE)
    publish(run, tmp_path / "site")
    publish(run, tmp_path / "site", include_host=True)

    assert "adas-laptop" in _everything(tmp_path / "site")
    assert len(list((tmp_path / "site" / "runs").iterdir())) == 1
