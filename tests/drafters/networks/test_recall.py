"""What is remembered of rows that are too old to be copied from."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from hyflash_bench.drafters.networks.recall import Recall, places_taken, written_over
from tests.targets.families import random_tokens

NUM_PLACES, NUM_SLOTS, SIZE = 7, 3, 4
TOKENS = random_tokens(60, seed=4) % 9
KEYS = torch.randn(60, SIZE, generator=torch.Generator().manual_seed(5))
ROWS = range(1, 50)
"""Those before and behind them are known, so all of these can be remembered."""


def empty() -> Recall:
    head = SimpleNamespace(
        project=SimpleNamespace(weight=torch.empty(0, 8)),
        num_recalled=NUM_PLACES,
        size=SIZE,
        trust=torch.empty(NUM_SLOTS),
    )
    return Recall.of(head)


def remembered(*ends: int) -> Recall:
    """All rows, written in pieces that end there."""
    recall, start = empty(), ROWS.start
    for end in ends:
        recall.write(KEYS[start:end], TOKENS[start - 1 : end + NUM_SLOTS])
        start = end
    return recall


def by_hand() -> dict[int, int]:
    """The row that stands in each place: written one after another."""
    standing = {}
    for row in ROWS:
        standing[int(places_taken(TOKENS[row - 1], TOKENS[row], NUM_PLACES))] = row
    return standing


def test_the_last_row_of_each_place_stays_with_what_followed_it() -> None:
    recall = remembered(ROWS.stop)
    assert set(recall.is_filled.nonzero()[:, 0].tolist()) == set(by_hand())
    for place, row in by_hand().items():
        assert torch.equal(recall.keys[place], KEYS[row])
        assert recall.named[place].tolist() == TOKENS[row + 1 : row + 1 + NUM_SLOTS].tolist()


@pytest.mark.parametrize("ends", [(2, 3, 4, 50), (20, 21, 50), tuple(range(2, 51))], ids=str)
def test_the_pieces_in_which_rows_come_do_not_matter(ends: tuple[int, ...]) -> None:
    whole, pieces = remembered(ROWS.stop), remembered(*ends)
    assert torch.equal(whole.keys, pieces.keys)
    assert torch.equal(whole.named, pieces.named)


def test_rows_that_nothing_was_written_over_are_those_that_stand() -> None:
    taken = places_taken(TOKENS[ROWS.start - 1 : ROWS.stop - 1], TOKENS[ROWS.start : ROWS.stop], NUM_PLACES)
    over = written_over(taken)
    standing = {ROWS.start + row for row in range(len(taken)) if over[row] == len(taken)}
    assert standing == set(by_hand().values())
    for row, following in enumerate(over.tolist()):
        between = taken[row + 1 : following]
        assert taken[row] not in between
        assert following == len(taken) or taken[following] == taken[row]


def test_pairs_are_spread_over_all_places() -> None:
    pairs = torch.cartesian_prod(torch.arange(64), torch.arange(64))
    counts = places_taken(pairs[:, 0], pairs[:, 1], 256).bincount(minlength=256)
    assert counts.min() > 0
    assert counts.max() < 64  # 16 each
    assert len(places_taken(torch.tensor([1, 2]), torch.tensor([2, 1]), 4096).unique()) == 2
