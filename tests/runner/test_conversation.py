"""One conversation inside the worker: prompts, caches and records on the default target."""

from __future__ import annotations

import pytest

from hyflash_bench.drafters.base import Draft, Drafter
from hyflash_bench.registry import build_drafter
from hyflash_bench.runner.conversation import ConversationRunner
from hyflash_bench.runner.work import Work, WorkCell, WorkResult
from hyflash_bench.spec.drafter import DrafterSpec
from hyflash_bench.spec.sampling import GREEDY, Sampling
from hyflash_bench.spec.target import TargetSpec
from hyflash_bench.suites.chat import ChatTokenizer
from hyflash_bench.suites.conversation import Conversation, Item, UserTurn
from hyflash_bench.targets.load import load_target
from hyflash_bench.targets.target import Target

USER_TURNS = (
    "Name three rivers, one per line.",
    "Which of them is the longest? Answer in one word.",
    "Write the three names again, in capitals.",
)
DRAFTERS = ("autoregressive", "prompt-lookup", "suffix", "suffix:tree=true")


def work_on(target: Target, sampling: Sampling, max_new_tokens: int, **more) -> tuple[WorkResult, Work]:
    item = Item("talk/rivers", "talk", "talk", "chat", "chat", None, len(USER_TURNS))
    conversation = Conversation(item, tuple(map(UserTurn, USER_TURNS)), None, "hash")
    specs = [DrafterSpec.from_text(text) for text in DRAFTERS]
    drafters = {spec.label: build_drafter(spec) for spec in specs}
    for drafter in drafters.values():
        drafter.load(target.load_context())
    work = Work(
        trace_id="trace",
        suite="talk",
        item_id=item.item_id,
        sampling=sampling,
        seed=0,
        max_new_tokens=max_new_tokens,
        draft_budget=8,
        mode="both",
        cells=tuple(WorkCell(cell_id=s.label, drafter=s, memory_cap_bytes=None, repeat=0) for s in specs),
        **more,
    )
    return ConversationRunner(target, drafters, lambda event: None).run(work, conversation), work


@pytest.fixture(scope="module")
def greedy(smollm2: Target) -> WorkResult:
    return work_on(smollm2, GREEDY, 24)[0]


@pytest.mark.real
def test_turn_by_turn_prompts_equal_the_template_over_the_whole_conversation(smollm2, greedy):
    chat = ChatTokenizer(smollm2.tokenizer)
    assert greedy.trace is not None
    turns = greedy.trace.turns
    assert {turn.stop_reason for turn in turns} == {"eos", "limit"}, "both kinds of joint are checked"
    text: list[int] = []
    for index, turn in enumerate(turns):
        text += turn.prompt_tokens
        replies = [smollm2.tokenizer.decode(t.tokens).removesuffix("<|im_end|>") for t in turns[:index]]
        assert text == chat.whole(USER_TURNS[: index + 1], replies, None)
        assert turn.context_length == len(text)
        text += turn.tokens


@pytest.mark.real
def test_greedy_live_output_equals_the_targets_own_for_every_drafter(greedy):
    for record in greedy.conversations:
        assert record.status == "ok", record.message
        live = [turn for turn in record.turns if turn.mode == "live"]
        assert [turn.lossless for turn in live] == ["identical"] * len(USER_TURNS)


@pytest.mark.real
def test_greedy_replay_equals_live_for_every_drafter(greedy):
    for record in greedy.conversations:
        by_mode = {
            mode: [turn.steps for turn in record.turns if turn.mode == mode] for mode in ("replay", "live")
        }
        for replayed, live in zip(by_mode["replay"], by_mode["live"], strict=True):
            for column in ("drafted", "depth", "accepted", "committed", "eos_cut", "limit_cut"):
                assert getattr(replayed, column) == getattr(live, column)


@pytest.mark.real
def test_a_known_trace_is_walked_not_asked_again(smollm2, greedy):
    again, _ = work_on(smollm2, GREEDY, 24, known=greedy.trace)
    assert again.trace is None
    for first, second in zip(greedy.conversations, again.conversations, strict=True):
        steps = [[turn.steps.committed for turn in record.turns] for record in (first, second)]
        assert steps[0] == steps[1]


@pytest.mark.real
def test_sampled_turns_start_from_the_traces_history(smollm2):
    result, _ = work_on(smollm2, Sampling(temperature=0.7), 16)
    assert result.trace is not None
    starts = [turn.context_length for turn in result.trace.turns]
    for record in result.conversations:
        assert record.status == "ok", record.message
        for turn in record.turns:
            assert turn.context_length == starts[turn.turn]
            assert turn.lossless == "not_judged"


@pytest.mark.real
def test_plain_decoding_equals_transformers_generate(smollm2, greedy):
    import torch

    assert greedy.trace is not None
    first = greedy.trace.turns[0]
    prompt = torch.tensor([first.prompt_tokens])
    output = smollm2.model.generate(
        prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=24, do_sample=False
    )
    assert output[0, prompt.shape[1] :].tolist() == first.tokens


class OnlyLive(Drafter):
    """Skips replay, but only at the context length that the suite fixed."""

    name = "only-live"

    def reset(self):
        pass

    def observe(self, tokens, features):
        pass

    def memory(self):
        return []

    def draft(self, last_token, budget, sampler, along=None):
        return Draft.chain([1])

    def skip(self, facts):
        return "live only" if facts.mode == "replay" and facts.context_length == 64 else None


def test_a_drafter_that_skips_one_mode_is_measured_in_the_other(tiny_target):
    target = load_target(TargetSpec(target=str(tiny_target)))
    item = Item("talk/one", "talk", "talk", "chat", "chat", 64, 1)
    spec = DrafterSpec(name="only-live")
    work = Work(
        trace_id="trace",
        suite="talk",
        item_id=item.item_id,
        sampling=GREEDY,
        seed=0,
        max_new_tokens=6,
        draft_budget=4,
        mode="both",
        cells=(WorkCell(cell_id="cell", drafter=spec, memory_cap_bytes=None, repeat=0),),
    )
    runner = ConversationRunner(target, {spec.label: OnlyLive()}, lambda event: None)
    result = runner.run(work, Conversation(item, (UserTurn("Hello."),), None, "hash"))
    assert [record.status for record in result.conversations] == ["ok"]
    assert [turn.mode for turn in result.conversations[0].turns] == ["live"]
