"""Where each token of a reply begins: pieces are the text again, whatever the tokenizer cuts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from hyflash_bench.suites.chat import ChatTokenizer

END = 256


class Bytes:
    """A tokenizer of bytes: characters beyond ASCII take several tokens, and one token is special."""

    chat_template = None
    eos_token_id = END

    def decode(self, tokens: Sequence[int], *, skip_special_tokens: bool) -> str:
        """Bytes as text; an unfinished character becomes the replacement sign."""
        said = (b"" if skip_special_tokens else b"<end>") if END in tokens else b""
        return bytes(token for token in tokens if token != END).decode("utf-8", "replace") + said.decode()


def _pieces(tokens: Sequence[int]) -> list[str]:
    chat = ChatTokenizer(Bytes())
    text, starts = chat.decode(tokens), chat.offsets(tokens)
    return [text[start:end] for start, end in pairwise([*starts, len(text)])]


def test_a_token_a_letter() -> None:
    assert _pieces(list(b"abc")) == ["a", "b", "c"]


def test_a_character_of_several_tokens_belongs_to_the_one_that_completes_it() -> None:
    tokens = list("a\u00e9\U0001f600b".encode())
    assert _pieces(tokens) == ["a", "", "\u00e9", "", "", "", "\U0001f600", "b"]


def test_a_special_token_is_empty() -> None:
    assert _pieces([*b"ab", END]) == ["a", "b", ""]
    assert _pieces([END]) == [""]


def test_a_reply_that_a_limit_cut_within_a_character_ends_with_the_replacement_sign() -> None:
    assert "".join(_pieces(list("a\u00e9".encode())[:-1])) == "a\ufffd"


def test_nothing_said_has_no_offsets() -> None:
    assert ChatTokenizer(Bytes()).offsets([]) == []


@given(st.lists(st.integers(0, END), max_size=24))
def test_pieces_are_the_text_and_offsets_never_go_back(tokens: list[int]) -> None:
    """Also of bytes that are no text at all."""
    chat = ChatTokenizer(Bytes())
    starts = chat.offsets(tokens)

    assert len(starts) == len(tokens)
    assert starts == sorted(starts)
    assert "".join(_pieces(tokens)) == chat.decode(tokens)


def test_what_tokens_add_begins_where_the_text_before_ends() -> None:
    chat = ChatTokenizer(Bytes())
    euro = "\u20ac".encode()
    assert chat.continued([*b"ab"], [*b"cd"]) == "cd"
    assert chat.continued([*b"a", *euro[:1]], [*euro[1:], *b"!"]) == "\u20ac!"
    assert chat.continued([*b"a"], [*euro[:2]]) == "\ufffd"
    assert chat.continued([*b"a"], [END]) == "<end>"
    assert chat.continued([], [*b"a"]) == "a"
