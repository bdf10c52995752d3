"""Every registered drafter keeps the contract, and every check catches a drafter that does not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from pydantic import Field
from torch import Tensor

from hyflash_bench.drafters import Draft, Drafter, DrafterOptions, Features, Held, Requires, Sampler
from hyflash_bench.drafters.contract import CHECKS, Ground, run_checks, synthetic_ground
from hyflash_bench.drafters.scripted import Scripted
from hyflash_bench.drafters.trained import TrainedDrafter
from hyflash_bench.registry import build_drafter, drafter_names, resolve_drafter
from hyflash_bench.spec.drafter import DrafterSpec
from tests.drafters.fakes import VOCAB_SIZE, load_context, serve_models


def untrained() -> list[str]:
    """Drafters that need no checkpoint; those with one are checked beside their own networks."""
    kinds = {name: resolve_drafter(DrafterSpec(name=name)) for name in drafter_names()}
    return [name for name, kind in kinds.items() if not issubclass(kind, TrainedDrafter)]


VARIANTS = [
    *untrained(),
    "prompt-lookup:match=first,max_ngram=2",
    "prompt-lookup:min_ngram=3",
    "suffix:tree=true,max_spec_offset=4",
    "suffix:max_depth=2,min_token_prob=0",
    "small-model:num_draft_tokens=1",
    "scripted:num_wrong_siblings=2",
    "scripted:confidence=0.6",
    "scripted:confidence=0.6,num_wrong_siblings=1",
]


def ground_for(text: str) -> Ground:
    def make() -> Drafter:
        drafter = build_drafter(DrafterSpec.from_text(text))
        drafter.load(load_context())
        if isinstance(drafter, Scripted):
            drafter.follow(ground.tokens)
        return drafter

    ground = synthetic_ground(make, VOCAB_SIZE)
    return ground


@pytest.mark.parametrize("name", CHECKS)
@pytest.mark.parametrize("text", VARIANTS)
def test_registered_drafters_keep_the_contract(text: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    serve_models(monkeypatch)
    assert CHECKS[name](ground_for(text)) is None


class Echo(Drafter):
    """Repeats the last token; the broken drafters below change one thing."""

    name = "echo"

    def __init__(self, options: DrafterOptions | None = None) -> None:
        super().__init__(options)
        self.reset()

    def reset(self) -> None:
        self.num_observed = 0
        self.num_calls = 0

    def observe(self, tokens: Tensor, features: Features) -> None:
        self.num_observed += len(tokens)
        self.num_calls += 1

    def draft(self, last_token: int, budget: int, sampler: Sampler, along: Tensor | None = None) -> Draft:
        return Draft.chain([last_token] * min(budget, 2))

    def memory(self) -> list[Held]:
        return [Held("buffer", num_bytes=8)]


class Nameless(Echo):
    name = ""


class Undescribed(Echo):
    class Options(DrafterOptions):
        size: int = 1


class Required(Echo):
    class Options(DrafterOptions):
        size: int = Field(description="Without a default.")

    def __init__(self) -> None:
        super().__init__(self.Options(size=1))


class SaysNo(Echo):
    def skip(self, facts: object) -> str | None:
        return False  # type: ignore[return-value]


class Raises(Echo):
    def observe(self, tokens: Tensor, features: Features) -> None:
        raise RuntimeError("broken on purpose")


class Scribbles(Echo):
    """Normalises the features where they lie."""

    @property
    def requires(self) -> Requires:
        return Requires(taps=(1,), last_hidden=True)

    def observe(self, tokens: Tensor, features: Features) -> None:
        super().observe(tokens, features)
        assert features.last_hidden is not None
        features.last_hidden.mul_(0.5)


class RemembersAndScribbles(Scribbles):
    """Keeps what it was given, and writes into it later."""

    def observe(self, tokens: Tensor, features: Features) -> None:
        self.num_observed += len(tokens)
        self.kept = features.taps[1]

    def draft(self, last_token, budget, sampler, along=None):  # type: ignore[no-untyped-def]
        self.kept.zero_()
        return super().draft(last_token, budget, sampler, along)


class CrossesOut(Echo):
    def observe(self, tokens: Tensor, features: Features) -> None:
        super().observe(tokens, features)
        tokens.fill_(1)


class CrossesOutTheFuture(Echo):
    def draft(self, last_token, budget, sampler, along=None):  # type: ignore[no-untyped-def]
        if along is not None:
            along.fill_(1)
        return super().draft(last_token, budget, sampler, along)


class Spendthrift(Echo):
    def draft(self, last_token, budget, sampler, along=None):  # type: ignore[no-untyped-def]
        return Draft.chain([last_token] * (budget + 1))


class Foreign(Echo):
    def draft(self, last_token, budget, sampler, along=None):  # type: ignore[no-untyped-def]
        return Draft.chain([VOCAB_SIZE])


class Narrow(Echo):
    def draft(self, last_token, budget, sampler, along=None):  # type: ignore[no-untyped-def]
        return Draft(torch.tensor([last_token], dtype=torch.int32))


class Backwards(Echo):
    def draft(self, last_token, budget, sampler, along=None):  # type: ignore[no-untyped-def]
        return Draft(torch.tensor([1, 2])[:budget], torch.tensor([1, -1])[:budget])


class Unnormalised(Echo):
    def draft(self, last_token, budget, sampler, along=None):  # type: ignore[no-untyped-def]
        return Draft.chain([last_token], torch.ones(1, VOCAB_SIZE))


class Impossible(Echo):
    def draft(self, last_token, budget, sampler, along=None):  # type: ignore[no-untyped-def]
        row = torch.zeros(1, VOCAB_SIZE)
        row[0, (last_token + 1) % VOCAB_SIZE] = 1.0
        return Draft.chain([last_token], row)


class OwnDice(Echo):
    def draft(self, last_token, budget, sampler, along=None):  # type: ignore[no-untyped-def]
        return Draft.chain([int(torch.randint(VOCAB_SIZE, ()))])


class Nostalgic(Echo):
    """Its conversations are counted for ever."""

    num_conversations = 0

    def reset(self) -> None:
        super().reset()
        self.num_conversations += 1

    def draft(self, last_token, budget, sampler, along=None):  # type: ignore[no-untyped-def]
        return Draft.chain([self.num_conversations])


class CountsCalls(Echo):
    def draft(self, last_token, budget, sampler, along=None):  # type: ignore[no-untyped-def]
        return Draft.chain([self.num_calls % VOCAB_SIZE])


class Restless(Echo):
    def draft(self, last_token, budget, sampler, along=None):  # type: ignore[no-untyped-def]
        self.num_observed += 1
        return Draft.chain([self.num_observed % VOCAB_SIZE])


class IgnoresTheText(Echo):
    def draft(self, last_token, budget, sampler, along=None):  # type: ignore[no-untyped-def]
        even = torch.full((VOCAB_SIZE,), 1.0 / VOCAB_SIZE)
        token = sampler.draw(even)
        row = 0.5 * even
        row[token] += 0.5
        return Draft.chain([token], row[None])


class Needy(Echo):
    """Reads beyond its only token."""

    def draft(self, last_token, budget, sampler, along=None):  # type: ignore[no-untyped-def]
        assert self.num_observed > 1
        return super().draft(last_token, budget, sampler, along)


class Modest(Echo):
    def memory_formula(self, context_length: int):  # type: ignore[no-untyped-def]
        return {"buffer": 4}


class OddKind(Echo):
    def memory(self) -> list[Held]:
        return [Held("cache", num_bytes=8)]  # type: ignore[arg-type]


BROKEN: list[tuple[type[Echo], str, str]] = [
    (Nameless, "names itself", "name is ''"),
    (Undescribed, "describes its options", "'size' has no description"),
    (Required, "describes its options", "'size' has no default"),
    (SaysNo, "says whether it can run", "returned False"),
    (Raises, "starts from one token", "raised RuntimeError: broken on purpose"),
    (Raises, "keeps to the budget", "not run: RuntimeError: broken on purpose (see 'starts from one token')"),
    (Scribbles, "leaves its inputs alone", "into the features"),
    (RemembersAndScribbles, "leaves its inputs alone", "into the features"),
    (CrossesOut, "leaves its inputs alone", "into the tokens"),
    (CrossesOutTheFuture, "leaves its inputs alone", "into the tokens"),
    (Needy, "starts from one token", "raised AssertionError"),
    (Spendthrift, "keeps to the budget", "2 tokens with a budget of 1"),
    (Foreign, "proposes known tokens", "token id 64 is outside 0..63"),
    (Narrow, "proposes known tokens", "torch.int32"),
    (Backwards, "puts parents first", "token 0 has parent 1"),
    (Unnormalised, "gives true probabilities", "normalise"),
    (Impossible, "gives true probabilities", "probability 0"),
    (OwnDice, "repeats itself with one seed", "draw through the sampler"),
    (Nostalgic, "forgets on reset", "forget the conversation"),
    (CountsCalls, "does not see chunks", "chunks of 1"),
    (Restless, "drafts without a trace", "only observe()"),
    (IgnoresTheText, "scores along the text", "along[:N]"),
    (Modest, "counts its bytes", "memory_formula() says"),
    (OddKind, "counts its bytes", "kind 'cache'"),
]


@pytest.mark.parametrize(("broken", "name", "message"), BROKEN)
def test_a_broken_drafter_fails_the_check_made_for_it(
    broken: Callable[[], Drafter], name: str, message: str
) -> None:
    results = {result.name: result for result in run_checks(synthetic_ground(broken, VOCAB_SIZE))}
    assert not results[name].ok
    assert message in results[name].message


def test_the_plain_drafter_that_the_broken_ones_derive_from_is_sound() -> None:
    assert all(result.ok for result in run_checks(synthetic_ground(Echo, VOCAB_SIZE)))


@pytest.mark.parametrize("broken", [Scribbles, RemembersAndScribbles, CrossesOut, CrossesOutTheFuture])
def test_a_drafter_that_writes_into_its_inputs_fails_that_check_only(broken: Callable[[], Drafter]) -> None:
    """What it spoiled is its own copy, so that no other check is misled."""
    ground = synthetic_ground(broken, VOCAB_SIZE)
    before = ground.tokens.clone()
    failed = [result.name for result in run_checks(ground) if not result.ok]
    assert failed == ["leaves its inputs alone"]
    assert torch.equal(ground.tokens, before)


def test_an_exception_is_reported_once() -> None:
    """Checks that it kept from their end say so, and name the check that tells more."""
    results = [r for r in run_checks(synthetic_ground(Raises, VOCAB_SIZE)) if not r.ok]
    assert [r.message.split(":")[0] for r in results] == [
        "raised RuntimeError",
        *["not run"] * (len(results) - 1),
    ]


def test_every_check_is_broken_by_some_drafter() -> None:
    assert {name for _, name, _ in BROKEN} == set(CHECKS)


def test_features_are_served_as_required() -> None:
    ground = synthetic_ground(Echo, VOCAB_SIZE, hidden_size=6)
    features = ground.features(Requires(taps=(1, 3), last_hidden=True))
    assert {layer: tuple(rows.shape) for layer, rows in features.taps.items()} == {
        1: (96, 6),
        3: (96, 6),
    }
    assert features.logits is None


def test_a_text_too_short_to_show_anything_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 32 tokens, not 8"):
        synthetic_ground(Echo, VOCAB_SIZE, num_tokens=8)
