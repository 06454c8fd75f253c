"""What the folder's reports say of a job: how often it was preempted and failed, and what it has held."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.daemon.test_launch_record import ROW
from trainmaster.daemon.found_jobs import FoundJob, failures_of, gpu_ms, preemptions
from trainmaster.daemon.job_history import JobHistory
from trainmaster.daemon.launch_record import LaunchRecord
from trainmaster.engines.protocol import RecordedRun
from trainmaster.model import engine_reports as r
from trainmaster.model.job import Run
from trainmaster.model.job_state import JobState
from trainmaster.model.stop_reasons import EndCode, EndReason

FIRST, SECOND = Run("7", 1), Run("7", 2)
FAILED = (r.Started(FIRST, 0), r.Ended(FIRST, 1_000, 3))
TURNS = (r.Started(SECOND, 2_000), r.Frozen(SECOND, 5_000), r.Thawed(SECOND, 6_000))


def found(history: JobHistory, *runs: tuple[r.Report, ...], state: str = "pending") -> FoundJob:
    row = replace(ROW, state=state, gpus=2_000, record_json=history.to_json())
    recorded = [
        RecordedRun("", tuple((each, n + 1) for n, each in enumerate(run)), True) for run in runs
    ]
    return FoundJob(Run("7", len(runs)), recorded, LaunchRecord(row, None), is_own=True)


def test_what_happened_after_the_record_was_written_is_counted() -> None:
    launched = JobHistory(
        retries=2, attempt=1, seen=2, run_ms=1_000, gpu_ms=2_000_000, preemptions=1
    )
    job = found(launched, FAILED, TURNS)
    assert (preemptions(job), failures_of(job.runs)) == (2, 1)
    assert gpu_ms(job, 8_000) == 2_000 * (1_000 + 3_000 + 2_000)
    left = r.Ended(SECOND, 9_000, 0, r.StopOrder.HALT)
    job = found(launched, FAILED, (*TURNS, left))
    assert (preemptions(job), job.outcome) == (3, JobState.PENDING)
    assert gpu_ms(job, 60_000) == 2_000 * (1_000 + 3_000 + 3_000)


def test_what_the_record_has_is_not_counted_again() -> None:
    suspended = JobHistory(attempt=2, seen=2, run_ms=4_000, gpu_ms=8_500_000, preemptions=1)
    job = found(suspended, FAILED, TURNS[:2])
    assert (preemptions(job), gpu_ms(job, 60_000)) == (1, 8_500_000)


def test_an_end_that_is_recorded_counts_more_than_the_last_run() -> None:
    end = EndReason(EndCode.CANCELLED, by="ann")
    job = found(JobHistory(retries=5, end=end), FAILED, state="cancelled")
    assert (job.outcome, job.end) == (JobState.CANCELLED, end)
    assert found(JobHistory(retries=5), FAILED).outcome is JobState.PENDING
