"""Probabilities of ending of classes of jobs: worked numbers, and the formulas written plainly."""

from __future__ import annotations

from math import exp

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainmaster.estimators.service.bins import BINS, EDGES, GPU_SECOND, UPPER, WIDTHS, bin_of
from trainmaster.estimators.service.gittins_by_bin import (
    BEYOND_GPU_S,
    CLASS_WEIGHT,
    MAX_PROBABILITY,
    NEGLIGIBLE,
    PRIOR_PROBABILITIES,
    BinProbabilityForecast,
    BinProbabilityHistogram,
    SiblingForecast,
    nearness,
)
from trainmaster.model.units import MINUTE

EVEN = [0.5] * BINS
"""A coin is thrown at each bin."""

# -- classes ---------------------------------------------------------------------------------------


def test_probabilities_are_ended_jobs_over_jobs_that_reached_the_bin() -> None:
    """Three ended in the first bin, one in the third; weight 0 would be 3/4, 0/1, 1/1."""
    found = BinProbabilityHistogram().with_ended([0, 0, 0, 2]).probabilities(EVEN, 2.0)
    assert found[0] == (3 + 2 * 0.5) / (4 + 2)
    assert found[1] == (0 + 2 * 0.5) / (1 + 2)
    assert found[2] == (1 + 2 * 0.5) / (1 + 2)
    assert found[3:] == EVEN[3:], "no job came further: the wider class speaks"


def test_one_that_goes_on_has_come_to_the_bins_that_it_left_behind_only() -> None:
    """Of the bin that it is in nothing is known yet."""
    found = BinProbabilityHistogram().with_ended([0]).with_going([2]).probabilities(EVEN, 2.0)
    assert found[0] == (1 + 1) / (2 + 2)
    assert found[1] == (0 + 1) / (1 + 2)
    assert found[2:] == EVEN[2:]


def test_the_heavier_the_wider_circle_the_nearer_to_it() -> None:
    counts = BinProbabilityHistogram().with_ended([0] * 10)
    probabilities = [counts.probabilities(EVEN, weight)[0] for weight in (0.001, 5.0, 1e6)]
    assert probabilities == sorted(probabilities, reverse=True)
    assert probabilities[0] == pytest.approx(1, abs=1e-3)
    assert probabilities[2] == pytest.approx(0.5, abs=1e-3)


def test_counts_add_up() -> None:
    twice = (
        BinProbabilityHistogram().with_ended([1]).with_going([2]).with_ended([1, 3]).with_going([2])
    )
    assert (twice.ended[1], twice.ended[3], twice.going[2]) == (2, 1, 2)
    assert BinProbabilityHistogram() == BinProbabilityHistogram(), "it is a value"


def test_before_anything_is_known_the_order_is_least_attained_service() -> None:
    known = BinProbabilityForecast(PRIOR_PROBABILITIES)
    inverses = [known.gittins_cost(step) for step in range(BINS)]
    assert inverses[1:] == sorted(inverses[1:])
    assert inverses[0] <= inverses[1]


# -- what a completion costs -----------------------------------------------------------------------


OVERLOOKED = NEGLIGIBLE / (1 - NEGLIGIBLE)
"""Those who hardly ever go on are not looked after: by so much a cost may be too high."""


def plainly(probabilities: list[float], step: int, expense: int) -> float:
    """The least of all ways to stop, each by summing from the beginning; in GPU-seconds."""
    costs = []
    for last in range(step, BINS):
        spent, ends, goes_on = expense / GPU_SECOND, 0.0, 1.0
        for index in range(step, min(last + 1, BINS - 1)):
            spent += goes_on * WIDTHS[index] * (1 - probabilities[index] / 2)
            ends += goes_on * probabilities[index]
            goes_on *= 1 - probabilities[index]
        if last == BINS - 1:
            costs.append(spent + goes_on * BEYOND_GPU_S)
        elif ends > 0:
            costs.append(spent / ends)
    return min(costs)


some_chances = st.lists(
    st.one_of(st.just(0.0), st.floats(1e-4, MAX_PROBABILITY)), min_size=BINS, max_size=BINS
)
some_expenses = st.sampled_from([0, 60 * GPU_SECOND, 2400 * GPU_SECOND])


@settings(max_examples=60, deadline=None)
@given(probabilities=some_chances, step=st.integers(0, BINS - 1), expense=some_expenses)
def test_inverse_by_trying_every_place_to_stop(
    probabilities: list[float], step: int, expense: int
) -> None:
    found = BinProbabilityForecast(probabilities).gittins_cost(step, expense)
    assert found / GPU_SECOND == pytest.approx(
        plainly(probabilities, step, expense), rel=OVERLOOKED, abs=0.002
    )


def test_a_certain_end_costs_half_the_bin() -> None:
    """All end in the first minute, somewhere in it: thirty seconds each."""
    sure = BinProbabilityForecast([MAX_PROBABILITY, *EVEN[1:]])
    assert sure.gittins_cost(0) / GPU_SECOND == pytest.approx(30, rel=1e-3)
    assert sure.gittins_cost(0, 300 * GPU_SECOND) / GPU_SECOND == pytest.approx(330, rel=1e-3)


def test_an_expense_makes_it_worth_while_to_go_on_for_longer() -> None:
    """Half end in the first minute, few later: stopping then wastes the expense every second time."""
    coin = BinProbabilityForecast([0.5, *[0.1] * (BINS - 1)])
    free, dear = coin.gittins_cost(0), coin.gittins_cost(0, 600 * GPU_SECOND)
    assert free / GPU_SECOND == 60 * 0.75 / 0.5
    assert free + 600 * GPU_SECOND < dear < free + 2 * 600 * GPU_SECOND


