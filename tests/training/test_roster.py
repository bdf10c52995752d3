"""Names become networks, and block drafters get equal numbers of parameters."""

from __future__ import annotations

import pytest

from hyflash_bench.drafters.networks.network import TargetShape
from hyflash_bench.errors import SpecError, UnknownName
from hyflash_bench.training.plan import SHIPPED_ROSTER, TrainingPlan
from hyflash_bench.training.roster import ROSTER, enlist, parameter_rows

TARGET = TargetShape(
    name="some",
    weights="w",
    tokenizer="t",
    num_layers=6,
    hidden_size=64,
    intermediate_size=192,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    vocab_size=300,
    norm_eps=1e-5,
    rope_theta=10_000.0,
)


def _enlist(*drafters: str, **values):
    plan = TrainingPlan.parse({"corpus": "c", "drafters": list(drafters), "draft_vocab_size": 100, **values})
    return enlist(plan, TARGET)


def test_every_name_can_be_built():
    for entry in _enlist(*ROSTER):
        network = entry.build()
        assert network.num_parameters() == entry.parameters
        assert network.requires == entry.requires


def test_parameters_are_matched_at_each_depth():
    small = "memory_heads=2,memory_key_dim=8,memory_value_dim=8"
    hybrids = [f"hyflash:{small}", f"hyflash:num_layers=3,{small}"]
    entries = _enlist(*hybrids, "window", "full-context", "full-context:num_layers=3")
    per_unit = 3 * TARGET.hidden_size * 8
    for entry in entries:
        if entry.name != "full-context":
            depth = entry.config.num_layers
            assert abs(entry.parameters - entry.reference) <= depth * per_unit / 2
    hyflash = entries[0]
    assert hyflash.config.intermediate_size % 8 == 0
    assert hyflash.config.intermediate_size < TARGET.intermediate_size
    row = parameter_rows(entries)[0]
    assert row["difference"] == hyflash.parameters - hyflash.reference


def test_a_narrower_full_context_of_the_same_depth_is_the_measure():
    hyflash, full = _enlist("hyflash:num_layers=2", "full-context:num_layers=2,intermediate_size=96")
    assert hyflash.reference == full.parameters


def test_a_width_that_is_asked_for_stays():
    (entry,) = _enlist("hyflash:intermediate_size=40")
    assert entry.config.intermediate_size == 40
    (entry,) = _enlist("hyflash", match="none")
    assert entry.reference is None


def test_labels_are_name_and_depth_and_more_only_where_needed():
    assert [entry.label for entry in _enlist("hyflash:window=8", "medusa")] == ["hyflash-l1", "medusa"]
    both = _enlist("hyflash:window=8", "hyflash:window=16")
    assert [entry.label for entry in both] == ["hyflash-l1-window-8", "hyflash-l1-window-16"]


def test_variants_of_a_kind_have_names_of_their_own():
    slow = "hyflash:label=slow,half_lives=[512,8192]"
    entries = _enlist("hyflash", slow, "hyflash:label=wide,window=128", "window-equal-bytes")
    assert [entry.label for entry in entries] == ["hyflash-l1", "slow", "wide", "window-equal-bytes-l1"]
    assert [entry.usual_label for entry in entries[:3]] == ["hyflash-l1"] * 3
    assert entries[1].config.half_lives == (512, 8192)
    assert entries[2].config.window == 128
    with pytest.raises(SpecError, match=r"slow is given twice\. Keep one, or give each a label"):
        _enlist(slow, "eagle:label=slow")


@pytest.mark.parametrize("label", ["state", "a/b", "..", "plan.yaml", "''"])
def test_labels_that_could_not_name_a_folder_are_refused(label: str):
    with pytest.raises(SpecError, match="Use letters, digits"):
        _enlist(f"eagle:label={label}")


def test_all_drafters_read_the_same_taps():
    assert {entry.config.taps for entry in _enlist("hyflash", "eagle", taps=[1, 4])} == {(1, 4)}
    assert _enlist("eagle")[0].config.taps == (1, 3, 4)


def test_what_cannot_be_trained_is_refused():
    with pytest.raises(UnknownName, match="hyflash"):
        _enlist("hyflsh")
    with pytest.raises(SpecError, match="num_layer"):
        _enlist("hyflash:num_layer=2")
    with pytest.raises(SpecError, match="given twice"):
        _enlist("eagle", "eagle")
    with pytest.raises(SpecError, match="--draft-vocab-size"):
        _enlist("eagle:draft_vocab_size=10")
    with pytest.raises(SpecError, match="attention is what makes window"):
        _enlist("window:attention=full")


def test_the_shipped_roster_has_no_surprises():
    labels = [entry.label for entry in _enlist(*SHIPPED_ROSTER)]
    assert labels == [
        "hyflash-l1",
        "hyflash-l3",
        "full-context-l1",
        "full-context-l3",
        "window-l1",
        "medusa",
        "eagle",
    ]
