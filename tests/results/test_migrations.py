"""Older schemas: migrated in memory, in order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from hyflash_bench.errors import DataError, UsageError
from hyflash_bench.results import RunWriter, load_run, migrations
from hyflash_bench.results.columns import StepLedger
from hyflash_bench.results.migrations import check_version, migrate
from hyflash_bench.results.records import StepColumns
from tests.results.factory import DRAFTERS, make_run

PARTS = tuple(StepLedger.model_fields)


def migrate_to_1(kind: str, values: dict[str, Any]) -> dict[str, Any]:
    """Undo what :func:`age` does."""
    if kind != "conversation":
        return values
    values = dict(values)
    return {"status": values.pop("state"), **values}


def age(run: Path) -> None:
    """Make a run look as a made-up version 0 would have written it: status was called state."""
    manifest = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(json.dumps({**manifest, "schema_version": 0}))
    lines = (run / "conversations.jsonl").read_text().splitlines()
    old = []
    for line in lines:
        values = json.loads(line)
        old.append(json.dumps({"state": values.pop("status"), **values}) + "\n")
    (run / "conversations.jsonl").write_text("".join(old))


def test_an_old_run_reads_like_a_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(tmp_path / "run", DRAFTERS[:2], num_per_group=1)
    fresh = load_run(run).turns
    age(run)
    monkeypatch.setattr(migrations, "MIGRATIONS", {**migrations.MIGRATIONS, 1: migrate_to_1})
    old = load_run(run)
    assert old.manifest.schema_version == migrations.SCHEMA_VERSION
    pd.testing.assert_frame_equal(old.turns, fresh)
    with pytest.raises(UsageError, match="can be read but not continued"):
        RunWriter(run)


def test_runs_that_call_the_backend_device_are_read(tmp_path: Path) -> None:
    parts = {name: {"device": "cuda:0", "dtype": "float32"} for name in ("request", "resolved", "target")}
    run = load_run(make_run(tmp_path / "run", DRAFTERS[:1], num_per_group=1, schema_version=1, **parts))
    for name in parts:
        assert getattr(run.manifest, name) == {"backend": "cuda:0", "dtype": "float32"}


SUMS = ("drafter_bytes", "pass_bytes", "ledger_bytes")
STORED_THEN = ("target_kv_bytes", "drafter_kv_bytes", "drafter_state_bytes", "drafter_buffer_bytes")


def as_in_schema_2(line: str) -> str:
    """A conversation whose steps have sums in the place of some parts of the ledger."""
    record = json.loads(line)
    for turn in record["turns"]:
        steps = StepColumns.model_validate(turn["steps"])
        old = {name: getattr(steps, name) for name in StepColumns.model_fields if name not in PARTS}
        turn["steps"] = old | {name: getattr(steps, name) for name in (*STORED_THEN, *SUMS)}
        turn["memory"] |= {
            part: max(getattr(steps, f"{part}_bytes"), default=0) for part in ("features", "logits")
        }
    return json.dumps(record) + "\n"


def test_sums_that_schema_2_stored_are_taken_apart(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", DRAFTERS, num_per_group=1)
    fresh = load_run(run).steps
    lines = (run / "conversations.jsonl").read_text().splitlines()
    (run / "conversations.jsonl").write_text("".join(map(as_in_schema_2, lines)))
    manifest = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(json.dumps({**manifest, "schema_version": 2}))
    pd.testing.assert_frame_equal(load_run(run).steps, fresh)


def test_a_turn_whose_drafts_a_policy_changed_stays_whole(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", DRAFTERS[1:2], num_per_group=1)
    record = json.loads(as_in_schema_2((run / "conversations.jsonl").read_text().splitlines()[0]))
    steps = migrate("conversation", record | {"policy_turn": 0}, 2)["turns"][0]["steps"]
    assert not {"logits_bytes", *SUMS} & set(steps)
    damaged = {"turns": [{"steps": 3}, None]}
    assert migrate("conversation", damaged, 2) == damaged, "the reader says what is wrong with it"


def test_a_schema_without_a_way_here_is_refused(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", DRAFTERS[:1], num_per_group=1, schema_version=0)
    with pytest.raises(DataError, match="no migration to 1"):
        load_run(run)


def test_migrations_are_applied_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    def step(name: str) -> migrations.Migration:
        return lambda kind, values: {**values, "way": [*values.get("way", []), name]}

    monkeypatch.setattr(migrations, "SCHEMA_VERSION", 3)
    monkeypatch.setattr(migrations, "MIGRATIONS", {3: step("three"), 2: step("two"), 1: step("one")})
    assert migrate("trace", {}, 1) == {"way": ["two", "three"]}
    assert migrate("manifest", {}, 3) == {"schema_version": 3}


@pytest.mark.parametrize("version", [None, "1", 1.5, True])
def test_nonsense_versions_are_refused(version: object) -> None:
    with pytest.raises(DataError, match="not a whole number"):
        check_version(version, "here")
