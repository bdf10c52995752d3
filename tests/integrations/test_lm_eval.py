"""The lm-eval model: replies cut exactly, likelihoods as transformers has them, order without effect."""

from __future__ import annotations

import random
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from lm_eval.api.instance import Instance

from hyflash_bench.drafters.base import Drafter
from hyflash_bench.errors import ContextTooLong, DrafterError, SpecError, UsageError
from hyflash_bench.integrations import plug
from hyflash_bench.integrations.likelihood import Likelihood
from hyflash_bench.integrations.lm_eval import HyFlashLM, _backend, _batch_size
from hyflash_bench.integrations.model import ReplyLM
from hyflash_bench.integrations.prompts import Ask, Origin, Prompt
from hyflash_bench.integrations.replies import Replies
from hyflash_bench.integrations.stops import StopStrings
from hyflash_bench.registry import build_drafter
from hyflash_bench.spec.drafter import DrafterSpec
from hyflash_bench.spec.sampling import Sampling
from hyflash_bench.spec.target import TargetSpec
from hyflash_bench.targets.load import load_target
from hyflash_bench.targets.target import Target
from tests.tiny import save_tiny_target

ROOT = Path(__file__).parents[2]
PROMPTS = ("the cat and the hat and the cat", "one two one two one", "x", "a longer prompt, a longer reply")
NUM_TOKENS = 60
LIMIT = 128


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny target that takes few positions, so that windows and limits are met soon."""
    return save_tiny_target(tmp_path_factory.mktemp("lm-eval-target"), max_positions=LIMIT)


@pytest.fixture(scope="module")
def target(folder: Path) -> Target:
    """The same, loaded."""
    return load_target(TargetSpec(target=str(folder)))


def _drafters(target: Target, *texts: str) -> dict[str, Drafter]:
    drafters = {text: build_drafter(DrafterSpec.from_text(text)) for text in texts}
    for drafter in drafters.values():
        drafter.load(target.load_context())
    return drafters


def _model(target: Target, drafter: str = "autoregressive") -> ReplyLM:
    return ReplyLM(Replies(target, _drafters(target, drafter)), Likelihood(target), drafter)


def _prompt(target: Target, text: str, ask: Ask) -> Prompt:
    return Prompt(tuple(target.tokenizer.encode(text)), ask, Origin("task", "item"))


def _generate(context: str, index: int = 0, **options: Any) -> Instance:
    asked = {"until": [], "max_gen_toks": NUM_TOKENS, **options}
    return Instance("generate_until", {}, (context, asked), 0, ("task", index, 1))


def _score(kind: Any, *strings: str) -> Instance:
    return Instance(kind, {}, strings, 0, ("task", 0, 1))


def _stops(text: str) -> list[str]:
    """Strings of one to four characters that the text holds, whole characters only."""
    pieces = [text[at : at + size] for size in (1, 2, 3, 4) for at in range(5, len(text) - size, 7)]
    return [piece for piece in pieces if "\ufffd" not in piece]


# -- stop strings --------------------------------------------------------------------------------


@given(
    st.lists(st.text("ab", min_size=1, max_size=3), min_size=1, max_size=12),
    st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3),
    st.lists(st.integers(1, 5), min_size=12, max_size=12),
)
def test_a_reply_ends_with_the_token_that_completes_a_stop_string(
    pieces: list[str], until: list[str], sizes: list[int]
) -> None:
    """Wherever drafts begin and end; the text is what stands before the first stop string."""
    stops = StopStrings(lambda tokens: "".join(pieces[token] for token in tokens), until)
    reply: list[int] = []
    for size in sizes:
        step = list(range(len(reply), min(len(reply) + size, len(pieces))))
        end = stops(reply, step)
        reply += step if end is None else step[:end]
        if end is not None:
            break

    written = ["".join(pieces[:count]) for count in range(1, len(pieces) + 1)]
    first = next((text for text in written if any(stop in text for stop in until)), None)
    assert "".join(pieces[token] for token in reply) == (first or written[-1])
    place = min((first.find(stop) for stop in until if stop in first), default=0) if first else None
    assert stops.text(reply) == written[-1][:place]


def test_stop_strings_cut_the_same_place_with_every_drafter(target: Target) -> None:
    """Also in the middle of a draft: the scripted drafter has up to six tokens accepted at once."""
    prompt = _prompt(target, PROMPTS[0], Ask(NUM_TOKENS))
    drafters = _drafters(target, "autoregressive", "prompt-lookup", "suffix", "scripted:pattern=6 0 3")
    replies = Replies(target, drafters)
    free = replies.play(prompt)
    tokens, text = free.replies["autoregressive"].result.tokens, free.replies["autoregressive"].text
    drafters["scripted:pattern=6 0 3"].follow([*prompt.tokens, *tokens])  # type: ignore[attr-defined]
    stops = _stops(text)
    assert len(stops) > 8
    for stop in stops:
        played = replies.play(_prompt(target, PROMPTS[0], Ask(NUM_TOKENS, (stop,))))
        for label, reply in played.replies.items():
            assert reply.text == text[: text.index(stop)], (label, stop)
            assert reply.has_ended
            assert reply.result.tokens == tokens[: len(reply.result.tokens)]
            assert stop not in target.tokenizer.decode(reply.result.tokens[:-1])
            assert sum(reply.result.steps.committed) == len(reply.result.tokens) - 1
    accepted = played.replies["scripted:pattern=6 0 3"].result.steps.accepted
    assert max(accepted, default=0) > 1


# -- replies -------------------------------------------------------------------------------------


@pytest.mark.parametrize("drafter", ["prompt-lookup", "suffix"])
def test_replies_are_those_of_the_target_alone(target: Target, drafter: str) -> None:
    requests = [_generate(prompt, index) for index, prompt in enumerate(PROMPTS)]

    assert _model(target, drafter).generate_until(requests) == _model(target).generate_until(requests)


@pytest.mark.parametrize("drafter", ["suffix", "autoregressive"])
def test_prompts_that_share_a_beginning_have_the_replies_of_each_alone(folder: Path, drafter: str) -> None:
    """Also where the beginning is longer than a chunk of the cache, and with the same steps."""
    head = "one two three " * 12  # 168 tokens of a byte vocabulary
    wide = load_target(TargetSpec(target=str(folder), extrapolate=True))
    requests = [
        _generate(head + end, index, max_gen_toks=24) for index, end in enumerate(("one", "two", "", "x"))
    ]
    together, alone = _model(wide, drafter), [_model(wide, drafter) for _ in requests]

    texts = [model.generate_until([request])[0] for model, request in zip(alone, requests, strict=True)]
    assert together.generate_until(requests) == texts
    (whole,) = together.replies.tallies.values()
    parts = [tally for model in alone for tally in model.replies.tallies.values()]
    assert whole.num_steps == sum(part.num_steps for part in parts)
    assert whole.num_committed == sum(part.num_committed for part in parts)


def test_the_order_of_requests_has_no_effect(target: Target) -> None:
    """They are answered by shared prefix, whatever the order they come in."""
    generated = [_generate(prompt, index) for index, prompt in enumerate(PROMPTS)]
    scored = [_score("loglikelihood", a, b) for a in PROMPTS for b in (" cat", " hat and", "!")]
    for seed in range(3):
        order = list(range(len(generated)))
        places = list(range(len(scored)))
        random.Random(seed).shuffle(order)
        random.Random(seed).shuffle(places)
        replies = _model(target, "suffix").generate_until([generated[i] for i in order])
        scores = _model(target).loglikelihood([scored[i] for i in places])
        by_request = dict(zip(order, replies, strict=True))
        by_pair = dict(zip(places, scores, strict=True))
        if seed == 0:
            first, first_scores = by_request, by_pair
        assert by_request == first
        assert by_pair == first_scores


def test_drawn_replies_repeat_with_the_seed_and_differ_between_takes(target: Target) -> None:
    options = {"do_sample": True, "temperature": 1.0, "top_p": 0.95}
    twice = [_generate(PROMPTS[0], 0, **options), _generate(PROMPTS[0], 0, **options)]
    first, again = (_model(target, "suffix").generate_until(twice) for _ in range(2))

    assert first == again
    assert first[0] != first[1]


def test_the_model_is_made_from_lm_evals_own_arguments(folder: Path) -> None:
    model = HyFlashLM.create_from_arg_string(
        f"target={folder},drafter=prompt-lookup:max_ngram=2,draft_budget=4",
        {"batch_size": 8, "device": "cpu"},
    )
    texts = model.generate_until([_generate(PROMPTS[1])])

    assert texts == _model(model.replies.target).generate_until([_generate(PROMPTS[1])])
    tally = model.replies.tallies["task", "prompt-lookup:max_ngram=2"]
    assert tally.num_decoded >= tally.num_steps > 0
    assert "acceptance length" in str(tally)
    assert model.get_model_info()["drafter"] == "prompt-lookup:max_ngram=2"


@pytest.mark.parametrize(
    ("given", "most", "together"),
    [(1, None, 1), ("4", None, 4), ("auto", None, None), ("auto:4", 8, 8), (None, None, None)],
)
def test_batch_size_says_how_many_continuations_are_scored_together(
    given: int | str | None, most: int | None, together: int | None
) -> None:
    assert _batch_size(given, most) == together


@pytest.mark.parametrize("given", [0, -1, "many", "2.5"])
def test_a_batch_size_that_says_nothing_is_refused_before_anything_is_loaded(given: int | str) -> None:
    with pytest.raises(UsageError, match=rf"batch_size={given}: give a whole number from 1, or auto"):
        HyFlashLM(target="nowhere", batch_size=given)


def test_lm_evals_default_device_is_taken_where_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its command says cuda:0 whether or not anybody asked for it."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert _backend("cuda:0") == _backend(None) == {}
    assert _backend("cpu") == {"backend": "cpu"}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert _backend("cuda:0") == {"backend": "cuda:0"}


# -- likelihoods ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def reference(folder: Path) -> Any:
    """The same weights in transformers."""
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def _plain(reference: Any, context: Sequence[int], wanted: Sequence[int]) -> tuple[float, bool]:
    with torch.inference_mode():
        logits = reference(torch.tensor([[*context, *wanted]])).logits[0, len(context) - 1 : -1]
    picked = logits.double().log_softmax(-1).gather(1, torch.tensor(wanted)[:, None])
    return float(picked.sum()), logits.argmax(-1).tolist() == list(wanted)


def test_likelihoods_are_those_of_transformers(target: Target, reference: Any) -> None:
    """With contexts that share prefixes, the empty one, and a continuation that is the target's own."""
    pairs = [(prompt, end) for prompt in (*PROMPTS, "the cat") for end in (" and", " and the hat", "?")]
    encode = target.tokenizer.encode
    with torch.inference_mode():
        likeliest = int(reference(torch.tensor([encode("the cat")])).logits[0, -1].argmax())
    found = _model(target).loglikelihood([_score("loglikelihood", *pair) for pair in [*pairs, ("", "word")]])

    for (context, wanted), score in zip(pairs, found, strict=False):
        assert score == pytest.approx(_plain(reference, encode(context), encode(wanted)), abs=1e-4)
    bos = target.tokenizer.bos_token_id
    assert found[-1] == pytest.approx(_plain(reference, [bos], encode("word")), abs=1e-4)
    ((_, own),) = Likelihood(target).score([(encode("the cat"), [likeliest])])
    assert own.is_greedy
    assert own.logprob == pytest.approx(_plain(reference, encode("the cat"), [likeliest])[0], abs=1e-4)


