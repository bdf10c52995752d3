"""Public checkpoints through the engine: lossless, replay as live, the contract, bytes by formula."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from hyflash_bench.drafters import Drafter
from hyflash_bench.drafters.base import bytes_by_kind
from hyflash_bench.drafters.contract import run_checks
from hyflash_bench.drafters.formats import load_drafter
from hyflash_bench.drafters.networks.batch import Batch
from hyflash_bench.engine.acceptance import depths
from hyflash_bench.errors import DrafterError, SpecError
from tests.drafters.fakes import sampler
from tests.drafters.formats.configs import DFLASH, EAGLE3, MEDUSA
from tests.drafters.formats.published import scaled, tensors_of, write
from tests.drafters.networks.small import context, features_of
from tests.drafters.walks import check_lossless, ground_of, own_answers
from tests.targets.families import VOCAB, random_tokens

EAGLE_1 = "EAGLE-LLaMA3-Instruct-8B"
SLIDING = "DFlash, block size inside, sliding"
TREE = {"tree": True, "top_k": 3, "depth": 3, "total_tokens": 12}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "dflash": ("Qwen3-4B-DFlash-b16", {}),
    "dflash, sliding": (SLIDING, {"num_draft_tokens": 3, "kv_dtype": "bfloat16"}),
    "speculators dflash": ("Qwen3-8B-speculator.dflash", {}),
    "eagle3": ("EAGLE3-LLaMA3.1-Instruct-8B", {}),
    "eagle3, tree": ("EAGLE3-LLaMA3.1-Instruct-8B", TREE),
    "eagle": (EAGLE_1, {"num_draft_tokens": 3}),
    "eagle, tree": (EAGLE_1, TREE),
    "medusa": (MEDUSA, {}),
    "medusa, tree": (MEDUSA, {"tree": True, "tree_nodes": 12}),
}


def fitting(name: str) -> dict[str, Any]:
    """The small checkpoint's configuration, for a target of three layers; two of its own are enough."""
    config = scaled(name)
    layers = config.get("transformer_layer_config", config)
    layers["num_hidden_layers"] = min(2, layers.get("num_hidden_layers", 2))
    if layers.get("layer_types"):
        layers["layer_types"] = layers["layer_types"][:2]
    if "dflash_config" in config:
        config["dflash_config"]["target_layer_ids"] = [0, 1, 2]
        config["num_target_layers"] = 3
    elif name in DFLASH:
        config["aux_hidden_state_layer_ids"] = [1, 2, 3]
    elif name in EAGLE3:
        config["eagle_aux_hidden_state_layer_ids"] = [1, 2, 3]
    return config


def written(folder: Path, name: str) -> Path:
    """As :func:`write`; three layers are read whatever the published one reads."""
    config = fitting(name)
    return write(folder, name, config=config, tensors=tensors_of(name, config))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    return cache(lambda name: written(tmp_path_factory.mktemp("checkpoint"), name))


def knowing(name: str, options: dict[str, Any], folder: Path) -> Any:
    """A drafter whose first token is right along the target's own answers."""
    drafter: Any = load_drafter(folder, context(), **options)
    answers = own_answers(drafter.requires)
    network = drafter.network
    if name == EAGLE_1:  # goes from token and state to the next state, for want of a head of its own
        hidden = answers.features.last_hidden
        inputs = torch.cat([network.embed(answers.tokens[1:]), hidden[:-1]], dim=-1)
        network.fusion.weight.data = solved(inputs, hidden[1:])
        network.fusion.bias.data.zero_()
        network.attention.output.weight.data.zero_()
        network.mlp.down.weight.data.zero_()
        return drafter
    labels = torch.searchsorted(network.head.draft_ids, answers.tokens[2:]).clamp(max=76)
    wanted = torch.nn.functional.one_hot(labels, network.config.draft_vocab_size).float()
    if name == MEDUSA:
        x = answers.features.last_hidden[:-2]
        x = x + torch.nn.functional.silu(x @ network.weight[0, 0].T + network.bias[0, 0])
        wanted = torch.nn.functional.one_hot(answers.tokens[2:], VOCAB).float()
        network.matrices.data[0] = solved(x, wanted)
        return drafter
    network.head.rows = torch.nn.Parameter(
        solved(first_hidden(drafter, answers), wanted), requires_grad=False
    )
    return drafter


