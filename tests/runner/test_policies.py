"""Caps, devices and policies in a whole run, in one go or added later."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from hyflash_bench.data import data_folder
from hyflash_bench.results.reader import load_run
from hyflash_bench.runner.run import run
from tests.runner.conftest import write_suite
from tests.runner.requests import request_for, tables

PARTS = [
    *("target_weights_bytes", "target_kv_bytes", "drafter_weights_bytes", "drafter_kv_bytes"),
    *("drafter_state_bytes", "drafter_buffer_bytes", "features_bytes", "logits_bytes"),
    *("workspace_bytes", "rejected_kv_bytes"),
]
LOOKUP = "prompt-lookup:num_draft_tokens=4"


def device_with(num_bytes: int, folder: Path) -> Path:
    """A profile of one's own whose usable memory is just so much."""
    profile = yaml.safe_load((data_folder("devices") / "raspberry-pi-5-8gb.yaml").read_text())
    profile |= {"name": "tight", "memory_usable": {**profile["memory_usable"], "value": f"{num_bytes}B"}}
    path = folder / "tight.yaml"
    path.write_text(yaml.safe_dump(profile))
    return path


@pytest.fixture(scope="module")
def runs(tiny_target: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One run without caps that gets them later, and one that was asked for all of it at once."""
    base = tmp_path_factory.mktemp("policies")
    asked = {"drafters": ["autoregressive", LOOKUP], "temperature": 0.0, "limit": 1, "mode": "both"}
    suite = write_suite(base)
    run(request_for(tiny_target, suite, **asked), output_path=base / "grown")
    turns = load_run(base / "grown").turns
    peak = int(turns[turns["drafter"] == LOOKUP]["ledger_bytes"].max())
    device = device_with(peak - 1, base)
    more = {"memory_caps": [f"{peak}B"], "devices": [str(device)], "cap_policy": "no-draft"}
    for name in ("grown", "whole"):
        run(request_for(tiny_target, suite, **asked, **more), output_path=base / name)
    return {"peak": peak, "grown": base / "grown", "whole": base / "whole"}


def test_caps_added_later_are_as_if_asked_for_at_once(runs):
    assert tables(runs["grown"]) == tables(runs["whole"])
    assert len(load_run(runs["grown"]).replies) == 1, "no conversation was traced again"


def test_the_moment_of_a_policy_is_in_the_table(runs):
    loaded = load_run(runs["whole"])
    conversations = loaded.conversations
    lookup = conversations[conversations["drafter"] == LOOKUP]
    fits = lookup[lookup["memory_cap_bytes"] == runs["peak"]]
    tight = lookup[lookup["device"] == "tight"]
    assert list(fits["status"]) == list(tight["status"]) == ["ok"]
    assert list(tight["memory_cap_bytes"]) == [runs["peak"] - 1]
    assert fits[["policy_turn", "policy_step", "policy_context"]].isna().all(axis=None)
    assert tight[["policy_turn", "policy_step", "policy_context"]].notna().all(axis=None)
    assert set(tight["cap_policy"]) == {"no-draft"}
    assert [device["name"] for device in loaded.manifest.devices] == ["tight"]


def test_turns_say_what_a_token_of_context_costs_and_how_far_the_ledger_is_from_what_is_measured(runs):
    turns = load_run(runs["whole"]).turns
    uncapped = turns[turns["memory_cap_bytes"].isna()]
    info = load_run(runs["whole"]).manifest.target
    assert set(uncapped["target_bytes_per_context_token"]) == {info["kv_bytes_per_token"]}
    lookup = uncapped[uncapped["drafter"] == LOOKUP]
    assert (lookup["drafter_bytes_per_context_token"] > 0).all()
    assert set(uncapped[uncapped["is_reference"]]["drafter_bytes_per_context_token"]) == {0.0}
    gap = uncapped["measured_peak_bytes"] - uncapped["ledger_bytes"]
    assert (uncapped["unexplained_bytes"] == gap).all()
    assert (gap > 0).all(), "the process holds the interpreter and its libraries too"
    assert set(uncapped[uncapped["is_reference"]]["formula_difference_bytes"]) == {0}


def test_steps_hold_the_whole_ledger(runs):
    steps = load_run(runs["whole"]).steps
    assert steps[[*PARTS, "ledger_bytes"]].notna().all(axis=None)
    assert (steps["ledger_bytes"] == steps[PARTS].sum(axis=1)).all()
    assert set(steps["mode"]) == {"replay", "live"}
    tight = steps[steps["device"] == "tight"]
    assert (tight["ledger_bytes"] <= runs["peak"] - 1).all()
    free = steps[steps["memory_cap_bytes"].isna() & (steps["drafter"] == LOOKUP)]
    assert free["ledger_bytes"].max() == runs["peak"]


def test_the_trace_says_what_plain_decoding_needs_at_every_step(runs):
    loaded = load_run(runs["whole"])
    keys = ["item_id", "turn", "step"]
    parts = ["target_weights_bytes", "target_kv_bytes", "logits_bytes", "workspace_bytes"]
    shown = [*keys, "context_length", *parts, "ledger_bytes"]
    said = loaded.trace_steps.sort_values(keys)
    assert (said["ledger_bytes"] == said[parts].sum(axis=1)).all()
    steps = loaded.steps
    alone = steps[(steps["drafter"] == "autoregressive") & steps["memory_cap_bytes"].isna()]
    for mode in ("replay", "live"):
        plain = alone[alone["mode"] == mode].sort_values(keys)
        assert said[shown].to_numpy().tolist() == plain[shown].to_numpy().tolist(), mode


def test_the_trace_says_what_it_keeps_for_drafters(runs):
    loaded = load_run(runs["whole"])
    turns = loaded.memory
    held = turns[(turns["owner"] == "trace") & (turns["memory_kind"] == "features")]["bytes"]
    assert set(held) == {loaded.trace_steps["features_held_bytes"].max()}


def test_the_trace_says_what_plain_decoding_needs(runs):
    loaded = load_run(runs["whole"])
    turns = loaded.turns
    plain = turns[turns["is_reference"] & turns["memory_cap_bytes"].isna() & (turns["mode"] == "replay")]
    assert sorted(loaded.traces["ledger_bytes"]) == sorted(plain["ledger_bytes"])
