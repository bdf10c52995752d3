"""Compiled drafters propose what plain ones propose."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from hyflash_bench.drafters import Drafter
from hyflash_bench.drafters.eagle import Eagle
from hyflash_bench.drafters.hyflash import HyFlash
from hyflash_bench.drafters.medusa import Medusa
from hyflash_bench.drafters.networks import compiled
from hyflash_bench.errors import DrafterError
from tests.drafters.fakes import sampler
from tests.drafters.networks.blocks import block
from tests.drafters.networks.small import eagle, features_of, medusa, saved
from tests.drafters.walks import anchors_along, opened
from tests.targets.families import random_tokens

COPYING: dict[str, Any] = {"copy_window": 9, "copy_size": 8}
MAKERS: dict[str, tuple[type, Callable[[], Any]]] = {
    "hyflash": (HyFlash, lambda: block("hyflash, markov", **COPYING)),
    "eagle": (Eagle, lambda: eagle(**COPYING)),
    "medusa": (Medusa, lambda: medusa(**COPYING)),
}
TEXT = random_tokens(40, seed=3)
HAS_COMPILER = any(shutil.which(name) for name in ("g++", "clang++", "cl"))


@pytest.fixture(autouse=True)
def _fresh_compiler() -> None:
    torch.compiler.reset()


def check_equal(name: str, folder: Path, opening: Callable[[type[Drafter], Path], Any]) -> None:
    """A drafter that is opened in a special way, beside a plain one."""
    kind, make = MAKERS[name]
    network = make()
    plain, fast = opened(kind, saved(network, folder)), opening(kind, folder)
    features = features_of(TEXT, network.requires)
    drawn = {"temperature": 1.0}
    for anchor in anchors_along(fast, TEXT, features, 9, [0, 3, 1]):
        plain.reset()
        plain.observe(TEXT[:anchor], features.rows(slice(0, anchor)))
        last, along = int(TEXT[anchor]), TEXT[anchor + 1 : anchor + 5]
        for budget in (8, 2):
            chosen = [drafter.draft(last, budget, sampler()).tokens for drafter in (plain, fast)]
            assert torch.equal(*chosen)
        scored = [drafter.draft(last, 8, sampler(1, **drawn), along) for drafter in (plain, fast)]
        assert torch.allclose(scored[0].probabilities, scored[1].probabilities, atol=1e-5)


@pytest.mark.parametrize("name", MAKERS)
def test_traced_passes_are_the_plain_ones(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "BACKEND", "aot_eager")  # all of the compiler but its code
    check_equal(name, tmp_path, partial(opened, compile=True))


@pytest.mark.skipif(not HAS_COMPILER, reason="torch.compile needs a C++ compiler on CPU")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, of what it imports
@pytest.mark.parametrize("cuda_graphs", [False, True])  # on CPU they are the code they record
def test_compiled_code_drafts_the_same(cuda_graphs: bool, tmp_path: Path) -> None:
    def opening(kind: type[Drafter], folder: Path) -> Any:
        drafter = opened(kind, folder)
        compiled.compile_passes(drafter.network, cuda_graphs=cuda_graphs)
        return drafter

    check_equal("medusa", tmp_path, opening)


def test_graphs_are_refused_where_there_are_none(tmp_path: Path) -> None:
    with pytest.raises(DrafterError, match=r"cuda_graphs=true needs a CUDA device, .* on cpu"):
        opened(Medusa, saved(medusa(), tmp_path), cuda_graphs=True)


def test_what_goes_wrong_in_compiling_is_said_at_loading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("no compiler here")

    monkeypatch.setattr(compiled, "BACKEND", broken)
    folder = saved(medusa(), tmp_path)
    with pytest.raises(DrafterError, match=r"compiling failed: .*no compiler here"):
        opened(Medusa, folder, compile=True)


def test_networks_of_others_are_not_compiled() -> None:
    with pytest.raises(DrafterError, match="trained here"):
        compiled.compile_passes(torch.nn.Linear(2, 2))
