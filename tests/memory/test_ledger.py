"""Live tensors and closed formulas say the same, for every drafter, cache and pass."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from hyflash_bench.drafters import Drafter, Features, Requires
from hyflash_bench.drafters.base import Held, bytes_by_kind
from hyflash_bench.memory.ledger import cache_difference, formula_difference, held_by, ledger_of
from hyflash_bench.memory.ledger_totals import TargetLedger
from hyflash_bench.memory.lookup import read_shape
from hyflash_bench.registry import can_shrink, drafter_names, keeps_kv, resolve_drafter
from hyflash_bench.spec.drafter import DrafterSpec
from hyflash_bench.spec.target import TargetSpec
from hyflash_bench.targets.load import load_target
from hyflash_bench.targets.target import Target
from tests.drafters.fakes import sampler
from tests.memory.every_drafter import COPYING, SPECS, home_of, loaded, target_at

DEPENDS_ON_TEXT = ("prompt-lookup", "suffix", "suffix:tree=true", "scripted")


@pytest.fixture
def target(tiny_target: Path) -> Target:
    return target_at(tiny_target)


def features_of(requires: Requires, count: int, target: Target) -> Features:
    rows = torch.randn(count, target.info.hidden_size)
    logits = torch.randn(count, target.info.vocab_size) if requires.logits else None
    return Features(dict.fromkeys(requires.taps, rows), rows if requires.last_hidden else None, logits)


def observe(drafter: Drafter, count: int, target: Target) -> None:
    tokens = torch.randint(3, target.info.vocab_size, (count,))
    drafter.observe(tokens, features_of(drafter.requires, count, target))


def test_every_registered_drafter_is_looked_at() -> None:
    assert {DrafterSpec.from_text(text).name for text in SPECS} == set(drafter_names())


@pytest.mark.parametrize(
    ("text", "copying"), [*((text, False) for text in SPECS), *((text, True) for text in COPYING)]
)
def test_tensors_and_formula_agree_whatever_is_accepted(
    text: str, copying: bool, target: Target, tmp_path_factory: pytest.TempPathFactory
) -> None:
    torch.manual_seed(1)
    target = home_of(text, target)
    drafter = loaded(text, target, tmp_path_factory.getbasetemp() / "networks", copying=copying)
    for prompt in (1, 40, 300):
        drafter.reset()
        observe(drafter, prompt, target)
        context = prompt
        for committed in torch.randint(1, 6, (12,)).tolist():
            drafter.draft(5, 4, sampler())
            observe(drafter, committed, target)
            context += committed
            held = held_by(drafter)
            difference = formula_difference(drafter, held, context)
            assert difference == (None if text in DEPENDS_ON_TEXT else 0), (held, context)


@pytest.mark.parametrize("kv_dtype", ["float32", "bfloat16", "int8"])
def test_a_cache_holds_what_its_tokens_are_said_to_take(kv_dtype: str, tiny_target: Path) -> None:
    target = load_target(TargetSpec(target=str(tiny_target), kv_dtype=kv_dtype))
    cache = target.new_cache(37)
    assert cache_difference(cache, target.info.kv_bytes_per_token) == 0
    assert cache_difference(cache, target.info.kv_bytes_per_token + 1) == -cache.num_slots


def test_a_shared_storage_counts_once() -> None:
    whole = torch.zeros(8, 4)
    views = [Held("kv", whole), Held("kv", whole[:3]), Held("kv", whole.t()), Held("kv", whole, shared=True)]
    assert bytes_by_kind(views) == {"kv": whole.nbytes}


def test_a_target_on_paper_is_the_loaded_one(target: Target, tiny_target: Path) -> None:
    shape = read_shape(str(tiny_target))
    on_paper, live = TargetLedger.of(shape, bits=32, kv_dtype="float32"), ledger_of(target)
    assert live.weight_bytes == sum({p.data_ptr(): p.nbytes for p in target.model.parameters()}.values())
    assert on_paper.weight_bytes == live.weight_bytes
    assert on_paper.plain_total(500) == live.plain_total(500)


def test_a_pass_is_counted_piece_by_piece(target: Target) -> None:
    ledger, info = ledger_of(target), target.info
    during = ledger.pass_bytes(5, 100, num_features=3, num_committed=2)
    assert during.logits == 5 * info.vocab_size * 4
    assert during.features == 3 * 5 * info.hidden_size * 4
    assert during.rejected_kv == 3 * info.kv_bytes_per_token
    total = ledger.total(102, during, drafter_bytes=7)
    assert total == info.weight_bytes + 102 * info.kv_bytes_per_token + 7 + during.total


@pytest.mark.parametrize(
    ("num_rows", "context", "kv_dtype"),
    [(1, 40, "auto"), (6, 40, "auto"), (6, 900, "auto"), (17, 300, "auto"), (2, 900, "int8")],
)
def test_the_workspace_is_what_a_pass_in_plain_torch_allocates(
    num_rows: int, context: int, kv_dtype: str, tiny_target: Path
) -> None:
    """Allocations are added up as torch reports them; the formula may be somewhat more, never less."""
    target = load_target(TargetSpec(target=str(tiny_target), attention="grouped", kv_dtype=kv_dtype))
    cache = target.new_cache(1024)
    target.prefill(torch.randint(3, target.info.vocab_size, (context,)), cache)
    rows = torch.randint(3, target.info.vocab_size, (num_rows,))
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as measured:
        target.forward(rows, cache)
    results = measured.profiler.kineto_results.events()
    sizes = [(event.start_ns(), event.nbytes()) for event in results if event.name() == "[memory]"]
    held = peak = 0
    for _, size in sorted(sizes, key=lambda one: one[0]):
        held += size
        peak = max(peak, held)
    during = ledger_of(target).pass_bytes(num_rows, context)
    assert 0.6 * during.total <= peak <= during.total


@pytest.mark.parametrize("text", ["full-context", "eagle", "eagle:tree=true", "prompt-lookup", "suffix"])
def test_the_largest_window_within_a_budget(text: str, target: Target, tmp_path: Path) -> None:
    drafter = loaded(text, target, tmp_path)
    least = sum(((drafter.within(0) or drafter).memory_formula(10**9) or {}).values())
    for budget in (least, least + 100_000, least + 1_000_000):
        shrunk = drafter.within(budget)
        assert shrunk is not None
        window, most = shrunk.options.window, sum((shrunk.memory_formula(10**9) or {}).values())
        assert most <= budget
        joint = "," if ":" in text else ":"
        wider = loaded(f"{text}{joint}window={window + 1}", target, tmp_path)
        assert sum((wider.memory_formula(10**9) or {}).values()) > budget
        observe(shrunk, 700, target)
        observe(wider, 700, target)
        assert formula_difference(shrunk, held_by(shrunk), 700) == 0
        assert sum(held_by(shrunk).values()) <= min(most, sum(held_by(wider).values()))
    assert drafter.options.window == 0, "the drafter itself stays as it is"


def test_what_is_said_of_names_is_true_of_their_classes() -> None:
    for name in drafter_names():
        spec = DrafterSpec(name=name)
        found = resolve_drafter(spec)
        assert not keeps_kv(spec) or "kv_dtype" in found.Options.model_fields, name
        assert can_shrink(spec) == (found.within is not Drafter.within), name
