"""Ratios, intervals and ranks: known answers, and what must hold for any scores."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from trainmaster.evaluation.statistics import (
    Basis,
    Observed,
    geometric_mean,
    mean,
    paired_ratio,
    ranks,
)


def by_seed(*values: float) -> dict[int, Observed]:
    return {seed: Observed(value) for seed, value in enumerate(values)}


def test_a_ratio_is_the_geometric_mean_of_the_ratios_per_seed() -> None:
    found = paired_ratio(by_seed(50, 200), by_seed(100, 100))
    assert found is not None
    assert found.value == pytest.approx(1.0)
    assert (found.number, found.basis) == (2, Basis.SEEDS)


def test_pairs_are_made_by_seed_and_the_others_left_out() -> None:
    ours = {1: Observed(50.0), 2: Observed(60.0), 9: Observed(1e9)}
    theirs = {2: Observed(120.0), 1: Observed(100.0), 5: Observed(1.0)}
    found = paired_ratio(ours, theirs)
    assert found is not None
    assert found.value == pytest.approx(0.5)
    assert found.number == 2
    assert found.interval is not None
    assert found.interval.low == pytest.approx(0.5)
    assert found.interval.high == pytest.approx(0.5)


def test_the_same_scores_give_the_same_interval() -> None:
    ours, theirs = by_seed(3, 9, 4, 8, 5), by_seed(4, 7, 9, 9, 6)
    assert paired_ratio(ours, theirs) == paired_ratio(dict(reversed(ours.items())), theirs)


def test_an_interval_is_near_what_theory_says() -> None:
    logs = [(-1) ** seed * 0.1 for seed in range(40)]
    found = paired_ratio(
        by_seed(*(100 * math.exp(log) for log in logs)), by_seed(*(100 for _ in logs))
    )
    assert found is not None
    assert found.interval is not None
    half = 1.96 * 0.1 / math.sqrt(40)
    assert math.log(found.interval.high) == pytest.approx(half, rel=0.15)
    assert math.log(found.interval.low) == pytest.approx(-half, rel=0.15)


def test_one_trace_without_blocks_has_no_interval() -> None:
    found = paired_ratio(by_seed(80), by_seed(100))
    assert found is not None
    assert (found.value, found.interval, found.basis) == (0.8, None, Basis.NOTHING)
    assert found.is_below


def test_one_trace_with_blocks_is_resampled_over_them() -> None:
    ours = {0: Observed(75.0, (50.0, 100.0, 60.0, 90.0))}
    theirs = {0: Observed(100.0, (100.0, 100.0, 100.0, 100.0))}
    found = paired_ratio(ours, theirs)
    assert found is not None
    assert found.interval is not None
    assert (found.value, found.number, found.basis) == (0.75, 4, Basis.BLOCKS)
    assert 0.5 <= found.interval.low < 0.75 < found.interval.high <= 1.0


def test_blocks_that_do_not_pair_are_not_used() -> None:
    ours, theirs = {0: Observed(75.0, (50.0, 100.0))}, {0: Observed(100.0, (100.0,))}
    found = paired_ratio(ours, theirs)
    assert found is not None
    assert found.basis is Basis.NOTHING


@pytest.mark.parametrize(
    ("ours", "theirs", "ratio"),
    [(0.0, 0.0, 1.0), (0.2, 0.0, 1.0), (30.0, 0.0, 30.0), (0.0, 30.0, 1 / 30)],
)
def test_next_to_nothing_counts_as_one_second(ours: float, theirs: float, ratio: float) -> None:
    found = paired_ratio(by_seed(ours, ours), by_seed(theirs, theirs))
    assert found is not None
    assert found.value == pytest.approx(ratio)


def test_there_is_no_ratio_without_pairs_or_below_zero() -> None:
    assert paired_ratio({}, by_seed(1)) is None
    assert paired_ratio({1: Observed(1.0)}, {2: Observed(1.0)}) is None
    assert paired_ratio(by_seed(-5, 10), by_seed(10, 10)) is None


def test_a_mean_has_an_interval_over_seeds() -> None:
    found = mean({1: 10.0, 2: 20.0, 3: 30.0})
    assert found is not None
    assert found.interval is not None
    assert found.value == pytest.approx(20.0)
    assert 10.0 <= found.interval.low < 20.0 < found.interval.high <= 30.0
    assert mean({}) is None
    assert mean({4: 7.0}) is not None


def test_equals_share_their_places() -> None:
    assert ranks({"a": 3.0, "b": 1.0, "c": 3.0, "d": 9.0}) == {"b": 1, "a": 2.5, "c": 2.5, "d": 4}
    assert ranks({}) == {}


def test_a_geometric_mean_needs_positive_ratios() -> None:
    assert geometric_mean([0.5, 2.0]) == pytest.approx(1.0)
    assert geometric_mean([]) is None
    assert geometric_mean([1.0, 0.0]) is None


POSITIVE = st.floats(min_value=2.0, max_value=1e6)


@given(st.lists(st.tuples(POSITIVE, POSITIVE), min_size=2, max_size=12))
def test_the_interval_holds_the_ratio_and_turns_over_with_it(
    pairs: list[tuple[float, float]],
) -> None:
    assume(len(set(pairs)) > 1)  # chance changed something
    ours, theirs = by_seed(*(a for a, _ in pairs)), by_seed(*(b for _, b in pairs))
    there, back = paired_ratio(ours, theirs), paired_ratio(theirs, ours)
    assert there is not None
    assert back is not None
    assert there.interval is not None
    assert there.value == pytest.approx(1 / back.value)
    assert there.interval.low <= there.value * (1 + 1e-9)
    assert there.interval.high >= there.value * (1 - 1e-9)


def test_seeds_that_change_nothing_are_one_trace_and_not_a_perfect_measurement() -> None:
    ours, theirs = Observed(50.0, (10.0, 90.0)), Observed(100.0, (150.0, 50.0))
    found = paired_ratio(dict.fromkeys(range(3), ours), dict.fromkeys(range(3), theirs))
    assert found is not None
    assert found.basis is Basis.BLOCKS
    assert found.interval is not None
    assert found.interval.low < 0.5 < found.interval.high
