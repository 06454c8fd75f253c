"""Adoption: jobs of the data folder that the store does not know are taken in, as their runs describe them.

A run that goes on is taken over where it is: its job is submitted with the attempts that it had, and
started on the same devices, which an engine answers by following the run that exists. A job whose last run
was suspended or lost is queued again. One that ended is recorded.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from trainmaster.daemon.data_folder import unknown_runs
from trainmaster.daemon.driver import Driver
from trainmaster.daemon.inbox import Request
from trainmaster.daemon.job_history import JobHistory
from trainmaster.daemon.launch_record import LaunchRecord
from trainmaster.daemon.live_job import LiveJob, stored_submission
from trainmaster.daemon.report_events import NOT_TO_BE_TRIED_AGAIN, LoggedEvent
from trainmaster.engines.protocol import RecordedRun
from trainmaster.model import engine_reports as r
from trainmaster.model import events as e
from trainmaster.model.actions import Start, Thaw
from trainmaster.model.codec import CodecError
from trainmaster.model.job import Run
from trainmaster.model.job_state import JobState
from trainmaster.model.placement import Placement
from trainmaster.model.topology import Topology
from trainmaster.store.rows import StoredJob
from trainmaster.text.formatting import first_of, plural

WHERE = {"adopted": "from the data folder"}
MOST_NAMED = 8


@dataclass(slots=True)
class Adoption:
    """What is taken in."""

    request: Request
    running: list[Run]
    queued: list[str]
    ended: list[str]
    unknown: list[str]
    """Runs that do not say enough of their jobs: an earlier version started them."""
    frozen: list[Run]

    def lines(self) -> Iterator[str]:
        """What was done, for the user."""
        parts = (
            (self.running, "running", [run.job for run in self.running]),
            (self.queued, "queued again", self.queued),
            (self.ended, "ended", self.ended),
        )
        said = [
            f"{len(found)} {how} ({first_of(ids, MOST_NAMED)})"
            for found, how, ids in parts
            if found
        ]
        if said:
            yield f"Adopted from the data folder: {', '.join(said)}."
        if self.unknown:
            count = plural(len(self.unknown), "run")
            yield f"Left alone: {count} of an earlier version ({first_of(self.unknown, MOST_NAMED)})."


async def adopt(driver: Driver, folder: Path) -> Adoption:
    """Take in what the store does not know; returns when it is stored."""
    found = Adoption(Request(), [], [], [], [], [])
    for id, attempts in unknown_runs(folder, driver.store).items():
        _take(found, driver, id, attempts)
    if found.request.new_jobs or found.request.rows:
        driver.inbox.request(found.request)
        await driver.step()
    for run in found.frozen:
        live = driver.jobs.get(run.job)
        if live is not None:
            await driver.engine.execute(Thaw(run), live.recipe)
    return found


def _take(found: Adoption, driver: Driver, id: str, attempts: Sequence[int]) -> None:
    recorded = [driver.engine.recorded(Run(id, attempt)) for attempt in attempts]
    newest = recorded[-1]
    try:
        record = LaunchRecord.from_json("" if newest is None else newest.record)
        live = _live_job(record.row)
    except (ValueError, CodecError):
        found.unknown += [f"{id}.{attempt}" for attempt in attempts]
        return
    assert newest is not None
    run = Run(id, attempts[-1])
    state = outcome([each for each in recorded if each is not None], live.job.retries)
    if state not in (JobState.RUNNING, JobState.PENDING):
        found.ended.append(id)
        found.request.rows = [*found.request.rows, _ended_row(record.row, newest, run, state)]
        return
    is_running = state is JobState.RUNNING
    submitted = e.JobSubmitted(live.job, attempts=run.attempt - is_running)
    events = [LoggedEvent(submitted, WHERE)]
    if is_running:
        found.running.append(run)
        if _is_frozen(newest):
            found.frozen.append(run)
        if record.placement is not None and _exists(record.placement, driver.engine.topology):
            events.append(LoggedEvent(e.ActionRequested(Start(id, record.placement))))
    else:
        found.queued.append(id)
    found.request.events = [*found.request.events, *events]
    found.request.new_jobs = [*found.request.new_jobs, live]


def outcome(runs: Sequence[RecordedRun], retries: int) -> JobState:
    """What became of a job, by the reports of its runs: running, to be queued again, or ended."""
    last = runs[-1].reports[-1] if runs[-1].reports else None
    if not isinstance(last, r.Ended | r.Lost):
        return JobState.RUNNING
    if isinstance(last, r.Lost) or last.asked is r.StopOrder.HALT:
        return JobState.PENDING
    if last.asked is r.StopOrder.KILL:
        return JobState.CANCELLED
    if last.code == 0:
        return JobState.SUCCEEDED
    failures = sum(
        isinstance(report, r.Ended) and report.asked is r.StopOrder.NOTHING and report.code != 0
        for run in runs
        for report in run.reports
    )
    is_final = failures > retries or last.code in NOT_TO_BE_TRIED_AGAIN
    return JobState.FAILED if is_final else JobState.PENDING


def _live_job(row: StoredJob) -> LiveJob:
    stored = stored_submission(row)
    return LiveJob(
        job=stored.job,
        name=row.name,
        stored=stored,
        spec=json.loads(row.spec_json)["spec"],
        array=row.array,
        array_index=row.array_index,
    )


def _ended_row(row: StoredJob, newest: RecordedRun, run: Run, state: JobState) -> StoredJob:
    started = [report.at_ms for report in newest.reports if isinstance(report, r.Started)]
    end = newest.reports[-1]
    assert isinstance(end, r.Ended)
    start_ms = row.start_ms or (started[0] if started else None)
    run_ms = max(0, end.at_ms - started[0]) if started else 0
    history = JobHistory.from_json(row.record_json)
    history = replace(
        history, attempts=run.attempt, run_ms=history.run_ms + run_ms, exit_code=end.code, pids=()
    )
    return replace(
        row,
        state=state.value,
        start_ms=start_ms,
        finish_ms=max(end.at_ms, start_ms or row.submit_ms),
        exit_code=end.code,
        record_json=history.to_json(),
    )


def _is_frozen(newest: RecordedRun) -> bool:
    turns = [report for report in newest.reports if isinstance(report, r.Frozen | r.Thawed)]
    return bool(turns) and isinstance(turns[-1], r.Frozen)


def _exists(placement: Placement, topology: Topology) -> bool:
    """Whether this machine has those devices."""
    nodes = topology.nodes
    return all(
        piece.node < len(nodes)
        and 0 <= piece.gpu - nodes[piece.node].first_gpu < nodes[piece.node].gpus
        for piece in placement.slices
    )
