"""Which jobs the recorded trace has, and for how long they ran."""

from __future__ import annotations

import json
from dataclasses import replace

from tests.unit.daemon.test_dependencies import a_live
from trainmaster.daemon.export import traced
from trainmaster.daemon.job_history import JobHistory
from trainmaster.failures.retry_rules import FailedAttempt
from trainmaster.model.failure import Failure
from trainmaster.model.trace import Outcome
from trainmaster.store.rows import StoredJob


def a_row(state: str, start_ms: int | None, **happened: object) -> StoredJob:
    row = a_live("1").row(0)
    record = {"failed_ms": [], "run_ms": 0, "attempts": 0, **happened}
    return replace(row, state=state, start_ms=start_ms, record_json=json.dumps(record))


def test_a_job_that_ended_at_once_is_kept_with_the_shortest_time() -> None:
    at_once = traced(a_row("succeeded", 5, attempts=1))
    assert at_once is not None
    assert at_once.service_ms == 1
    not_found = traced(a_row("failed", None, attempts=1, failed_ms=[0]))
    assert not_found is not None
    assert (not_found.service_ms, not_found.outcome) == (1, Outcome.FAILED)


def test_a_job_that_was_never_started_is_left_out() -> None:
    assert traced(a_row("cancelled", None)) is None


def test_a_job_has_the_time_of_its_last_attempt() -> None:
    found = traced(a_row("succeeded", 5, attempts=2, run_ms=900, failed_ms=[200]))
    assert found is not None
    assert (found.service_ms, found.failed_attempts_ms) == (700, (200,))


def test_a_job_has_the_reasons_of_its_failures() -> None:
    failure = Failure("missing-file", path="/data/x")
    attempts = tuple(FailedAttempt(failure, ms) for ms in (20, 30))
    history = JobHistory(failed_ms=(10, 20, 30), run_ms=60, attempts=3, failed_attempts=attempts)
    row = replace(a_live("1").row(0), state="failed", start_ms=5, record_json=history.to_json())
    found = traced(row)
    assert found is not None
    assert found.failed_attempts_ms == (10, 20)
    assert found.failure_reasons == ("unknown", "missing-file", "missing-file")
    assert found.bad_input == "/data/x"
    passed = traced(replace(row, state="succeeded"))
    assert passed is not None
    assert (passed.failed_attempts_ms, len(passed.failure_reasons)) == ((10, 20, 30), 3)
    not_started = traced(a_row("failed", None, attempts=1, failed_ms=[0]))
    assert not_started is not None
    assert not_started.failure_reasons == ("unknown",)
