"""Jobs as the data folder has them: their runs, what those reported, and what became of each job by that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trainmaster.daemon.data_folder import runs_in
from trainmaster.daemon.job_history import JobHistory
from trainmaster.daemon.launch_record import LaunchRecord
from trainmaster.daemon.live_job import Hold, stored_submission
from trainmaster.daemon.report_events import (
    NOT_TO_BE_TRIED_AGAIN,
    end_of,
    was_withdrawn,
    withdrawal_of,
)
from trainmaster.engines.protocol import Engine, RecordedRun
from trainmaster.model import engine_reports as r
from trainmaster.model.codec import CodecError
from trainmaster.model.job import Run
from trainmaster.model.job_state import ENDED_STATES, JobState
from trainmaster.model.stop_reasons import EndCode, EndReason

WITHDRAWN = (JobState.CANCELLED, JobState.TIMED_OUT)
TURNS = (r.Started, r.Frozen, r.Thawed, r.Reshaped)
"""Reports that say whether a run's processes go on."""


@dataclass(frozen=True, slots=True)
class FoundJob:
    """A job as the folder has it."""

    newest: Run
    """The last that has begun; attempt 0: none has."""
    runs: Sequence[RecordedRun]
    """All that have begun, oldest first."""
    record: LaunchRecord
    """The newest that can be read."""
    is_own: bool
    """Whether that is the newest run's own, and not an earlier one's."""

    @property
    def reports(self) -> Sequence[tuple[r.Report, int]]:
        """Of the newest run, with their numbers."""
        return self.runs[-1].reports if self.runs else ()

    @property
    def history(self) -> JobHistory:
        return JobHistory.from_json(self.record.row.record_json)

    @property
    def is_held(self) -> bool:
        """Whether its user has suspended it."""
        return Hold.OWNER.value in self.history.holds

    @property
    def is_frozen(self) -> bool:
        turns = [report for report, _ in self.reports if isinstance(report, TURNS)]
        return bool(turns) and isinstance(turns[-1], r.Frozen)

    @property
    def is_prerun(self) -> bool:
        """Whether its newest run is a pre-run."""
        return bool(self.runs) and self.runs[-1].is_prerun

    @property
    def has_recorded_end(self) -> bool:
        """Whether its record says that it has ended, which its runs do not: it had none at the time."""
        return self.record.row.state in ENDED_STATES

    @property
    def outcome(self) -> JobState:
        if self.has_recorded_end:
            return JobState(self.record.row.state)
        return outcome(self.runs, self.history.retries)

    @property
    def end(self) -> EndReason | None:
        """Why it ended without success, as far as its record or its last run says."""
        if self.has_recorded_end:
            return self.history.end
        last = self.reports[-1][0]
        if not isinstance(last, r.Ended) or self.outcome is JobState.SUCCEEDED:
            return None
        return withdrawal_of(last) if self.outcome in WITHDRAWN else end_of(last)

    @property
    def first_start_ms(self) -> int | None:
        reports = (report for run in self.runs for report, _ in run.reports)
        started = (report.at_ms for report in reports if isinstance(report, r.Started))
        return self.record.row.start_ms or next(started, None)


def jobs_in(engine: Engine, folder: Path) -> list[tuple[str, Sequence[int], FoundJob | None]]:
    """Every job of the folder, by its files: there may be thousands."""
    return [(id, attempts, _job_in(engine, id, attempts)) for id, attempts in runs_in(folder)]


def _job_in(engine: Engine, id: str, attempts: Sequence[int]) -> FoundJob | None:
    """What there is of it; None where no record can be read."""
    recorded = {attempt: engine.recorded(Run(id, attempt)) for attempt in attempts}
    runs = {attempt: run for attempt, run in recorded.items() if run is not None}
    begun = {attempt: run for attempt, run in runs.items() if run.has_begun}
    newest = max(begun, default=0)
    for attempt in reversed(runs):
        try:
            record = LaunchRecord.from_json(runs[attempt].record)
            uuid_of(record)
        except (ValueError, CodecError):
            continue
        return FoundJob(Run(id, newest), [*begun.values()], record, is_own=attempt == newest)
    return None


def uuid_of(record: LaunchRecord) -> str:
    return stored_submission(record.row).recipe.uuid


def outcome(runs: Sequence[RecordedRun], retries: int) -> JobState:
    """What became of a job, by the reports of its runs: running, to be queued again, or ended."""
    if not runs:
        return JobState.PENDING
    last = runs[-1].reports[-1][0] if runs[-1].reports else None
    if not isinstance(last, r.Ended | r.Lost):
        return JobState.RUNNING
    if isinstance(last, r.Lost) or last.asked in (r.StopOrder.HALT, r.StopOrder.PRERUN):
        return JobState.PENDING
    if last.asked is r.StopOrder.KILL:
        return _killed(last)
    if last.code == 0:
        return JobState.PENDING if runs[-1].is_prerun else JobState.SUCCEEDED
    is_final = failures_of(runs) > retries or last.code in NOT_TO_BE_TRIED_AGAIN
    return JobState.FAILED if is_final else JobState.PENDING


def failures_of(runs: Sequence[RecordedRun]) -> int:
    return sum(
        isinstance(report, r.Ended) and report.asked is r.StopOrder.NOTHING and report.code != 0
        for run in runs
        for report, _ in run.reports
    )


def _killed(end: r.Ended) -> JobState:
    if not was_withdrawn(end):  # a run that its job did not need: the job goes on
        return JobState.PENDING
    is_late = withdrawal_of(end).code == EndCode.TIME_LIMIT
    return JobState.TIMED_OUT if is_late else JobState.CANCELLED


def preemptions(job: FoundJob) -> int:
    """How often it was suspended for others: its record is written anew where its user suspends it."""
    history = job.history
    seen = history.seen if history.attempt == job.newest.attempt else 0
    later = [report for report, number in job.reports if number > seen]
    return history.preemptions + sum(
        isinstance(each, r.Frozen) or (isinstance(each, r.Ended) and each.asked is r.StopOrder.HALT)
        for each in later
    )


def gpu_ms(job: FoundJob, now: int) -> int:
    """Thousandths of a GPU x ms that it has held, as far as its record and its reports say."""
    return max(job.history.gpu_ms, job.record.row.gpus * ran_ms(job, now))


def ran_ms(job: FoundJob, now: int | None = None) -> int:
    """How long it has run in all: what its record says, and the newest run's reports since.

    `now`: with the time until then where it goes on, and until its last sign of life where nobody knows.
    """
    history = job.history
    is_same = history.attempt == job.newest.attempt
    ran, since = history.run_ms, history.since_ms if is_same else None
    for report, number in job.reports:
        if is_same and number <= history.seen:
            continue
        if isinstance(report, r.Started | r.Thawed | r.Reshaped):
            since = report.at_ms if since is None else since
        elif isinstance(report, r.Frozen | r.Ended | r.Lost) and since is not None:
            ran, since = ran + max(0, _end_ms(report) - since), None
    if now is None or since is None:
        return ran
    alive_ms = job.runs[-1].alive_ms if job.runs else None
    return ran + max(0, (now if alive_ms is None else min(now, alive_ms)) - since)


def _end_ms(report: r.Frozen | r.Ended | r.Lost) -> int:
    """When its processes stopped, as far as that is known."""
    if isinstance(report, r.Lost) and report.alive_ms is not None:
        return report.alive_ms
    return report.at_ms
