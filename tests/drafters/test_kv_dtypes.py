"""Drafters with keys and values in every precision: true bytes, and drafts as near as that allows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest
import torch

from hyflash_bench.drafters.base import Drafter, bytes_by_kind
from hyflash_bench.drafters.eagle import Eagle
from hyflash_bench.drafters.full_context import FullContext
from hyflash_bench.drafters.hyflash import HyFlash
from hyflash_bench.drafters.memory_only import MemoryOnly
from hyflash_bench.drafters.networks.batch import Batch
from hyflash_bench.drafters.small_model import SmallModel
from hyflash_bench.drafters.window import Window
from hyflash_bench.errors import HyFlashError, UsageError
from hyflash_bench.footprint import KVDtype, kv_row_bytes
from hyflash_bench.kv import same_step
from hyflash_bench.memory.catalog import form_of
from hyflash_bench.memory.shapes import shape_of
from hyflash_bench.registry import build_drafter
from hyflash_bench.spec.drafter import DrafterSpec
from hyflash_bench.spec.target import TargetSpec
from hyflash_bench.targets.load import load_target
from tests.drafters.fakes import sampler
from tests.drafters.networks.blocks import block
from tests.drafters.networks.small import NUM_SLOTS, context, eagle, features_of, saved, taught
from tests.drafters.walks import anchors_along, check_lossless, loaded, opened, own_answers
from tests.targets.families import make_model, random_tokens


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


KV_DTYPES: tuple[KVDtype, ...] = get_args(KVDtype)
LOSSY: tuple[KVDtype, ...] = ("bfloat16", "float16", "int8")
TEXT = random_tokens(60, seed=3)
PATTERN = [0, 3, 1, 4, 2, 0, 4, 4, 1, 0, 0, 2, 3]

CASES: dict[str, tuple[type[Drafter], Any, dict[str, Any]]] = {
    "hyflash": (HyFlash, block, {}),
    "hyflash, 2 layers": (HyFlash, lambda: block("hyflash, 2 layers"), {}),
    "window": (Window, lambda: block("window, 2 layers"), {}),
    "memory-only": (MemoryOnly, lambda: block("memory-only"), {}),
    "full-context": (FullContext, lambda: block("full-context, 2 layers, markov"), {}),
    "full-context, cut": (FullContext, lambda: block("full-context"), {"window": 9}),
    "eagle": (Eagle, eagle, {}),
    "eagle, tree": (Eagle, eagle, {"tree": True, "top_k": 3, "depth": 3}),
}
BLOCKS = [name for name in CASES if not name.startswith("eagle")]


def crossed(cases: list[str], kv_dtypes: tuple[str, ...], *, each: str = "int8") -> list[tuple[str, str]]:
    """Every case with one precision and the first with all: they enter through one class."""
    return [*((case, each) for case in cases), *((cases[0], kv) for kv in kv_dtypes if kv != each)]


def make(case: str, folder: Path, **options: Any) -> Any:
    kind, network, own = CASES[case]
    return loaded(kind, network(), folder, **own, **options)


# Bytes


@pytest.mark.parametrize(("case", "kv_dtype"), crossed([*CASES], KV_DTYPES))
def test_bytes_are_the_formulas_live_and_on_paper(case: str, kv_dtype: KVDtype, tmp_path: Path) -> None:
    drafter = make(case, tmp_path, kv_dtype=kv_dtype)
    options = {"checkpoint": str(tmp_path), "kv_dtype": kv_dtype, **CASES[case][2]}
    form = form_of(
        DrafterSpec(name=drafter.name, options=options),
        shape_of(make_model("llama").config.to_dict(), "tiny"),
    )
    assert form is not None
    features = features_of(TEXT, drafter.requires)
    for part in range(5):  # past a block of rows
        observe_again(drafter, features, part)
        drafter.draft(5, 8, sampler())
        held = bytes_by_kind(drafter.memory())
        assert held == drafter.memory_formula((part + 1) * len(TEXT))
        assert held == {
            kind: size for kind, size in form.held((part + 1) * len(TEXT)).items() if kind in held
        }


def observe_again(drafter: Drafter, features: Any, part: int) -> None:
    """The text once more behind what was observed, in steps of many sizes."""
    start = 0
    for accepted in [*PATTERN[part:], *PATTERN[:part], len(TEXT)]:
        step = slice(start, min(start + 1 + accepted, len(TEXT)))
        drafter.observe(TEXT[step], features.rows(step))
        start = step.stop


@pytest.mark.parametrize("case", CASES)
def test_only_keys_and_values_change_their_bytes(case: str, tmp_path: Path) -> None:
    network = CASES[case][1]()
    heads, size = network.config.target.num_kv_heads, network.config.target.head_dim
    full, *others = (make(case, tmp_path, kv_dtype=kv_dtype) for kv_dtype in KV_DTYPES)
    before = full.memory_formula(300)
    for kv_dtype, drafter in zip(LOSSY, others, strict=True):
        after = drafter.memory_formula(300)
        share = kv_row_bytes(heads, size, kv_dtype) / kv_row_bytes(heads, size, "float32")
        assert after == before | {"kv": before["kv"] * share}
        drafter.observe(TEXT, features_of(TEXT, drafter.requires))
        states = [item.tensor for item in drafter.memory() if item.kind == "state"]
        assert all(state.dtype == torch.float32 for state in states)


def test_auto_is_the_precision_of_the_network(tmp_path: Path) -> None:
    drafter = make("full-context", tmp_path)
    assert drafter.memory_formula(300) == make("full-context", tmp_path, kv_dtype="float32").memory_formula(
        300
    )


def test_a_precision_that_there_is_not_is_refused() -> None:
    shape = shape_of(make_model("llama").config.to_dict(), "tiny")
    spec = DrafterSpec(name="full-context", options={"kv_dtype": "int4"})
    with pytest.raises(UsageError, match=r"kv_dtype must be auto, float32 or .*, not 'int4'"):
        form_of(spec, shape)
    with pytest.raises(HyFlashError, match="kv_dtype"):
        build_drafter(spec)


# Drafts


def tolerance(kv_dtype: KVDtype, expected: torch.Tensor) -> float:
    """Some steps of the precision, of logits as large as these."""
    lossy = 0.0 if kv_dtype == "float32" else 4 * torch.finfo(same_step(kv_dtype)).eps
    return (1e-5 + lossy) * max(1.0, float(expected.abs().max()))


@pytest.mark.parametrize(("case", "kv_dtype"), crossed(BLOCKS[:-1], KV_DTYPES))
@torch.inference_mode()
def test_blocks_are_drafted_as_trained(case: str, kv_dtype: KVDtype, tmp_path: Path) -> None:
    drafter = make(case, tmp_path, kv_dtype=kv_dtype)
    features = features_of(TEXT, drafter.requires)
    for anchor in anchors_along(drafter, TEXT, features, 5, PATTERN):
        found = drafter.logits(int(TEXT[anchor]), TEXT[anchor + 1 : anchor + 1 + NUM_SLOTS])
        expected = drafter.network(Batch(TEXT, features, (0,), torch.tensor([anchor])))[0, : len(found)]
        if len(found):
            assert float((found - expected).abs().max()) <= tolerance(kv_dtype, expected)


@pytest.mark.parametrize("kv_dtype", KV_DTYPES)
@torch.inference_mode()
def test_chains_are_drafted_as_trained(kv_dtype: KVDtype, tmp_path: Path) -> None:
    drafter = make("eagle", tmp_path, kv_dtype=kv_dtype)
    features = features_of(TEXT, drafter.requires)
    trained = drafter.network(Batch(TEXT, features, (0,), torch.arange(1, len(TEXT))))
    for anchor in anchors_along(drafter, TEXT, features, 7, PATTERN):
        g = drafter._last
        for slot, token in enumerate(TEXT[anchor : anchor + NUM_SLOTS].tolist()):
            g = drafter._run_ahead([token], g, slot, slot)
            gap = (drafter.network.head(g)[0] - trained[anchor - 1, slot]).abs().max()
            assert float(gap) <= tolerance(kv_dtype, trained)


@cache
def knowing(case: str) -> Any:
    """A network that knows the target's answers by heart."""
    network = CASES[case][1]()
    return taught(network, own_answers(network.requires))