def solved(inputs: Tensor, outputs: Tensor) -> Tensor:
    """``W`` of ``inputs @ W.T = outputs``."""
    return (torch.linalg.pinv(inputs.double()) @ outputs.double()).T.float().contiguous()


def first_hidden(drafter: Any, answers: Batch) -> Tensor:
    """What the head sees for the first proposal after each token of a text, ``[T - 2, d]``."""
    first, seen = [], []
    norm = drafter.network.head.norm
    hook = norm.register_forward_hook(lambda _module, _given, out: seen.append(out[:1]))
    for anchor in range(1, len(answers.tokens) - 1):
        drafter.reset()
        drafter.observe(answers.tokens[:anchor], answers.features.rows(slice(0, anchor)))
        seen.clear()
        drafter.draft(int(answers.tokens[anchor]), 1, sampler())
        first.append(seen[0])
    hook.remove()
    drafter.reset()
    return torch.cat(first).clone()


LIVE = [(name, 0.0) for name in VARIANTS] + [(name, 0.1) for name in ("dflash", "eagle3", "medusa")]
CHECKED = ("dflash, sliding", "eagle3, tree", "eagle", "medusa, tree")


@pytest.mark.parametrize(("variant", "temperature"), LIVE)
def test_live_output_is_the_targets_own_and_replay_agrees(
    folder: Callable[[str], Path], variant: str, temperature: float
) -> None:
    name, options = VARIANTS[variant]
    check_lossless(knowing(name, options, folder(name)), temperature)


@pytest.mark.parametrize("variant", CHECKED)
def test_they_keep_the_contract(folder: Callable[[str], Path], variant: str) -> None:
    name, options = VARIANTS[variant]

    def make() -> Drafter:
        return load_drafter(folder(name), context(), **options)

    results = list(run_checks(ground_of(make)))
    assert [f"{result.name}: {result.message}" for result in results if not result.ok] == []


@pytest.mark.parametrize("variant", VARIANTS)
def test_bytes_are_those_of_the_formula_at_any_length(folder: Callable[[str], Path], variant: str) -> None:
    name, options = VARIANTS[variant]
    drafter: Any = load_drafter(folder(name), context(), **options)
    tokens = random_tokens(700)
    features = features_of(tokens[:100], drafter.requires)
    for start in range(0, 700, 50):
        step = slice(start, start + 50)
        drafter.observe(tokens[step], features.rows(slice(start % 100, start % 100 + 50)))
        drafter.draft(5, 16, sampler())
        formula = {kind: size for kind, size in drafter.memory_formula(start + 50).items() if size}
        assert {kind: size for kind, size in bytes_by_kind(drafter.memory()).items() if size} == formula
    weights = [*drafter.network.parameters(), *drafter.network.buffers()]
    assert formula["weights"] == sum(tensor.nbytes for tensor in weights)


def test_what_equals_the_targets_is_the_targets(folder: Callable[[str], Path], tmp_path: Path) -> None:
    config = fitting(EAGLE_1)
    tensors = tensors_of(EAGLE_1, config)
    tensors["embed_tokens.weight"] = context().model.get_input_embeddings().weight.detach().clone()
    shared: Any = load_drafter(write(tmp_path, EAGLE_1, config=config, tensors=tensors), context())
    own: Any = load_drafter(folder(EAGLE_1), context())
    assert own.network.embedding is not None
    assert shared.network.embedding is None
    gap = bytes_by_kind(own.memory())["weights"] - bytes_by_kind(shared.memory())["weights"]
    assert gap == VOCAB * 48 * 4


