"""YARN's fair shares, max-min budgets and the order of offers: the numbers of section 2."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.mechanisms.fair_share.queue_tree import (
    ShareClaim,
    max_min_shares,
    offer_key,
    yarn_fair_shares,
)
from trainmaster.model.units import WHOLE


@pytest.mark.parametrize(
    ("claims", "total", "want"),
    {
        "in proportion to weights": ([ShareClaim(1), ShareClaim(1), ShareClaim(2)], 16, [4, 4, 8]),
        "a minimum comes first": ([ShareClaim(1, 6), ShareClaim(1), ShareClaim(2)], 16, [6, 3, 7]),
        "a minimum, in thousandths": (
            [ShareClaim(1, 6_000), ShareClaim(1), ShareClaim(2)],
            16_000,
            [6_000, 3_333, 6_667],
        ),
        "no partition, in thousandths": ([ShareClaim()] * 3, 10_000, [3_334] * 3),
        "no partition, in whole GPUs": ([ShareClaim()] * 3, 10, [4, 4, 4]),
        "a maximum": ([ShareClaim(1, 0, 2), ShareClaim(1)], 16, [2, 14]),
        "maxima below the total": ([ShareClaim(1, 0, 2), ShareClaim(1, 0, 3)], 16, [2, 3]),
        "minima above the total": ([ShareClaim(1, 9), ShareClaim(1, 9)], 16, [9, 9]),
        "nobody": ([], 16, []),
        "nothing": ([ShareClaim()], 0, [0]),
    }.values(),
)
def test_yarns_procedure(claims: list[ShareClaim], total: int, want: list[int]) -> None:
    assert yarn_fair_shares(claims, total) == want


@pytest.mark.parametrize(
    ("claims", "total", "want"),
    {
        "what one does not want the other gets": (
            [ShareClaim(1, 0, 9_000), ShareClaim(1, 0, 3_000)],
            8_000,
            [5_000, 3_000],
        ),
        "both want more than half": (
            [ShareClaim(1, 0, 9_000), ShareClaim(1, 0, 8_000)],
            8_000,
            [4_000, 4_000],
        ),
        "rounded down, never above the total": ([ShareClaim(1, 0, 9)] * 3, 10, [3, 3, 3]),
        "enough for all": ([ShareClaim(1, 0, 2), ShareClaim(5, 0, 3)], 8, [2, 3]),
        "a guarantee": (
            [ShareClaim(1, 6, 9), ShareClaim(1, 0, 9), ShareClaim(2, 0, 9)],
            16,
            [6, 3, 6],
        ),
        "a guarantee of more than one wants": (
            [ShareClaim(1, 6, 2), ShareClaim(1, 0, 9)],
            8,
            [2, 6],
        ),
        "guarantees that do not fit are cut alike": (
            [ShareClaim(1, 6, 9), ShareClaim(9, 6, 9)],
            8,
            [4, 4],
        ),
        "a minimum of one and a maximum of another": (
            [ShareClaim(1, 8, 99), ShareClaim(4, 0, 3), ShareClaim(1, 0, 99)],
            16,
            [8, 3, 5],
        ),
        "nobody": ([], 8, []),
    }.values(),
)
def test_budgets(claims: list[ShareClaim], total: int, want: list[int]) -> None:
    assert max_min_shares(claims, total) == want


some_claims = st.lists(
    st.tuples(st.integers(1, 9), st.integers(0, 9_000), st.integers(0, 20_000)).map(
        lambda each: ShareClaim(each[0], min(each[1], each[2]), each[2])
    ),
    min_size=1,
    max_size=6,
)


@given(claims=some_claims, total=st.integers(0, 40_000))
def test_budgets_are_max_min(claims: list[ShareClaim], total: int) -> None:
    """Never above total or demand, nothing left but crumbs, and nobody has more than its due at the
    cost of one that has less."""
    found = max_min_shares(claims, total)
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
        "idle": (ShareClaim(9), 0, 0),
        "rich": (ShareClaim(1), 4, 9),
        "heavy": (ShareClaim(3), 6, 9),
        "alike": (ShareClaim(1), 2, 9),
        "needy": (ShareClaim(1, 8), 6, 9),
        "needier": (ShareClaim(1, 8), 2, 9),
        "served": (ShareClaim(1, 8), 8, 9),
        "modest": (ShareClaim(1, 8), 3, 3),
    }
    order = sorted(queues, key=lambda name: offer_key(name, *queues[name]))
    want = ["needier", "needy", "alike", "heavy", "modest", "rich", "served", "idle"]
    assert order == want


def test_thousandths_are_the_unit() -> None:
    assert yarn_fair_shares([ShareClaim()] * 2, 7 * WHOLE) == [3_500, 3_500]