@pytest.mark.parametrize(
    ("case", "kv_dtype"), crossed(["full-context", "hyflash", "eagle", "eagle, tree"], LOSSY)
)
def test_live_is_lossless_and_replay_counts_the_same(case: str, kv_dtype: KVDtype, tmp_path: Path) -> None:
    kind, _, own = CASES[case]
    network = knowing(case.partition(",")[0])
    check_lossless(loaded(kind, network, tmp_path, kv_dtype=kv_dtype, **own))


@pytest.mark.parametrize(("case", "kv_dtype"), crossed([*CASES], ("auto", "float32", "int8")))
@torch.inference_mode()
def test_a_bfloat16_target_takes_any_of_them(case: str, kv_dtype: str, tmp_path: Path) -> None:
    kind, network, own = CASES[case]
    folder = saved(network(), tmp_path)
    full, half = (
        opened(kind, folder, **own),
        kind(kind.Options(checkpoint=str(folder), kv_dtype=kv_dtype, **own)),
    )
    half.load(replace(context(), dtype=torch.bfloat16))
    features = features_of(TEXT, full.requires)
    for drafter in (full, half):
        for start in range(0, 59, 7):
            rows = slice(start, min(start + 7, 59))
            drafter.observe(TEXT[rows], features.rows(rows))
    assert bytes_by_kind(half.memory()) == half.memory_formula(59)
    drafts = [drafter.draft(int(TEXT[59]), 8, sampler(temperature=1.0)) for drafter in (full, half)]
    assert len(drafts[0]) == len(drafts[1]) > 0
    if case in BLOCKS:
        logits = [drafter.logits(int(TEXT[59]), TEXT[:NUM_SLOTS]).float() for drafter in (full, half)]
        assert float(torch.cosine_similarity(*logits).min()) > 0.99


# Another model


@pytest.mark.parametrize("kv_dtype", KV_DTYPES)
def test_a_small_model_keeps_its_cache_in_any_of_them(kv_dtype: KVDtype, tiny_target: Path) -> None:
    target = load_target(TargetSpec(target=str(tiny_target)))
    options = SmallModel.Options(model=str(tiny_target), kv_dtype=kv_dtype)
    drafter = SmallModel(options)
    drafter.load(target.load_context())
    tokens = torch.arange(600) % target.info.vocab_size
    drafter.observe(tokens[:500], None)  # type: ignore[arg-type]
    drafter.draft(5, 4, sampler())
    drafter.observe(tokens[500:], None)  # type: ignore[arg-type]

    assert bytes_by_kind(drafter.memory()) == drafter.memory_formula(600)
    assert drafter.memory_formula(600)["kv"] == 1024 * 2 * kv_row_bytes(2, 16, kv_dtype)
    own = target.new_cache(610)
    target.prefill(tokens, own)
    exact = target.forward(torch.tensor([5]), own).logits[0]
    proposed = int(drafter.draft(5, 1, sampler()).tokens)
    step = torch.finfo(same_step(kv_dtype)).eps
    assert float(exact[proposed]) >= float(exact.max()) - 20 * step * float(exact.abs().max())
