"""A global batch is divided so that the rank that takes longest takes least, and all of it is divided."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster_sdk.batch_shares import Division, Divisions, divided, longest, saves_enough

SPEEDS = st.lists(st.integers(1, 1_000_000), min_size=1, max_size=6).map(tuple)


@pytest.mark.parametrize(
    ("total", "speeds", "most", "wanted"),
    [
        (48, (1, 1), (), (24, 24)),
        (49, (1, 1), (), (25, 24)),
        (48, (3, 1), (), (36, 12)),
        (50, (300, 100, 100), (), (30, 10, 10)),
        (10, (1000, 1), (), (9, 1)),
        (2, (5, 5, 5), (), (1, 1, 0)),
        (48, (3, 1), (30, 0), (30, 18)),
        (48, (3, 1), (10, 10), (36, 12)),
    ],
)
def test_shares_follow_speeds(
    total: int, speeds: tuple[int, ...], most: tuple[int, ...], wanted: tuple[int, ...]
) -> None:
    assert divided(total, speeds, most) == wanted


@given(st.integers(0, 300), SPEEDS)
def test_all_samples_are_divided_and_none_goes_without(total: int, speeds: tuple[int, ...]) -> None:
    shares = divided(total, speeds)
    assert sum(shares) == total
    assert total < len(speeds) or min(shares) >= 1


@given(st.integers(3, 12), st.lists(st.integers(1, 20), min_size=2, max_size=3).map(tuple))
def test_no_other_shares_are_faster(total: int, speeds: tuple[int, ...]) -> None:
    others = product(range(1, total + 1), repeat=len(speeds))
    best = min(longest(each, speeds) for each in others if sum(each) == total)
    assert longest(divided(total, speeds), speeds) == best


def test_shares_change_only_where_that_pays() -> None:
    assert saves_enough((24, 24), (36, 12), (3, 1), gain=0.05)
    assert not saves_enough((24, 24), (25, 23), (104, 100), gain=0.05)


def test_a_division_holds_from_its_first_sample_on() -> None:
    known = Divisions()
    known.add(Division(96, (3, 1), (0, 0)))
    known.add(Division(192, (1, 1), (0, 0)))
    begins = (0, 48, 96, 144, 192)
    assert [known.shares_at(begin, 48, 2) for begin in begins] == [
        *((24, 24), (24, 24)),
        *((36, 12), (36, 12)),
        (24, 24),
    ]
    known.forget_before(144)
    assert known.shares_at(144, 48, 2) == (36, 12)


def test_a_gang_of_another_size_begins_with_equal_shares() -> None:
    known = Divisions()
    known.add(Division(0, (3, 1), (0, 0)))
    assert known.shares_at(48, 48, 3) == (16, 16, 16)
