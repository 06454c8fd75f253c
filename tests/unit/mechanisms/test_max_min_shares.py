"""YARN's fair shares, max-min budgets and the order of offers: the numbers of section 2."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.mechanisms.fair_share.max_min_shares import Claim, budgets, fair_shares, offer_key
from trainmaster.model.units import WHOLE


@pytest.mark.parametrize(
    ("claims", "total", "want"),
    {
        "in proportion to weights": ([Claim(1), Claim(1), Claim(2)], 16, [4, 4, 8]),
        "a minimum comes first": ([Claim(1, 6), Claim(1), Claim(2)], 16, [6, 3, 7]),
        "a minimum, in thousandths": (
            [Claim(1, 6_000), Claim(1), Claim(2)],
            16_000,
            [6_000, 3_333, 6_667],
        ),
        "no partition, in thousandths": ([Claim()] * 3, 10_000, [3_334] * 3),
        "no partition, in whole GPUs": ([Claim()] * 3, 10, [4, 4, 4]),
        "a maximum": ([Claim(1, 0, 2), Claim(1)], 16, [2, 14]),
        "maxima below the total": ([Claim(1, 0, 2), Claim(1, 0, 3)], 16, [2, 3]),
        "minima above the total": ([Claim(1, 9), Claim(1, 9)], 16, [9, 9]),
        "nobody": ([], 16, []),
        "nothing": ([Claim()], 0, [0]),
    }.values(),
)
def test_yarns_procedure(claims: list[Claim], total: int, want: list[int]) -> None:
    assert fair_shares(claims, total) == want


@pytest.mark.parametrize(
    ("claims", "total", "want"),
    {
        "what one does not want the other gets": (
            [Claim(1, 0, 9_000), Claim(1, 0, 3_000)],
            8_000,
            [5_000, 3_000],
        ),
        "both want more than half": (
            [Claim(1, 0, 9_000), Claim(1, 0, 8_000)],
            8_000,
            [4_000, 4_000],
        ),
        "rounded down, never above the total": ([Claim(1, 0, 9)] * 3, 10, [3, 3, 3]),
        "enough for all": ([Claim(1, 0, 2), Claim(5, 0, 3)], 8, [2, 3]),
        "a guarantee": ([Claim(1, 6, 9), Claim(1, 0, 9), Claim(2, 0, 9)], 16, [6, 3, 6]),
        "a guarantee of more than one wants": ([Claim(1, 6, 2), Claim(1, 0, 9)], 8, [2, 6]),
        "guarantees that do not fit are cut alike": (
            [Claim(1, 6, 9), Claim(9, 6, 9)],
            8,
            [4, 4],
        ),
        "a minimum of one and a maximum of another": (
            [Claim(1, 8, 99), Claim(4, 0, 3), Claim(1, 0, 99)],
            16,
            [8, 3, 5],
        ),
        "nobody": ([], 8, []),
    }.values(),
)
def test_budgets(claims: list[Claim], total: int, want: list[int]) -> None:
    assert budgets(claims, total) == want


some_claims = st.lists(
    st.tuples(st.integers(1, 9), st.integers(0, 9_000), st.integers(0, 20_000)).map(
        lambda each: Claim(each[0], min(each[1], each[2]), each[2])
    ),
    min_size=1,
    max_size=6,
)


@given(claims=some_claims, total=st.integers(0, 40_000))
def test_budgets_are_max_min(claims: list[Claim], total: int) -> None:
    """Never above total or demand, nothing left but crumbs, and nobody has more than its due at the
    cost of one that has less."""
    found = budgets(claims, total)
    assert sum(found) <= total
    demand = sum(claim.most or 0 for claim in claims)
    assert sum(found) >= min(total, demand) - len(claims)
    if sum(claim.least for claim in claims) > total:
        return
    for poor, mine in zip(claims, found, strict=True):
        assert poor.least <= mine <= (poor.most or 0)
        if mine < (poor.most or 0):
            for rich, theirs in zip(claims, found, strict=True):
                if theirs > rich.least:
                    assert (theirs - 1) * poor.weight <= (mine + 1) * rich.weight


def test_the_order_of_offers() -> None:
    """Needy queues first, by usage / guarantee; then by usage / weight; who wants nothing last."""
    queues = {
        "idle": (Claim(9), 0, 0),
        "rich": (Claim(1), 4, 9),
        "heavy": (Claim(3), 6, 9),
        "alike": (Claim(1), 2, 9),
        "needy": (Claim(1, 8), 6, 9),
        "needier": (Claim(1, 8), 2, 9),
        "served": (Claim(1, 8), 8, 9),
        "modest": (Claim(1, 8), 3, 3),
    }
    order = sorted(queues, key=lambda name: offer_key(name, *queues[name]))
    want = ["needier", "needy", "alike", "heavy", "modest", "rich", "served", "idle"]
    assert order == want


def test_thousandths_are_the_unit() -> None:
    assert fair_shares([Claim()] * 2, 7 * WHOLE) == [3_500, 3_500]
