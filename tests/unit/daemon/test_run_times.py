"""Forecasts of run time: from earlier runs, recorded with the job, learned from when it has succeeded."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from tests.builders import a_job
from trainmaster.core.lifecycle import Phase
from trainmaster.core.state import JobRecord
from trainmaster.daemon import run_times
from trainmaster.daemon.job_history import JobHistory
from trainmaster.daemon.known_profiles import KnownProgram
from trainmaster.daemon.live_job import LiveJob, StoredSubmission
from trainmaster.daemon.report_events import LoggedEvent
from trainmaster.daemon.run_times import RunTimes
from trainmaster.model.codec import TAG, decode
from trainmaster.model.events import JobProfiled
from trainmaster.model.job import Estimate, Source
from trainmaster.model.launch_spec import LaunchSpec
from trainmaster.model.profile import Profile
from trainmaster.model.units import MINUTE, NOMINAL
from trainmaster.text.run_times import run_time_sentence


def a_live_job(*command: str, phase: Phase = Phase.RUNNING, run_ms: int = 0) -> LiveJob:
    job = a_job("a", 1)
    live = LiveJob(job, "a", StoredSubmission(LaunchSpec(command, "/", ""), job), {"workdir": "/w"})
    live.record = JobRecord(job, 0, 0, None, None)
    live.record.phase = phase
    live.history = JobHistory(run_ms=run_ms)
    return live


def ended(*command: str, run_ms: int) -> LiveJob:
    return a_live_job(*command, phase=Phase.SUCCEEDED, run_ms=run_ms)


@pytest.mark.parametrize(
    ("command", "basis"),
    [
        (("python", "train.py", "--lr", "1"), Source.RUNS),
        (("python", "train.py", "--lr", "2"), Source.PROGRAM),
        (("python", "other.py", "--lr", "1"), None),
    ],
)
def test_earlier_runs_of_the_program_tell_how_long_it_takes(
    command: tuple[str, ...], basis: Source | None
) -> None:
    known = RunTimes()
    for run in (10, 20, 60):
        known.learn(ended("python", "train.py", "--lr", "1", run_ms=run * MINUTE))
    found = known.forecast(a_live_job(*command), 0)
    if basis is None:
        assert found is None
    else:
        assert found is not None
        assert (found.basis, found.expected_ms) == (basis, 20 * MINUTE)


def test_time_that_was_lost_does_not_count() -> None:
    known = RunTimes()
    live = ended("./train", run_ms=20 * MINUTE)
    live.history = replace(live.history, lost_ms=5 * MINUTE)
    known.learn(live)
    again = a_live_job("./train", run_ms=8 * MINUTE)
    again.history = replace(again.history, lost_ms=3 * MINUTE)
    found = known.forecast(again, 0)
    assert found is not None
    assert found.predicted_ms == 10 * MINUTE


def test_failed_runs_teach_nothing() -> None:
    known = RunTimes()
    known.learn(a_live_job("./train", phase=Phase.FAILED, run_ms=MINUTE))
    assert known.forecast(a_live_job("./train"), 0) is None


@pytest.mark.parametrize(
    ("source", "basis"), [(Source.STEPS, Source.STEPS), (Source.PROFILE, Source.PROFILE)]
)
def test_a_forecast_says_where_its_steps_come_from(source: Source, basis: Source) -> None:
    live = a_live_job("./train")
    assert live.record is not None
    live.record.estimate = Estimate(10 * MINUTE * NOMINAL, source)
    found = RunTimes().forecast(live, 0)
    assert found is not None
    assert (found.basis, found.expected_ms) == (basis, 10 * MINUTE)


def test_forecasts_are_recorded_stored_and_learned_from() -> None:
    known = RunTimes()
    for each in range(9):
        live = a_live_job(f"./train{each}")
        assert live.record is not None
        live.record.estimate = Estimate(10 * MINUTE * NOMINAL, Source.STEPS)
        known.record(live, 0)
        known.record(live, 0)
        (forecast,) = live.history.forecasts
        assert not forecast.is_calibrated
        stored = JobHistory.from_json(live.history.to_json())
        assert stored.forecasts == live.history.forecasts
        live.history = replace(stored, run_ms=(20 + each) * MINUTE)
        live.record.phase = Phase.SUCCEEDED
        known.learn(live)
    live = a_live_job("./train")
    assert live.record is not None
    live.record.estimate = Estimate(10 * MINUTE * NOMINAL, Source.STEPS)
    found = known.forecast(live, 0)
    assert found is not None
    assert found.is_calibrated
    assert run_time_sentence(found, is_running=True) == (
        "It is expected to end in 24 min (20 min to 28 min), judging by its steps."
    )


def test_an_older_store_has_no_forecasts() -> None:
    stored: dict[str, Any] = json.loads(JobHistory().to_json())
    del stored["forecasts"]
    assert JobHistory.from_json(json.dumps(stored)).forecasts == ()


def minutes(expected: int, most: int, source: Source) -> Estimate:
    return Estimate(expected * MINUTE * NOMINAL, source, most * MINUTE * NOMINAL)


def facts_of(events: Iterable[LoggedEvent]) -> list[tuple[str, Estimate | None]]:
    return [
        (each.event.job, each.event.estimate)
        for each in events
        if isinstance(each.event, JobProfiled)
    ]


def test_what_earlier_runs_say_becomes_the_estimate_of_a_run() -> None:
    known = RunTimes()
    for run in (10, 20, 60):
        known.learn(ended("./train", run_ms=run * MINUTE))
    live = a_live_job("./train")
    assert live.record is not None
    expected = minutes(20, 30, Source.RUNS)
    assert facts_of(known.record(live, 0)) == [("a", expected)]
    live.record.estimate = expected
    live.history = replace(live.history, run_ms=MINUTE)
    live.record.work = MINUTE * NOMINAL
    assert facts_of(known.record(live, 0)) == []  # the same within a tenth
    live.history = replace(live.history, run_ms=30 * MINUTE)
    live.record.work = 30 * MINUTE * NOMINAL
    later = minutes(60, 75, Source.RUNS)
    assert facts_of(known.record(live, 0)) == [("a", later)]


@pytest.mark.parametrize("source", [Source.STEPS, Source.PROFILE, Source.TRACE])
def test_an_estimate_from_steps_stays(source: Source) -> None:
    known = RunTimes()
    known.learn(ended("./train", run_ms=20 * MINUTE))
    live = a_live_job("./train")
    assert live.record is not None
    live.record.estimate = Estimate(90 * MINUTE * NOMINAL, source)
    assert facts_of(known.record(live, 0)) == []
    assert live.history.forecasts


def test_a_new_job_has_the_estimate_of_its_steps_before_that_of_its_runs() -> None:
    known = RunTimes()
    live = a_live_job("./train", phase=Phase.PENDING)
    assert known.first_estimate(live, None) is None
    known.learn(ended("./train", "--lr", "1", run_ms=20 * MINUTE))
    by_runs = minutes(20, 60, Source.PROGRAM)
    assert known.first_estimate(live, KnownProgram(Profile(step_us=1_000))) == by_runs
    profile = KnownProgram(Profile(step_us=1_000), steps=60_000)
    by_steps = Estimate(MINUTE * NOMINAL, Source.PROFILE)
    assert known.first_estimate(live, profile) == by_steps


def test_the_first_end_of_a_program_gives_jobs_that_wait_their_estimate() -> None:
    known = RunTimes()
    assert known.learn(ended("./train", "--lr", "1", run_ms=20 * MINUTE))
    assert not known.learn(ended("./train", "--lr", "1", run_ms=30 * MINUTE))
    assert not known.learn(a_live_job("./other", phase=Phase.FAILED))
    waits = a_live_job("./train", "--lr", "2", phase=Phase.PENDING)
    other = a_live_job("./other", phase=Phase.PENDING)
    told = a_live_job("./train", "--lr", "2", phase=Phase.PENDING)
    assert told.record is not None
    told.record.estimate = Estimate(NOMINAL, Source.STEPS)
    by_runs = minutes(25, 75, Source.PROGRAM)
    assert facts_of(known.first_estimates([waits, other, told])) == [("a", by_runs)]


def test_the_former_name_of_a_source_is_still_read() -> None:
    assert decode({TAG: "run_time.Basis", "name": "RUNS"}) is Source.RUNS


def running(command: str, estimate: Estimate) -> LiveJob:
    """Since time 0 at nominal speed, with this estimate."""
    live = a_live_job(command)
    assert live.record is not None
    live.record.estimate, live.record.since_ms, live.record.speed_ppm = estimate, 0, NOMINAL
    live.history = replace(live.history, since_ms=0)
    return live


def outlasting(known: RunTimes, live: LiveJob, until_ms: int) -> list[tuple[int, int]]:
    """The minutes at which time alone brings a later estimate, and how many are left by it then."""
    found: list[tuple[int, int]] = []
    assert live.record is not None
    known.register([live], 0)
    while (due_ms := known.next_due()) is not None and due_ms <= until_ms:
        assert not [*known.outlasted({"a": live}, due_ms - 1)]
        for event in known.outlasted({"a": live}, due_ms):
            assert isinstance(event.event, JobProfiled)
            assert event.event.estimate is not None
            live.record.estimate = event.event.estimate
            left = live.record.finish_at(event.event.estimate.work, due_ms) - due_ms
            found.append((due_ms // MINUTE, left // MINUTE))
        known.register([live], due_ms)
    return found


def test_the_estimate_of_a_run_that_outlasts_it_moves_on_though_nothing_is_reported() -> None:
    known = RunTimes()
    for run in (10, 20, 60):
        known.learn(ended("./train", run_ms=run * MINUTE))
    live = running("./train", minutes(20, 30, Source.RUNS))
    # One earlier run was longer than 20 min; after 60 min it has outlasted all: as long again.
    assert outlasting(known, live, 300 * MINUTE) == [(20, 40), (60, 60), (120, 120), (240, 240)]


def test_a_run_without_reports_takes_longer_than_its_steps_said() -> None:
    live = running("./train", minutes(60, 60, Source.STEPS))
    found = outlasting(RunTimes(), live, 80 * MINUTE)
    assert found == [(60, 6), (66, 6), (72, 7), (79, 7)]
    assert live.record is not None
    assert live.record.estimate is not None
    assert live.record.estimate.source is Source.STEPS


def test_an_estimate_that_came_meanwhile_counts() -> None:
    known = RunTimes()
    live = running("./train", minutes(60, 60, Source.STEPS))
    known.register([live], 0)
    assert live.record is not None
    live.record.estimate = minutes(90, 90, Source.STEPS)
    known.register([live], 30 * MINUTE)
    assert known.next_due() == 90 * MINUTE
    live.record.phase = Phase.SUSPENDED
    known.register([live], 40 * MINUTE)
    assert known.next_due() is None


def test_what_is_said_of_a_run_that_outlasts_all_before_moves_on() -> None:
    known = RunTimes()
    known.learn(ended("./train", run_ms=10 * MINUTE))
    live = running("./train", minutes(10, 15, Source.RUNS))
    found = [known.forecast(live, ran * MINUTE) for ran in (5, 12, 30)]
    assert [each and each.expected_ms // MINUTE for each in found] == [5, 12, 30]
    assert [each and each.is_outlasted for each in found] == [False, True, True]


def test_the_heap_does_not_grow_with_every_change_of_an_estimate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run_times, "MOST_OUT_OF_DATE", 5)
    known = RunTimes()
    live = running("./train", minutes(60, 60, Source.STEPS))
    assert live.record is not None
    for longer in range(100):
        live.record.estimate = minutes(60 + longer, 60 + longer, Source.STEPS)
        known.register([live], 0)
    assert len(known._ends) <= 7
    assert known.next_due() == 159 * MINUTE
