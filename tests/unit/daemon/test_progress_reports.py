"""Reports of steps: a job's start-up counts once in the estimate of its work, and in that of later runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.builders import a_job
from tests.unit.core.stage import Strings
from tests.unit.daemon.test_freeze_reports import live
from trainmaster.config.limits import Limits
from trainmaster.daemon.job_history import JobHistory
from trainmaster.daemon.known_profiles import KnownProfiles, KnownProgram
from trainmaster.daemon.live_job import LiveJob
from trainmaster.daemon.report_events import events_of
from trainmaster.model.engine_reports import Progressed
from trainmaster.model.events import JobProfiled
from trainmaster.model.job import Run, Source
from trainmaster.model.profile import Profile
from trainmaster.model.units import MINUTE, NOMINAL, SECOND


def started() -> LiveJob:
    """Its run has just begun."""
    job = live(Strings("1x1").running("a", 0))
    assert job.record is not None
    job.history = JobHistory(since_ms=job.record.since_ms)
    return job


def reported(job: LiveJob, after_ms: int, step: int, **more: Any) -> int | None:
    """The seconds that the job is now estimated to run in all; None: as long as before."""
    assert job.record is not None
    then = (job.history.since_ms or 0) + after_ms
    said = Progressed(Run("a", 1), then, step, total_steps=1_000, **more)
    [found] = [
        each.event.estimate
        for each in events_of(said, job, then, Limits())
        if isinstance(each.event, JobProfiled)
    ] or [None]
    if found is None:
        return None
    job.record.estimate = found
    assert found.source is Source.STEPS
    return found.work // NOMINAL // SECOND


def test_the_start_up_counts_once_however_early_the_report_is() -> None:
    job = started()
    reported(job, MINUTE, 1)
    assert reported(job, MINUTE + 10 * SECOND, 101) == 70 + 89
    assert reported(job, MINUTE + 50 * SECOND, 501) is None, "the same as before"


def test_a_first_report_goes_by_the_speed_that_was_measured() -> None:
    job = started()
    job.history = replace(job.history, steps_per_s=10.0)
    assert reported(job, MINUTE, 1) == 60 + 99


def test_without_a_speed_the_first_report_says_how_long_its_steps_took() -> None:
    assert reported(started(), MINUTE, 100) == 600


@pytest.mark.parametrize("step", [1_000, 1_200])
def test_a_job_that_has_made_its_steps_has_done_its_work(step: int) -> None:
    job = started()
    reported(job, MINUTE, 1)
    assert reported(job, 10 * MINUTE, step) == 600


def test_the_steps_of_an_earlier_run_come_after_its_start_up() -> None:
    job = started()
    reported(job, MINUTE, 10, steps_per_s=10.0)
    assert job.record is not None
    job.record.profile = Profile(step_us=100_000)
    known = KnownProfiles(Any, lambda key: ())
    known.learn(job)
    found = known.of(job)
    assert found == KnownProgram(Profile(step_us=100_000), startup_ms=59 * SECOND)
    work = found.estimate(replace(a_job("b", 1), iterations=600))
    assert work is not None
    assert work.work == (59 + 60) * SECOND * NOMINAL
