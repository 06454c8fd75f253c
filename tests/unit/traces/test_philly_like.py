"""The generator follows what is published of Philly, meets its load, and repeats itself."""

from __future__ import annotations

import io
from collections import Counter

import numpy as np
import pytest

from trainmaster.model.trace import Outcome, Trace, TraceError
from trainmaster.traces import native, philly_like, philly_tables, stats

JOBS, GPUS, LOAD = 60_000, 2496, 0.95


@pytest.fixture(scope="module")
def trace() -> Trace:
    return philly_like.generate(JOBS, GPUS, LOAD, seed=7)


def test_sizes_follow_gavels_mix(trace):
    sizes = Counter(traced.job.demand.nominal.count for traced in trace.jobs)
    for gpus, percent in philly_tables.SIZE_MIX:
        assert 100 * sizes[gpus] / JOBS == pytest.approx(percent, abs=0.6)


def test_run_times_pass_through_the_published_points(trace):
    for low, high, tolerance in ((1, 1, 0.01), (2, 4, 0.015), (5, 8, 0.02), (9, 64, 0.05)):
        minutes = np.array(
            [
                traced.service_ms / 60_000
                for traced in trace.jobs
                if low <= traced.job.demand.nominal.count <= high
            ]
        )
        for point, part in philly_tables.run_time_curve(high):
            # A run time is a whole second, so half a second belongs to the point.
            assert np.mean(minutes <= point + 1 / 120) == pytest.approx(part, abs=tolerance)


def test_ends_have_the_published_shares_of_jobs_and_gpu_time(trace):
    shares = {share.outcome: share for share in stats.describe(trace).outcomes}
    hours = sum(share.gpu_hours for share in shares.values())
    published = {
        Outcome.SUCCEEDED: (0.693, 0.4453),
        Outcome.CANCELLED: (0.135, 0.3769),
        Outcome.FAILED: (0.172, 0.1776),
    }
    for outcome, (jobs, time) in published.items():
        assert shares[outcome].jobs / JOBS == pytest.approx(jobs, abs=0.006)
        assert shares[outcome].gpu_hours / hours == pytest.approx(time, abs=0.03)


def test_unsuccessful_jobs_fail_as_often_as_published(trace):
    failed = [traced for traced in trace.jobs if traced.outcome is Outcome.FAILED]
    trials = sum(1 + len(traced.failed_attempts_ms) for traced in failed)
    assert trials / len(failed) == pytest.approx(2.26, abs=0.05)
    assert not any(
        traced.failed_attempts_ms for traced in trace.jobs if traced.outcome is not Outcome.FAILED
    )
    assert all(traced.job.retries >= len(traced.failed_attempts_ms) for traced in trace.jobs)


def test_times_to_failure_pass_through_the_published_percentiles():
    for failure in philly_tables.FAILURES:
        got = philly_like.quantile(failure.curve(), np.array([0.5, 0.9, 0.95]))
        assert got[:2] == pytest.approx([failure.p50, failure.p90])
        assert got[2] == pytest.approx(failure.p95)


def test_times_to_failure_are_those_of_the_reasons(trace):
    minutes = sorted(
        ms / 60_000
        for traced in trace.jobs
        if traced.job.demand.nominal.count == 1
        for ms in traced.failed_attempts_ms
    )
    # On one GPU most failures are out of memory on the CPU, at 13.45 minutes in the middle.
    assert 5 < minutes[len(minutes) // 2] < 14
    assert minutes[-1] <= philly_tables.LONGEST_MIN


@pytest.mark.parametrize("load", [0.3, 0.95, 1.5])
@pytest.mark.parametrize("jobs", [2, 100, 5000])
def test_the_load_is_met_as_realised(jobs, load):
    trace = philly_like.generate(jobs, 64, load, seed=3)
    assert stats.describe(trace, 64).load == pytest.approx(load, rel=0.001)
    assert trace.jobs[0].job.submit_ms == 0


def test_arrivals_follow_the_day_and_the_week(trace):
    by_hour = stats.describe(trace).arrivals_by_hour
    assert max(by_hour) == max(by_hour[13:17])
    assert max(by_hour) / min(by_hour) == pytest.approx(1.4 / 0.6, rel=0.15)
    days = Counter(traced.job.submit_ms // 86_400_000 % 7 for traced in trace.jobs)
    weekend = (days[5] + days[6]) / 2
    assert weekend / (sum(days[day] for day in range(5)) / 5) == pytest.approx(0.8, rel=0.15)


def test_jobs_are_in_order_with_queues_users_and_models(trace):
    submits = [traced.job.submit_ms for traced in trace.jobs]
    assert submits == sorted(submits)
    assert trace.notes == ()
    queues = Counter(traced.job.queue for traced in trace.jobs)
    assert len(queues) == 10
    assert queues["vc0"] / JOBS == pytest.approx(0.30, abs=0.01)
    assert {traced.job.model for traced in trace.jobs} == set(philly_tables.MODELS)
    assert all(traced.job.user.startswith(traced.job.queue) for traced in trace.jobs)


def test_no_job_is_larger_than_the_cluster():
    for gpus in (1, 3, 8):
        trace = philly_like.generate(500, gpus, 0.9, seed=1)
        assert max(traced.job.demand.nominal.count for traced in trace.jobs) <= gpus


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others():
    texts = []
    for seed in (1, 1, 2):
        out = io.StringIO()
        native.write(philly_like.generate(300, 64, 0.9, seed), out)
        texts.append(out.getvalue())
    assert texts[0] == texts[1] != texts[2]


def test_one_job_is_a_trace():
    assert len(philly_like.generate(1, 8, 0.9, seed=0).jobs) == 1


BAD = {
    "a trace needs at least one job": (0, 8, 0.9, 0),
    "a cluster needs at least one GPU": (5, 0, 0.9, 0),
    "the load must be more than 0": (5, 8, 0.0, 0),
    "the load must be more than 0, such as 0.9, not nan": (5, 8, float("nan"), 0),
    "the seed must not be negative": (5, 8, 0.9, -1),
}


@pytest.mark.parametrize(("want", "arguments"), BAD.items(), ids=BAD.keys())
def test_what_cannot_be_generated_is_said(want, arguments):
    with pytest.raises(TraceError, match=want):
        philly_like.generate(*arguments)
