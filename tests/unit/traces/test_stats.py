"""What a trace holds, in numbers."""

from __future__ import annotations

import pytest

from trainmaster.model.job import Job
from trainmaster.model.placement import Role
from trainmaster.model.trace import Outcome, Trace, TracedJob
from trainmaster.model.units import HOUR
from trainmaster.traces.csv_reader import demand_for
from trainmaster.traces.stats import GroupUsage, OutcomeShare, SizeCount, describe

TRACE = Trace(
    jobs=(
        TracedJob(Job("a", HOUR, demand_for(8), queue="x", model="vgg19"), HOUR),
        TracedJob(
            Job("b", 2 * HOUR, demand_for(2, minimum=1, maximum=4), queue="y", user="u"),
            HOUR,
            Outcome.FAILED,
            (HOUR, HOUR),
        ),
        TracedJob(
            Job("c", 27 * HOUR, demand_for(1, 500), queue="y", role=Role.OPPORTUNISTIC),
            4 * HOUR,
            Outcome.CANCELLED,
        ),
    ),
    notes=("said",),
)


def test_a_small_trace():
    found = describe(TRACE, gpus=4)
    assert (found.jobs, found.first_submit_s, found.span_s) == (3, 3600, 26 * 3600)
    assert (found.gpu_hours, found.failed_gpu_hours) == (12.0, 4.0)
    assert found.load == pytest.approx(12 / (4 * 26))
    assert found.sizes == (SizeCount(0.5, 1), SizeCount(2.0, 1), SizeCount(8.0, 1))
    assert found.largest_gpus == 8
    assert found.outcomes == (
        OutcomeShare(Outcome.SUCCEEDED, 1, 8.0),
        OutcomeShare(Outcome.FAILED, 1, 2.0),
        OutcomeShare(Outcome.CANCELLED, 1, 2.0),
    )
    assert [times.label for times in found.run_times] == ["<1", "2-4", "5-8"]
    assert [hour for hour, count in enumerate(found.arrivals_by_hour) if count] == [1, 2, 3]
    assert found.queues == (GroupUsage("x", 1, 8.0), GroupUsage("y", 2, 4.0))
    assert (found.user_count, found.model_count) == (1, 1)
    assert (found.elastic, found.fractional, found.opportunistic) == (1, 1, 1)
    assert (found.with_failures, found.failed_attempts, found.notes) == (1, 2, ("said",))


def test_percentiles_follow_the_contract():
    jobs = tuple(TracedJob(Job(str(n), 0, demand_for(1)), n * 1000) for n in range(1, 11))
    (times,) = describe(Trace(jobs)).run_times
    assert (times.p50_s, times.p90_s, times.p99_s) == (6, 10, 10)
    assert (times.mean_s, times.longest_s) == (5.5, 10)


def test_there_is_no_load_without_gpus_or_without_a_span():
    assert describe(TRACE).load is None
    assert describe(Trace(TRACE.jobs[:1]), gpus=8).load is None


def test_the_ends_of_phillys_jobs():
    """Table 6 of the study: 66,696 passed, 12,996 killed, 16,568 unsuccessful of 96,260."""
    ends = {Outcome.SUCCEEDED: 66_696, Outcome.CANCELLED: 12_996, Outcome.FAILED: 16_568}
    job = Job("a", 0, demand_for(1))
    jobs = tuple(TracedJob(job, HOUR, end) for end, count in ends.items() for _ in range(count))
    found = describe(Trace(jobs))
    assert found.jobs == 96_260
    shares = {each.outcome: round(100 * each.jobs / found.jobs, 1) for each in found.outcomes}
    assert shares == {Outcome.SUCCEEDED: 69.3, Outcome.CANCELLED: 13.5, Outcome.FAILED: 17.2}
