"""The chunked memories are the stepwise ones, and the gated delta rule is the published one."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from transformers.models.qwen3_next.modeling_qwen3_next import (
    torch_chunk_gated_delta_rule,
    torch_recurrent_gated_delta_rule,
)

from hyflash_bench.drafters.networks.delta import MemoryRule, Writes, chunk_states, step
from hyflash_bench.drafters.networks.flash import has_kernels, states_by_asking, states_by_kernels

HEADS, KEY_DIM, VALUE_DIM = 3, 8, 6
RULES: tuple[MemoryRule, ...] = ("gated-delta", "gated-linear", "delta")


def writes_of(length: int, *, seed: int = 0, dtype: torch.dtype = torch.float64) -> Writes:
    random = torch.Generator().manual_seed(seed)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(length, HEADS, *shape, generator=random, dtype=torch.float64)

    keys = functional.normalize(drawn(KEY_DIM), dim=-1)
    writes = Writes(keys, drawn(VALUE_DIM), drawn().sigmoid(), -functional.softplus(drawn() - 2))
    return Writes(*(tensor.to(dtype) for tensor in writes))


def some_state(seed: int = 9) -> Tensor:
    random = torch.Generator().manual_seed(seed)
    return torch.randn(HEADS, KEY_DIM, VALUE_DIM, generator=random, dtype=torch.float64)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("chunk", [1, 4, 16])
def test_chunks_leave_the_states_that_steps_leave(rule: MemoryRule, chunk: int) -> None:
    writes, state = writes_of(32), some_state()
    found = chunk_states(writes, chunk, rule, state)
    assert found.shape == (32 // chunk + 1, HEADS, KEY_DIM, VALUE_DIM)
    for index, boundary in enumerate(found):
        assert torch.allclose(boundary, state, atol=1e-12)
        state = step(state, writes.rows(slice(index * chunk, (index + 1) * chunk)), rule)


@pytest.mark.parametrize("rule", RULES)
def test_single_precision_stays_close_to_double(rule: MemoryRule) -> None:
    exact = step(torch.zeros(HEADS, KEY_DIM, VALUE_DIM, dtype=torch.float64), writes_of(512), rule)
    found = chunk_states(writes_of(512, dtype=torch.float32), 32, rule)[-1]
    assert torch.allclose(found.double(), exact, atol=1e-4 if rule == "gated-linear" else 1e-5)


@pytest.mark.parametrize("rule", RULES)
def test_gradients_pass_as_through_steps(rule: MemoryRule) -> None:
    def gradients(through: str) -> list[Tensor]:
        writes = Writes(*(tensor.requires_grad_() for tensor in writes_of(24)))
        state = some_state().requires_grad_()
        last = chunk_states(writes, 8, rule, state)[-1] if through == "chunks" else step(state, writes, rule)
        last.square().sum().backward()
        inputs = [state, *writes] if rule != "delta" else [state, *writes[:3]]
        assert all(tensor.grad is not None for tensor in inputs)
        return [tensor.grad for tensor in inputs if tensor.grad is not None]

    for by_chunk, by_step in zip(gradients("chunks"), gradients("steps"), strict=True):
        assert by_chunk.isfinite().all()
        assert torch.allclose(by_chunk, by_step, atol=1e-9)


@pytest.mark.parametrize("published", [torch_chunk_gated_delta_rule, torch_recurrent_gated_delta_rule])
def test_the_gated_delta_rule_is_that_of_transformers(published: object) -> None:
    writes, state = writes_of(48, dtype=torch.float32), some_state().float()
    batched = [tensor[None] for tensor in writes]
    _, theirs = published(  # type: ignore[operator]
        torch.zeros_like(batched[0]),
        batched[0],
        batched[1],
        g=batched[3],
        beta=batched[2],
        initial_state=state[None],
        output_final_state=True,
    )
    assert torch.allclose(chunk_states(writes, 16, "gated-delta", state)[-1], theirs[0], atol=1e-5)
    assert torch.allclose(step(state, writes, "gated-delta"), theirs[0], atol=1e-5)


def test_gates_that_forget_everything_at_once_stay_finite() -> None:
    writes = writes_of(16, dtype=torch.float32)._replace(decays=torch.full((16, HEADS), -200.0))
    inputs = Writes(*(tensor.requires_grad_() for tensor in writes))
    found = chunk_states(inputs, 8, "gated-delta")
    found.sum().backward()
    assert found.isfinite().all()
    assert all(tensor.grad is not None and tensor.grad.isfinite().all() for tensor in inputs)


def test_rows_that_fill_no_chunk_are_refused() -> None:
    with pytest.raises(ValueError, match="10 rows are no whole chunks of 4"):
        chunk_states(writes_of(10), 4, "delta")


def test_no_rows_leave_the_state_alone() -> None:
    state = some_state()
    assert torch.equal(chunk_states(writes_of(0), 4, "gated-delta", state), state[None])


# The kernels of others


def published_outputs(
    queries: Tensor, keys: Tensor, values: Tensor, decays: Tensor, strengths: Tensor
) -> Tensor:
    """Of transformers' own form, which scales queries as attention does."""
    scaled = queries * queries.shape[-1] ** 0.5
    found: Tensor = torch_chunk_gated_delta_rule(scaled, keys, values, g=decays, beta=strengths)[0]
    return found


@pytest.mark.parametrize("length", [0, 16, 48])
def test_states_are_read_off_a_kernel_that_only_answers_queries(length: int) -> None:
    writes = writes_of(length, dtype=torch.float32)
    found = states_by_asking(writes, 16, published_outputs)
    expected = chunk_states(writes, 16, "gated-delta")
    assert found.shape == expected.shape
    assert torch.allclose(found, expected, atol=1e-5)


def test_gradients_pass_through_what_was_asked() -> None:
    gradients = []
    for by_asking in (True, False):
        writes = Writes(*(tensor.requires_grad_() for tensor in writes_of(32, dtype=torch.float32)))
        states = (
            states_by_asking(writes, 16, published_outputs)
            if by_asking
            else chunk_states(writes, 16, "gated-delta")
        )
        states.square().sum().backward()
        gradients.append([tensor.grad for tensor in writes])
    for mine, theirs in zip(*gradients, strict=True):
        assert torch.allclose(mine, theirs, atol=1e-4)


def test_without_a_gpu_or_in_full_precision_no_kernel_is_asked_for() -> None:
    assert not has_kernels(torch.zeros(1), "gated-delta", 64)
    with torch.autocast("cpu", torch.bfloat16):
        assert not has_kernels(torch.zeros(1), "gated-delta", 64)


@pytest.mark.skipif(
    not torch.cuda.is_available() or find_spec("fla") is None,
    reason="needs a CUDA device and flash-linear-attention",
)
def test_the_kernels_leave_the_same_states_to_the_precision_of_their_inputs() -> None:
    keys = functional.normalize(torch.randn(96, HEADS, 64), dim=-1)
    values = torch.randn(96, HEADS, 64)
    small = writes_of(96, dtype=torch.float32)
    writes = Writes(*(side.cuda() for side in small._replace(keys=keys, values=values)))
    with torch.autocast("cuda", torch.bfloat16):
        assert has_kernels(writes.keys, "gated-delta", 64)
    found, expected = states_by_kernels(writes, 32), chunk_states(writes, 32, "gated-delta")
    assert (found - expected).abs().max() < 0.02 * expected.abs().max()