def test_long_texts_are_scored_in_windows_that_transformers_agrees_with(
    target: Target, reference: Any
) -> None:
    """Each token once; those of the last window with as much context as fits."""
    text = (" ".join(PROMPTS) * 4)[: LIMIT * 2 + 40]
    tokens = target.tokenizer.encode(text)
    assert LIMIT * 2 < len(tokens) < LIMIT * 3
    rows = [target.tokenizer.bos_token_id, *tokens]
    expected = 0.0
    for start in range(0, len(tokens), LIMIT):
        end = min(start + LIMIT, len(tokens))
        begin = max(0, end - LIMIT)
        expected += _plain(reference, rows[begin : start + 1], tokens[start:end])[0]

    (found,) = _model(target).loglikelihood_rolling([_score("loglikelihood_rolling", text)])
    assert found == pytest.approx(expected, abs=1e-3)
    assert found / len(tokens) == pytest.approx(expected / len(tokens), abs=1e-5)


# -- errors --------------------------------------------------------------------------------------


def test_what_does_not_fit_the_target_is_refused_before_anything_is_generated(target: Target) -> None:
    model = _model(target)
    too_long = "word " * 20
    with pytest.raises(ContextTooLong, match=r"100 tokens with up to 60 .* 128 positions"):
        model.generate_until([_generate("short"), _generate(too_long)])
    assert not model.replies.tallies
    with pytest.raises(ContextTooLong, match="128"):
        model.loglikelihood([_score("loglikelihood", "word " * 30, " end")])


