"""What has happened to a job, written and read again: by this version and by earlier ones."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.daemon.test_dependencies import a_live
from trainmaster.core.lifecycle import Phase
from trainmaster.daemon.job_history import FirstReport, JobHistory, LastFreeze, Progress
from trainmaster.daemon.live_job import LiveJob
from trainmaster.failures.retry_rules import FailedAttempt
from trainmaster.model.failure import Failure
from trainmaster.model.job_state import ENDED_STATES, JobState, Transition
from trainmaster.model.stop_reasons import EndCode, EndReason, Suspender, Suspension

EARLIER = (
    '{"priority":3,"retries":2,"holds":["array","owner"],"seen":7,"attempt":2,"pids":[12,13],"run_ms":4000,'
    '"since_ms":9000,"exit_code":1,"before_ms":1500,"failed_ms":[1500],"samples_per_s":2.5,"saved_at_ms":8000,'
    '"has_hello":true,"failure":{"code":1,"why":"out of memory"},"progress":{"is":'
    '"trainmaster.daemon.contract:Progress","at_ms":1,"step":2,"total_steps":3,"loss":0.5,"samples_per_s":null},'
    '"failures":1,"preemptions":2,"migrations":4,"gpu_ms":16000,"attempts":2}'
)
"""As the daemon wrote it before its fields had one definition."""


def test_what_an_earlier_version_stored_is_read() -> None:
    found = JobHistory.from_json(EARLIER)
    assert found == JobHistory(
        priority=3,
        retries=2,
        holds=("array", "owner"),
        seen=7,
        attempt=2,
        pids=(12, 13),
        run_ms=4000,
        since_ms=9000,
        exit_code=1,
        before_ms=1500,
        failed_ms=(1500,),
        samples_per_s=2.5,
        saved_at_ms=8000,
        has_hello=True,
        failure={"code": 1, "why": "out of memory"},
        progress=Progress(1, 2, 3, 0.5, None),
        failures=1,
        preemptions=2,
        migrations=4,
        gpu_ms=16000,
        attempts=2,
    )
    assert found.ran_ms(9500) == 4500
    assert found.restarts == 1


def test_it_is_written_under_the_same_names() -> None:
    found = JobHistory.from_json(EARLIER)
    assert JobHistory.from_json(found.to_json()) == found
    later = {"end", "suspension", "deadline", "told", "saves", "lost_ms", "adopted"}
    later |= {"freezes", "last_freeze", "freezing_ms", "not_frozen", "not_brought"}
    later |= {
        "steps_per_s",
        "profile",
        "pace",
        "pace_why",
        "is_pace_heeded",
        "failed_by",
        "hang",
        "longest_silence_ms",
    }
    later |= {"failed_attempts", "retry", "by_mps", "prerun", "slow_rank", "slow_percent"}
    later |= {"slow_own_ms", "slow_peers_ms", "charged_ms", "charged_at_ms", "charged_lost_ms"}
    later |= {"forecasts", "memory_forecast", "first_report", "rate_type", "lost_to"}
    assert json.loads(found.to_json()).keys() - later == json.loads(EARLIER).keys()


def test_who_ended_and_who_suspended_a_job_is_stored() -> None:
    known = JobHistory(
        end=EndReason(EndCode.LOST, times=5, detail="Its node was restarted."),
        suspension=Suspension(Suspender.POLICY, jobs=("12", "13")),
        last_freeze=LastFreeze("driver", 3, 4),
        first_report=FirstReport(1, 60_000, 60_000_000_000),
        failed_attempts=(
            FailedAttempt(Failure("unknown", lines=("a",)), 5, device_keys=("n0:1",)),
        ),
    )
    assert JobHistory.from_json(known.to_json()) == known


def test_what_is_missing_has_its_default_and_what_is_unknown_is_ignored() -> None:
    assert JobHistory.from_json('{"attempts": 1, "of_a_later_version": 5}') == JobHistory(
        attempts=1
    )


def in_phase(phase: Phase, *, has_run: bool, **history: Any) -> LiveJob:
    live = a_live("1")
    assert live.record is not None
    live.record.phase = phase
    live.record.first_start_ms = 5 if has_run else None
    live.history = JobHistory(**history)
    return live


S, P = JobState, Phase
BY_POLICY = {"suspension": Suspension(Suspender.POLICY)}


@pytest.mark.parametrize(
    ("live", "state", "transition"),
    [
        (in_phase(P.PENDING, has_run=False), S.PENDING, None),
        (in_phase(P.PENDING, has_run=True), S.PENDING, None),  # to be tried again
        (in_phase(P.HELD, has_run=False), S.PENDING, None),
        (in_phase(P.HELD, has_run=True), S.SUSPENDED, None),
        (in_phase(P.STARTING, has_run=False), S.PENDING, Transition.STARTING),
        (in_phase(P.STARTING, has_run=True), S.PENDING, Transition.STARTING),
        (in_phase(P.STARTING, has_run=True, **BY_POLICY), S.SUSPENDED, Transition.STARTING),
        (in_phase(P.RUNNING, has_run=True), S.RUNNING, None),
        (in_phase(P.RESIZING, has_run=True), S.RUNNING, Transition.RESIZING),
        (in_phase(P.SUSPENDING, has_run=True), S.RUNNING, Transition.SUSPENDING),
        (in_phase(P.SUSPENDED, has_run=True), S.SUSPENDED, None),
        (in_phase(P.STOPPING, has_run=True, since_ms=5), S.RUNNING, Transition.STOPPING),
        (in_phase(P.STOPPING, has_run=True), S.SUSPENDED, Transition.STOPPING),
        (in_phase(P.STOPPING, has_run=False), S.PENDING, Transition.STOPPING),
        (in_phase(P.SUCCEEDED, has_run=True), S.SUCCEEDED, None),
        (in_phase(P.FAILED, has_run=True), S.FAILED, None),
        (in_phase(P.CANCELLED, has_run=True), S.CANCELLED, None),
        (
            in_phase(P.CANCELLED, has_run=True, end=EndReason(EndCode.TIME_LIMIT)),
            S.TIMED_OUT,
            None,
        ),
    ],
)
def test_every_phase_is_one_of_the_states_that_people_know(
    live: LiveJob, state: JobState, transition: Transition | None
) -> None:
    assert (live.state, live.transition) == (state, transition)
    assert live.has_ended == (state in ENDED_STATES)
