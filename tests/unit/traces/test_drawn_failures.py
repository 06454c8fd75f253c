"""Reasons of failures drawn from the study: as often as there, by size and by run time to failure."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from tests.builders import a_trace, traced
from trainmaster.daemon.failure_table import built_in_table
from trainmaster.model.trace import Outcome
from trainmaster.traces import philly_like, philly_tables
from trainmaster.traces.drawn_failures import draw_failures

MINUTE_S = 60


@pytest.fixture(scope="module")
def drawn():
    """A trace in which nothing fails, with failures."""
    plain = philly_like.generate(8_000, 512, 0.9, 3)
    jobs = (replace(t, outcome=Outcome.SUCCEEDED, failed_attempts_ms=()) for t in plain.jobs)
    return draw_failures(replace(plain, jobs=tuple(jobs)), 1)


def test_every_reason_of_the_study_is_in_our_own_table():
    known = built_in_table().by_key
    assert {reason.key for reason in philly_tables.FAILURES} <= set(known)


def test_the_same_seed_gives_the_same_failures():
    trace = philly_like.generate(500, 64, 0.9, 1)
    assert draw_failures(trace, 4) == draw_failures(trace, 4)
    assert draw_failures(trace, 4) != draw_failures(trace, 5)


def test_jobs_fail_as_often_as_in_the_study(drawn):
    failed = [each for each in drawn.jobs if each.outcome is Outcome.FAILED]
    assert len(failed) / len(drawn.jobs) == pytest.approx(0.172, abs=0.02)
    trials = sum(1 + len(each.failed_attempts_ms) for each in failed)
    assert trials / len(failed) == pytest.approx(2.26, abs=0.25)
    assert "chosen to fail" in drawn.notes[-1]
    passing = [each for each in drawn.jobs if each.outcome is Outcome.SUCCEEDED]
    recovered = [each for each in passing if each.failed_attempts_ms]
    assert len(recovered) / len(drawn.jobs) == pytest.approx(0.0105, abs=0.004)
    reasons = Counter(each.failure_reasons[0] for each in failed)
    assert {reason for reason, _ in reasons.most_common(3)} == {
        *("incorrect-input", "host-out-of-memory", "semantic-error"),
    }


def test_there_is_a_reason_for_each_failure_and_retries_for_each_attempt(drawn):
    for each in drawn.jobs:
        failures = len(each.failed_attempts_ms) + (each.outcome is Outcome.FAILED)
        assert len(each.failure_reasons) == failures
        assert each.job.retries >= len(each.failed_attempts_ms)


def test_what_a_trace_says_of_its_failures_is_kept():
    trace = philly_like.generate(300, 64, 0.9, 2)
    for before, after in zip(trace.jobs, draw_failures(trace, 0).jobs, strict=True):
        assert after.failed_attempts_ms == before.failed_attempts_ms
        assert (after.outcome, after.service_ms) == (before.outcome, before.service_ms)


def test_a_job_that_passes_in_the_end_has_a_reason_that_may_pass():
    jobs = [traced(f"j{n}", 1, 600, failed_s=(13 * MINUTE_S,)) for n in range(200)]
    reasons = {each.failure_reasons for each in draw_failures(a_trace(*jobs), 0).jobs}
    transient = {r.key for r in philly_tables.FAILURES if not r.is_deterministic}
    assert len(reasons) > 1
    assert {reason for each in reasons for reason in each} <= transient


@pytest.mark.parametrize(
    ("gpus", "minutes", "expected"),
    [(1, 13.4, "host-out-of-memory"), (4, 15_000, "mpi-runtime-failure"), (16, 1.6, None)],
)
def test_the_run_time_tells_the_reason(gpus, minutes, expected):
    jobs = [traced(f"j{n}", gpus, minutes * MINUTE_S, outcome=Outcome.FAILED) for n in range(300)]
    found = Counter(each.failure_reasons[0] for each in draw_failures(a_trace(*jobs), 0).jobs)
    if expected is None:
        assert found["mpi-runtime-failure"] == 0
    else:
        assert found.most_common(1)[0][0] == expected


def test_jobs_that_fail_on_inputs_share_them_within_their_queue(drawn):
    inputs: dict[str, list] = {}
    for each in drawn.jobs:
        assert bool(each.bad_input) == ("incorrect-input" in each.failure_reasons)
        if each.bad_input:
            inputs.setdefault(each.bad_input, []).append(each.job)
    jobs = sum(map(len, inputs.values()))
    assert jobs / len(inputs) == pytest.approx(4, rel=0.2)
    assert all(len({job.queue for job in those}) == 1 for those in inputs.values())
    assert all(job.user for those in inputs.values() for job in those)
