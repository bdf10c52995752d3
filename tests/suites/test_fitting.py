"""Conversations of data sets that are longer than the target."""

from typing import Any

import pytest

from hyflash_bench.suites import ChatTokenizer, Expected, UserTurn
from hyflash_bench.suites.fitting import fitted


class Letters:
    """A token for each letter; the template adds four to a turn."""

    eos_token_id = 0
    chat_template = "some"

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        return [ord(letter) for letter in text]

    def decode(self, tokens: list[int], *, skip_special_tokens: bool) -> str:
        return "".join(map(chr, tokens))

    def apply_chat_template(self, messages: list[dict[str, str]], **_: Any) -> str:
        return "".join(f"<{message['content']}>;;" for message in messages)


def chat(room: int | None, reply: int = 10) -> ChatTokenizer:
    return ChatTokenizer(Letters(), max_positions=room).replying(reply)


def turns(*texts: str) -> list[UserTurn]:
    return [UserTurn(text, Expected("contains_all", ("x",))) for text in texts]


@pytest.mark.parametrize("room", [None, 100, 57])
def test_what_fits_stays_as_it_is(room):
    asked = turns("a" * 20, "b" * 6)
    assert fitted(asked, None, chat(room)).turns == tuple(asked)
    assert fitted(asked, None, chat(room)).remark is None


def test_a_prompt_that_does_not_fit_loses_its_middle_and_its_score():
    text = "begin " + "m" * 500 + " end?"
    fit = fitted(turns(text), None, chat(60))
    (turn,) = fit.turns
    assert len(chat(60).first_turn(turn.text)) == 50
    assert turn.text.startswith("begin mm")
    assert turn.text.endswith("mm end?")
    assert turn.expected is None
    assert fit.remark == "the middle of its prompt is left out, 515 tokens became 50"


def test_later_turns_that_do_not_fit_are_left_out():
    asked = turns("a" * 20, "b" * 6, "c" * 6)
    fit = fitted(asked, None, chat(60))
    assert fit.turns == tuple(asked[:2])
    assert fit.remark == "turns 3 to 3 do not fit and are left out"
    fit = fitted(turns("a" * 100, "b"), None, chat(60))
    assert len(fit.turns) == 1
    assert fit.remark.endswith("turns 2 to 2 too")


def test_a_system_message_that_fills_the_target_is_left_to_the_runner():
    asked = turns("a" * 100)
    assert fitted(asked, "s" * 100, chat(60)).turns == tuple(asked)
