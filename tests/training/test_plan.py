"""Plans: what may be written, what may change, and the learning rate that follows."""

from __future__ import annotations

import pytest

from hyflash_bench.drafters.networks.block import BlockConfig
from hyflash_bench.errors import SpecError
from hyflash_bench.training.plan import TrainingPlan, split_drafters
from hyflash_bench.training.schedule import learning_rate


def _plan(**values):
    return TrainingPlan.parse({"corpus": "corpus", **values})


def test_a_list_of_drafters_keeps_options_with_their_drafter():
    texts = ["hyflash,full-context:num_layers=1,intermediate_size=64,medusa", "window:window=32,taps=[1,2]"]
    assert split_drafters(texts) == [
        "hyflash",
        "full-context:num_layers=1,intermediate_size=64",
        "medusa",
        "window:window=32,taps=[1,2]",
    ]


def test_a_plan_survives_being_written_down():
    lists = {"name": "hyflash", "options": {"half_lives": [8, 4096], "label": "slow"}}
    plan = _plan(drafters=["hyflash:num_layers=3", "eagle", lists], roles=[2, 4], ema=0.9)
    assert TrainingPlan.parse(plan.to_mapping()) == plan


def test_only_where_and_how_long_may_change():
    plan = _plan()
    assert plan.differences(_plan(steps=9, max_minutes=5, backend="cuda", save_every_s=1)) == {}
    assert plan.differences(_plan(learning_rate=0.5)) == {"learning_rate": (0.0003, 0.5)}


def test_recipes_that_call_the_backend_device_are_read():
    assert _plan(device="cuda:1") == _plan(backend="cuda:1")


def test_unknown_keys_and_bad_values_are_named():
    with pytest.raises(SpecError, match="did you mean 'steps'"):
        _plan(stepz=3)
    with pytest.raises(SpecError, match="max_segment_tokens 100 is below segment_tokens 200"):
        _plan(segment_tokens=200, max_segment_tokens=100)
    with pytest.raises(SpecError, match="roles"):
        _plan(roles=[7])
    with pytest.raises(SpecError, match="name one with init_from"):
        _plan(init_without=["copying"])


@pytest.mark.parametrize("decay", ["wsd", "cosine", "linear"])
def test_the_rate_rises_to_its_height_and_falls_to_almost_nothing(decay: str):
    plan = _plan(steps=100, decay=decay, warmup_share=0.1, decay_share=0.2, learning_rate=1.0)
    rates = [learning_rate(plan, step) for step in range(100)]
    assert rates[:10] == sorted(rates[:10])
    assert max(rates) == pytest.approx(1.0)
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert 0 < rates[-1] < 0.06


def test_with_wsd_more_steps_change_nothing_before_the_decay():
    short, long = _plan(steps=100, warmup_share=0), _plan(steps=200, warmup_share=0)
    assert [learning_rate(short, step) for step in range(75)] == [
        learning_rate(long, step) for step in range(75)
    ]


@pytest.mark.parametrize(
    ("drafters", "rows"),
    [
        (["hyflash"], 96),
        (["full-context", "medusa"], 96),  # alone, they are fed as beside hyflash
        (["hyflash:window=128", "hyflash:window=16,chunk=8"], 160),
        (["memory-only:chunk=48"], 48),
        (["hyflash:window=8,chunk=8", "window:window=500"], 16),
    ],
)
def test_anchors_are_deep_where_they_lie_behind_window_and_chunk(drafters: list[str], rows: int):
    plan = _plan(drafters=drafters)
    assert plan.memory_rows == rows
    assert _plan(drafters=drafters, memory_rows=7).memory_rows == 7


def test_the_window_assumed_is_that_of_the_networks():
    usual = {name: BlockConfig.model_fields[name].default for name in ("window", "chunk")}
    assert _plan(drafters=["hyflash"]).memory_rows == usual["window"] + usual["chunk"]
