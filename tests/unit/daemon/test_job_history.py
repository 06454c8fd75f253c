"""What has happened to a job, written and read again: by this version and by earlier ones."""

from __future__ import annotations

import json

from trainmaster.core.lifecycle import ENDED, Phase
from trainmaster.daemon.job_history import JobHistory, Progress
from trainmaster.model.job_state import ENDED_STATES, JobState

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
    assert json.loads(found.to_json()).keys() == json.loads(EARLIER).keys()


def test_what_is_missing_has_its_default_and_what_is_unknown_is_ignored() -> None:
    assert JobHistory.from_json('{"attempts": 1, "of_a_later_version": 5}') == JobHistory(
        attempts=1
    )


def test_every_phase_has_a_state_of_its_name() -> None:
    states = {JobState[phase.name] for phase in Phase}
    assert states <= set(JobState)
    assert {JobState[phase.name] for phase in ENDED} == set(ENDED_STATES)