def test_beyond_all_bins_it_takes_as_long_again_and_again() -> None:
    assert BinProbabilityForecast(EVEN).gittins_cost(BINS - 1) == round(BEYOND_GPU_S) * GPU_SECOND


@settings(max_examples=60, deadline=None)
@given(probabilities=some_chances, step=st.integers(0, BINS - 1), part=st.floats(0.05, 0.99))
def test_quantile_by_counting(probabilities: list[float], step: int, part: float) -> None:
    found = BinProbabilityForecast(probabilities).quantile(step, part)
    goes_on, want = 1.0, None
    for index in range(step, BINS):
        goes_on *= 1 - probabilities[index]
        if goes_on <= 1 - part:
            want = UPPER[index]
            break
    assert found == want


def test_three_coins_leave_an_eighth() -> None:
    coin = BinProbabilityForecast(EVEN)
    assert coin.quantile(0, 0.875) == UPPER[2]
    assert coin.quantile(4, 0.875) == UPPER[6]
    assert coin.quantile(BINS - 1, 0.875) is None, "no edge is known there"


# -- siblings --------------------------------------------------------------------------------------

Sibling = tuple[int, int, int, bool]
"""(place, ms apart, bin, whether it ended there)."""


def blurred(counts: list[float], index: int) -> float:
    around = [counts[each] if 0 <= each < BINS else 0.0 for each in (index - 1, index, index + 1)]
    return (around[0] + 2 * around[1] + around[2]) / 4


def among_plainly(probabilities: list[float], siblings: list[Sibling]) -> list[float]:
    """Who ended in each bin and who came to it, one sibling at a time; then blurred."""
    ended, came = [0.0] * BINS, [0.0] * BINS
    for place, apart, last, has_ended in siblings:
        counts = exp(-place / 20) * exp(-apart / (30 * MINUTE)) if apart <= 120 * MINUTE else 0.0
        ended[last] += counts if has_ended else 0.0
        for index in range(last + 1 if has_ended else last):
            came[index] += counts
    return [
        min(
            MAX_PROBABILITY,
            (blurred(ended, i) + CLASS_WEIGHT * probabilities[i])
            / (blurred(came, i) + CLASS_WEIGHT),
        )
        for i in range(BINS)
    ]


def among(probabilities: list[float], siblings: list[Sibling]) -> SiblingForecast:
    known = [(nearness(place, apart), last, ended) for place, apart, last, ended in siblings]
    return SiblingForecast(probabilities, known)


some_siblings = st.lists(
    st.tuples(
        st.integers(1, 10),
        st.integers(0, 150 * MINUTE),
        st.integers(0, BINS - 1),
        st.booleans(),
    ),
    max_size=20,
)


@settings(max_examples=60, deadline=None)
@given(probabilities=some_chances, siblings=some_siblings, step=st.integers(0, BINS - 1))
def test_siblings_by_counting_one_at_a_time(
    probabilities: list[float], siblings: list[Sibling], step: int
) -> None:
    want = among_plainly(probabilities, siblings)
    found = among(probabilities, siblings)
    assert list(found.probabilities_from(0)) == pytest.approx(want, rel=1e-9)
    assert found.gittins_cost(step) / GPU_SECOND == pytest.approx(
        plainly(want, step, 0), rel=OVERLOOKED, abs=0.002
    )
    assert found.quantile(step, 0.9) == BinProbabilityForecast(want).quantile(step, 0.9)


def test_one_sibling_beside_it_that_ended_at_once_halves_the_doubt() -> None:
    """It counts e^(-1/20) of a job, half of it in its own bin and a quarter beside."""
    beside = exp(-1 / 20)
    first, second = list(among(EVEN, [(1, 0, 0, True)]).probabilities_from(0))[:2]
    assert first == pytest.approx((beside / 2 + 0.5) / (beside / 2 + 1))
    assert second == pytest.approx((beside / 4 + 0.5) / (beside / 4 + 1))


def test_a_sibling_half_an_hour_away_counts_a_third() -> None:
    known = [among(EVEN, [(1, apart, 0, True)]) for apart in (0, 30 * MINUTE)]
    near, far = [next(iter(each.probabilities_from(0))) for each in known]
    gained = [chance / (1 - chance) - 1 for chance in (near, far)]
    assert gained[1] / gained[0] == pytest.approx(exp(-1))


def test_quick_siblings_make_a_job_cheap_and_long_ones_dear() -> None:
    hour = bin_of(3600 * GPU_SECOND)
    quick = among(PRIOR_PROBABILITIES, [(place, 0, 0, True) for place in range(1, 6)])
    long = among(PRIOR_PROBABILITIES, [(place, 0, hour, True) for place in range(1, 6)])
    alone = BinProbabilityForecast(PRIOR_PROBABILITIES)
    assert quick.gittins_cost(0) < alone.gittins_cost(0) < long.gittins_cost(0)
    assert quick.gittins_cost(0) < EDGES[1]
    assert long.gittins_cost(hour) < alone.gittins_cost(hour), "there it is about to end"


def test_siblings_that_go_on_count_as_having_outlived_what_they_left_behind() -> None:
    hour = bin_of(3600 * GPU_SECOND)
    going = among(PRIOR_PROBABILITIES, [(place, 0, hour, False) for place in range(1, 6)])
    assert going.gittins_cost(0) > BinProbabilityForecast(PRIOR_PROBABILITIES).gittins_cost(0)
    beyond = list(going.probabilities_from(hour + 1))
    assert beyond == pytest.approx(PRIOR_PROBABILITIES[hour + 1 :]), (
        "further on nothing is known of them"
    )