def test_an_option_that_would_change_the_text_is_refused_and_an_idle_one_is_not(target: Target) -> None:
    with pytest.raises(UsageError, match="num_beams=4"):
        _model(target).generate_until([_generate("x", num_beams=4)])

    idle = _generate("x", num_beams=1, top_p=1.0, temperature=0.0)
    assert _model(target).generate_until([idle]) == _model(target).generate_until([_generate("x")])


def test_a_mistyped_model_argument_is_named_with_the_nearest(folder: Path) -> None:
    with pytest.raises(SpecError, match="did you mean 'kv_dtype'"):
        HyFlashLM.create_from_arg_string(f"target={folder},kv_dtyp=int8")


def test_a_drafter_that_breaks_down_fails_alone(target: Target) -> None:
    class Broken(type(build_drafter(DrafterSpec(name="suffix")))):  # type: ignore[misc]
        def draft(self, *_: Any, **__: Any) -> Any:
            raise RuntimeError("no more")

    drafters = {**_drafters(target, "autoregressive"), "broken": Broken()}
    replies = Replies(target, drafters)
    prompts = [_prompt(target, "x", Ask(8))]
    assert list(replies.answer("autoregressive", prompts))
    with pytest.raises(DrafterError, match=r"broken: .*no more"):
        list(replies.answer("broken", prompts))