def test_a_window_forgets_what_no_later_row_sees(tmp_path: Path) -> None:
    """Layers with a window keep as much after 600 tokens as after 60, and draft as if they kept all."""
    config = fitting("DFlash, sliding both ways")
    folder = write(tmp_path, "DFlash, sliding both ways", config=config)
    tokens = random_tokens(600, seed=5)
    few: Any = load_drafter(folder, context())
    features = features_of(tokens[:100], few.requires)
    sizes = set()
    for start in range(0, 600, 20):
        few.observe(tokens[start : start + 20], features.rows(slice(start % 100, start % 100 + 20)))
        sizes.add(bytes_by_kind(few.memory())["kv"])
    assert len(sizes) == 1
    whole: Any = load_drafter(folder, context())
    rows = torch.arange(600) % 100
    whole.observe(tokens, features.rows(rows))
    with torch.inference_mode():
        assert torch.allclose(few.block_logits(7, 5), whole.block_logits(7, 5), atol=1e-5)
        whole._position += 1
        assert not torch.allclose(few.block_logits(7, 5), whole.block_logits(7, 5), atol=1e-3)


def test_they_run_in_half_precision(folder: Callable[[str], Path]) -> None:
    from dataclasses import replace

    for name in ("Qwen3-4B-DFlash-b16", "EAGLE3-LLaMA3.1-Instruct-8B", EAGLE_1, MEDUSA):
        drafter: Any = load_drafter(folder(name), replace(context(), dtype=torch.bfloat16))
        tokens = random_tokens(20)
        drafter.observe(tokens, features_of(tokens, drafter.requires))
        assert len(drafter.draft(5, 4, sampler())) > 0
        assert {parameter.dtype for parameter in drafter.network.parameters()} == {torch.bfloat16}


# Medusa's tree


def test_a_static_tree_is_read_from_a_file(folder: Callable[[str], Path], tmp_path: Path) -> None:
    """The form in which Medusa's authors publish theirs: ranks along each path."""
    paths = [[0], [0, 0], [1], [0, 1], [2], [0, 0, 0], [1, 0], [0, 0, 0, 0], [0, 0, 0, 0, 0]]
    file = tmp_path / "choices.json"
    file.write_text(str(paths))
    drafter: Any = load_drafter(folder(MEDUSA), context(), tree=True, tree_paths=str(file))
    tokens = random_tokens(12)
    drafter.observe(tokens, features_of(tokens, drafter.requires))
    draft = drafter.draft(5, 64, sampler())
    ranked = drafter.network.logits(drafter._row, 5)[0].argsort(-1, descending=True)
    parents, found = draft.parents.tolist(), set()
    for node, depth in enumerate(depths(draft)):
        path, at = [], node
        while at >= 0:
            path.insert(0, at)
            at = parents[at]
        ranks = [ranked[slot].tolist().index(int(draft.tokens[at])) for slot, at in enumerate(path)]
        assert len(ranks) == depth
        found.add(tuple(ranks))
    assert found == {tuple(path) for path in paths}
    assert len(drafter.draft(5, 4, sampler())) == 4
    check_lossless(drafter_with_tree(folder(MEDUSA), file))


def drafter_with_tree(folder: Path, file: Path) -> Any:
    return knowing(MEDUSA, {"tree": True, "tree_paths": str(file)}, folder)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[0], [0, 1", "cannot be read"),
        ("[[0], [1, 0]]", r"\[1, 0\] goes on from \[1\], which is not among them"),
        ("[[0], [0, -1]]", "ranks from 0"),
        ("[[0], [0]]", r"\[0\] is there twice"),
        ("[[0], [0,0], [0,0,0], [0,0,0,0], [0,0,0,0,0], [0,0,0,0,0,0]]", "there are 5 heads"),
        ("[]", "list of paths"),
        ('{"a": 1}', "list of paths"),
        ("[[200]]", "there are 97 tokens"),
    ],
)
def test_a_static_tree_that_makes_no_sense_is_refused(
    folder: Callable[[str], Path], tmp_path: Path, text: str, said: str
) -> None:
    file = tmp_path / "choices.json"
    file.write_text(text)
    with pytest.raises((DrafterError, SpecError), match=said):
        load_drafter(folder(MEDUSA), context(), tree=True, tree_paths=str(file))
