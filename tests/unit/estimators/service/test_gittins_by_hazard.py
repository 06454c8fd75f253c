"""Hazards of ended and unfinished jobs, and what lies ahead of one that has come so far."""

from __future__ import annotations

from math import exp

import pytest

from trainmaster.estimators.service.bins import (
    BINS,
    EDGES,
    GPU_SECOND,
    NO_END,
    PRIOR,
    WIDTHS,
    as_service,
    bin_of,
)
from trainmaster.estimators.service.gittins_by_hazard import (
    HALF_LIFE,
    HazardForecast,
    HazardHistogram,
)

ALMOST_NONE = 1e-9
"""Weight of a wider that has nothing to say."""


def gpu_s(*seconds: float) -> list[int]:
    return [round(each * GPU_SECOND) for each in seconds]


def test_bins_begin_at_0_60_85_120_and_grow_by_the_root_of_two() -> None:
    assert [edge // GPU_SECOND for edge in EDGES[:5]] == [0, 60, 85, 120, 170]
    assert [bin_of(each) for each in gpu_s(0, 59.9, 60, 84.9, 85)] == [0, 0, 1, 1, 2]
    assert bin_of(EDGES[-1] * 10) == BINS - 1


def test_a_hazard_is_ends_over_service_received_in_the_bin() -> None:
    """One ended at 30 GPU-seconds, one at 70: in the first bin 30 + 60, in the second 10."""
    hazards = HazardHistogram().with_ended(gpu_s(30, 70)).hazards(PRIOR, weight=ALMOST_NONE)[:2]
    assert hazards == pytest.approx([1 / 90, 1 / 10])


def test_unfinished_jobs_count_for_what_they_have_survived() -> None:
    """Finished jobs alone are a censored sample: a third job, at 50 and going on, has not ended."""
    counts = HazardHistogram().with_ended(gpu_s(30, 70)).with_going(gpu_s(50))
    assert counts.hazards(PRIOR, weight=ALMOST_NONE)[0] == pytest.approx(1 / 140)
    assert counts.jobs == 3


def test_a_class_is_shrunk_towards_its_wider() -> None:
    counts, wider = HazardHistogram().with_ended(gpu_s(30)), [0.5] * BINS
    weak, strong = counts.hazards(wider, 3)[0], counts.hazards(wider, 20)[0]
    assert weak == pytest.approx((1 + 3) / (30 + 3 / 0.5))
    assert 1 / 30 < weak < strong < 0.5
    assert counts.hazards(wider, 3)[1] == pytest.approx(0.5), "no job has been there: the wider's"


def test_what_ended_long_ago_fades() -> None:
    counts = HazardHistogram().with_ended(gpu_s(*[30] * 40))
    assert counts.faded(HALF_LIFE).jobs == 20
    faded, full = (
        each.hazards(PRIOR, ALMOST_NONE)[0] for each in (counts.faded(HALF_LIFE), counts)
    )
    assert faded == pytest.approx(full), "the rate stays, only its weight fades"


def test_knowing_nothing_the_index_falls_with_service_as_in_las() -> None:
    forecast = HazardForecast(PRIOR)
    best = [forecast.gittins_cost(step) for step in range(BINS)]
    assert best == sorted(best)
    assert len(set(best)) == BINS


def test_constant_hazard_means_constant_index_whatever_the_quantum() -> None:
    forecast = HazardForecast([0.01] * BINS)
    assert {forecast.gittins_cost(step) for step in range(BINS)} == {100 * GPU_SECOND}
    for quantum in (None, *gpu_s(1, 60, 1_000)):
        assert forecast.gittins_cost_within(3, quantum) == 100 * GPU_SECOND


def test_a_job_on_its_way_to_where_many_end_is_worth_more_the_nearer_it_is() -> None:
    hazards = [1e-6] * BINS
    hazards[10] = 1.0
    forecast = HazardForecast(hazards)
    best = [forecast.gittins_cost(step) for step in range(BINS)]
    assert best[:11] == sorted(best[:11], reverse=True)
    assert best[10] == GPU_SECOND
    assert best[11] == 1_000_000 * GPU_SECOND


def test_a_quantum_ends_inside_a_bin() -> None:
    """From 0: the whole first bin at one hazard, ten GPU-seconds of the second at another."""
    hazards = [0.01, 0.05, *[1e-4] * (BINS - 2)]
    first, second = 1 - exp(-0.01 * WIDTHS[0]), 1 - exp(-0.5)
    ends = first + (1 - first) * second
    spends = first / 0.01 + (1 - first) * second / 0.05
    (quantum,) = gpu_s(70)
    assert HazardForecast(hazards).gittins_cost_within(0, quantum) == as_service(spends / ends)


def test_without_end_is_the_mean_still_to_come() -> None:
    hazards = [0.01, *[0.1] * (BINS - 1)]
    survives = exp(-0.01 * 60)
    assert HazardForecast(hazards).gittins_cost_within(0, None) == as_service(
        (1 - survives) / 0.01 + survives / 0.1
    )


def test_what_never_ends_ranks_behind_everything() -> None:
    assert as_service(float("inf")) == as_service(1e300) == NO_END
    assert as_service(1.5) == 1_500_000