def test_sampled_replies_are_not_judged(target: Target) -> None:
    replies = Replies(target, _drafters(target, "autoregressive", "suffix"))
    drawn = replies.play(_prompt(target, "x", Ask(8, sampling=Sampling(temperature=1.0))))
    greedy = replies.play(_prompt(target, "x", Ask(8)))

    assert drawn.replies["suffix"].judged is None
    assert greedy.replies["suffix"].judged is not None
    assert greedy.replies["suffix"].judged.verdict == "identical"


# -- the lm_eval command -------------------------------------------------------------------------


def test_lm_eval_lists_the_model_beside_its_own_without_loading_it() -> None:
    code = (
        "import sys\nfrom hyflash_bench.integrations.plug import install\ninstall()\n"
        "assert 'lm_eval' not in sys.modules\nimport lm_eval.models\n"
        "from lm_eval.api.registry import model_registry\n"
        "assert {'hyflash-bench', 'hf'} <= set(model_registry)\n"
        "assert not {'torch', 'hyflash_bench.integrations.lm_eval'} & set(sys.modules)\n"
        "from lm_eval.api.registry import get_model\n"
        "from hyflash_bench.integrations.lm_eval import HyFlashLM\n"
        "assert get_model('hyflash-bench') is HyFlashLM\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("words", "is_lm_eval"),
    [
        (["python", "/usr/bin/lm_eval", "--model", "x"], True),
        (["python", "/usr/bin/lm-eval", "run"], True),
        (["python", "-m", "lm_eval", "--model", "x"], True),
        (["python", "train.py", "--note", "lm_eval"], False),
        (["python"], False),
    ],
)
def test_only_a_python_that_runs_lm_eval_is_touched(
    monkeypatch: pytest.MonkeyPatch, words: list[str], is_lm_eval: bool
) -> None:
    """The line that is run at the start of every Python in the environment."""
    installed: list[bool] = []
    monkeypatch.setattr(sys, "orig_argv", words)
    monkeypatch.setattr(plug, "install", lambda: installed.append(True))
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    included = settings["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    (source,) = [source for source, place in included.items() if place.endswith(".pth")]
    exec((ROOT / source).read_text())

    assert bool(installed) == is_lm_eval
