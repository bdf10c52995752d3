"""Invented facts to hide in a text and ask for. Nothing here is true of anything.

Every choice is made by hashing, so a puzzle is the same on every machine and Python version.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from hyflash_bench.suites.conversation import Expected

__all__ = ["PUZZLES", "Puzzle"]


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_PLACES = _words("""
Aldersey Birkholm Carrowick Dunmarsh Eskerby Farndale Gellport Harrowmere Inverleck
Jorvale Kestwick Lowmoor Marrick Norhaven Oxbarrow Pellstone Quarnley Rosscar Skellby
Thornhythe Ulverby Varnholt Westerlow Yarrowgate
""")
_BUILDINGS = _words("""
lighthouse mill bakery chapel station library ferry-house observatory
""")
_COLOURS = _words("""
amber cobalt crimson ebony emerald fawn indigo ivory jade lilac maroon mauve ochre olive
pearl russet saffron sepia silver teal umber violet
""")
_COINED = _words("""
brindel calvo dorrit esker fennick galder hobnat imber jessop kellin lorn mirrack nettel
orrin pallix quibb rondel sarn tavver umbrik vellan wexil yarrick zephin
""")


@dataclass(frozen=True, slots=True)
class Puzzle:
    """What to hide, and what to ask.

    Attributes:
        hidden: Sentences with their depth in the text, 0 (top) to 1 (end), in order.
        question: What is asked after the text.
        expected: How the reply is scored.
        category: Label in tables.
    """

    hidden: tuple[tuple[float, str], ...]
    question: str
    expected: Expected
    category: str


def needle(seed: int, index: int, number: int) -> Puzzle:
    """One fact at a given depth."""
    key = f"needle/{seed}/{index}"
    fact = _facts(key, 1)[0]
    depth = index / max(1, number - 1)
    return Puzzle(((depth, fact.sentence),), fact.question, fact.expected, _depth_label(depth))


def multi_needle(seed: int, index: int, number: int) -> Puzzle:
    """Four facts of one form, one of which is asked for."""
    key = f"multi-needle/{seed}/{index}"
    facts = _facts(key, 4)
    asked = index % 4
    depths = _spread(4)
    hidden = tuple((depth, fact.sentence) for depth, fact in zip(depths, facts, strict=True))
    fact = facts[asked]
    return Puzzle(hidden, fact.question, fact.expected, _depth_label(depths[asked]))


def variables(seed: int, index: int, number: int) -> Puzzle:
    """A number handed down a chain of names, beside a shorter chain with another number."""
    key = f"variables/{seed}/{index}"
    names = _shuffled(_COLOURS, key)
    count, other = _number(f"{key}/count"), _number(f"{key}/other", avoid=_number(f"{key}/count"))
    chain, distraction = _chain(names[:4], count), _chain(names[4:7], other)
    mixed = [chain[0], distraction[0], chain[1], distraction[1], chain[2], distraction[2], chain[3]]
    return Puzzle(
        tuple(zip(_spread(len(mixed)), mixed, strict=True)),
        f"Which crates hold {count} candles? There are four. "
        "Reply with their four colours only, separated by commas.",
        Expected("word_set", tuple(names[:4])),
        "variables",
    )


def word_frequency(seed: int, index: int, number: int) -> Puzzle:
    """Coined words on delivery notes, some of them more often than others."""
    key = f"word-frequency/{seed}/{index}"
    words = _shuffled(_COINED, key)
    times = dict(zip(words, (5, 4, 3, 1, 1, 1, 1), strict=False))
    notes = [f"{word}#{copy}" for word, copies in times.items() for copy in range(copies)]
    order = [note.partition("#")[0] for note in _shuffled(notes, f"{key}/order")]
    sentences = [f"A parcel marked {word} came today." for word in order]
    return Puzzle(
        tuple(zip(_spread(len(sentences)), sentences, strict=True)),
        "Here and there in the text a parcel is reported, with a made-up word on it. "
        "Which three of those words appear most often? "
        "Reply with the three words only, separated by commas.",
        Expected("word_set", tuple(words[:3])),
        "word-frequency",
    )


PUZZLES: dict[str, Callable[[int, int, int], Puzzle]] = {
    "needle": needle,
    "multi-needle": multi_needle,
    "variables": variables,
    "word-frequency": word_frequency,
}
"""By kind: a function of the seed, the item's index and the number of items."""


@dataclass(frozen=True, slots=True)
class _Fact:
    sentence: str
    question: str
    expected: Expected


def _facts(key: str, number: int) -> list[_Fact]:
    places = _shuffled(_PLACES, f"{key}/places")[:number]
    building = _shuffled(_BUILDINGS, f"{key}/building")[0]
    facts, used = [], 0
    for place in places:
        code = _number(f"{key}/{place}", avoid=used)
        used = code
        facts.append(
            _Fact(
                f"The door code of the {building} in {place} is {code}.",
                f"What is the door code of the {building} in {place}? Reply with the number only.",
                Expected("contains_all", (str(code),)),
            )
        )
    return facts


def _chain(names: Sequence[str], count: int) -> list[str]:
    first = f"The {names[0]} crate holds {count} candles."
    links = [
        f"The {name} crate holds as many candles as the {before} crate." for before, name in pairwise(names)
    ]
    return [first, *links]


def _spread(number: int) -> list[float]:
    return [(index + 0.5) / number for index in range(number)]


def _depth_label(depth: float) -> str:
    return f"depth-{round(depth * 100):02d}"


def _shuffled(values: Sequence[str], key: str) -> list[str]:
    return sorted(values, key=lambda value: _hash(f"{key}/{value}"))


def _number(key: str, avoid: int = 0) -> int:
    """Four digits."""
    number = 1000 + _hash(key) % 9000
    return number if number != avoid else 1000 + (number - 999) % 9000


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
