"""The Gittins index, by hand and against a slow reading of its definition."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.estimators.service.gittins_of_samples import (
    EmpiricalDistribution,
    ServiceInterval,
    gittins_costs,
)

THREE = EmpiricalDistribution([4, 8, 12])
"""Algorithms.md section 3 (6): a job takes 4, 8 or 12, each as likely."""

PRINTED = {0: 8, 1: 7, 2: 6, 3: 3, 4: 6, 5: 5, 6: 4, 7: 2, 8: 4, 11: 1}


@pytest.mark.parametrize(("attained", "inverse"), PRINTED.items())
def test_the_printed_formula_for_4_8_12(attained: int, inverse: int) -> None:
    assert THREE.index(attained) == Fraction(1, inverse)


@pytest.mark.parametrize(("attained", "inverse"), [(0, 12), (4, 8), (8, 4)])
def test_a_fixed_quantum_of_4(attained: int, inverse: int) -> None:
    assert THREE.index(attained, quantum=4) == Fraction(1, inverse)


def test_a_quantum_without_end_is_one_over_the_mean_still_to_come() -> None:
    assert THREE.index_to_the_end(0) == Fraction(1, 8)
    assert THREE.index_to_the_end(5) == Fraction(1, 5)  # 3 or 7 to come


@pytest.mark.parametrize("attained", [12, 13])
def test_nothing_is_expected_of_a_job_that_has_outlived_all_samples(attained: int) -> None:
    assert THREE.index(attained) == THREE.index(attained, quantum=4) == 0
    assert THREE.index_to_the_end(attained) == 0


def unconditional(samples: list[int], attained: int) -> Fraction:
    """The variant behind the paper's Figure 7: P(a < S <= a + D) over all jobs in the numerator."""
    later = [s for s in samples if s > attained]
    found = []
    for end in later:
        chance = Fraction(sum(s <= end for s in later), len(samples))
        expense = Fraction(sum(min(s, end) - attained for s in later), len(later))
        found.append(chance / expense)
    return max(found)


def test_the_variant_with_an_unconditional_numerator_is_another_index() -> None:
    inverses = [1 / unconditional([4, 8, 12], attained) for attained in (0, 4, 8)]
    assert inverses == [8, 9, 12]
    assert [1 / THREE.index(attained) for attained in (0, 4, 8)] == [8, 6, 4]


@given(st.lists(st.integers(1, 40), min_size=1, max_size=12), st.integers(0, 41))
def test_it_is_the_supremum_over_every_quantum(samples: list[int], attained: int) -> None:
    later = [s - attained for s in samples if s > attained]
    by_definition = [
        Fraction(sum(s <= d for s in later), sum(min(s, d) for s in later))
        for d in range(1, 42)
        if later
    ]
    assert EmpiricalDistribution(samples).index(attained) == max(by_definition, default=Fraction(0))


@given(st.lists(st.integers(1, 40), min_size=1, max_size=12))
def test_stretches_between_the_samples_give_the_same_index(samples: list[int]) -> None:
    known = EmpiricalDistribution(samples)
    edges = [0, *known.points]
    inverses = gittins_costs([known.interval(low, high) for low, high in pairwise(edges)])
    for attained, inverse in zip(edges, inverses, strict=False):
        assert inverse == pytest.approx(float(1 / known.index(attained)))


def test_an_interval_in_which_no_job_ends_has_infinite_cost() -> None:
    assert gittins_costs([ServiceInterval(0.5, 2.0), ServiceInterval(0.0, 1.0)]) == [4.0, inf]
