"""Adoption: the store learns from the data folder what it does not know, as the runs there describe it.

A run that goes on is taken over where it is, stopped in memory or not, whatever the store has its job at:
its journal says what it does, and the record beside it which job it is of, on which devices, and whether its
user suspended it. A job that the store does not know and whose last run was suspended or lost is queued
again, or held for its user. One that ended is recorded. All of it is one step, before anything is decided.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from trainmaster.core.lifecycle import Phase
from trainmaster.core.state import JobRecord
from trainmaster.daemon.data_folder import store_mark
from trainmaster.daemon.driver import Driver
from trainmaster.daemon.found_jobs import (
    TURNS,
    WITHDRAWN,
    FoundJob,
    failures_of,
    gpu_ms,
    jobs_in,
    outcome,
    preemptions,
    ran_ms,
    uuid_of,
)
from trainmaster.daemon.inbox import Request
from trainmaster.daemon.live_job import Hold, LiveJob, named_devices, stored_submission
from trainmaster.daemon.report_events import LoggedEvent
from trainmaster.daemon.row_check import needs_prerun
from trainmaster.daemon.run_speeds import assumed_speed, assumed_speed_on
from trainmaster.engines.protocol import KnownJob
from trainmaster.model import engine_reports as r
from trainmaster.model import events as e
from trainmaster.model.job import Job, Run
from trainmaster.model.job_state import JobState
from trainmaster.model.placement import Placement, Slice
from trainmaster.model.stop_reasons import Suspender, Suspension
from trainmaster.model.topology import SLOT_TYPE, Topology
from trainmaster.store.rows import StoredJob
from trainmaster.text.formatting import first_of, plural

WHERE = {"adopted": "from the data folder"}
MOST_NAMED = 8
UNREADABLE = "its run.json cannot be read, which names its devices"
NO_DEVICES = "it is on devices that this manager does not have"


@dataclass(slots=True)
class Adoption:
    """What is taken in."""

    events: list[LoggedEvent] = field(default_factory=list)
    new_jobs: list[LiveJob] = field(default_factory=list)
    rows: list[StoredJob] = field(default_factory=list)
    """Jobs that have ended."""
    runs: dict[Run, int] = field(default_factory=dict)
    """Runs that go on, with the last report of each that is known."""
    running: list[str] = field(default_factory=list)
    suspended: list[str] = field(default_factory=list)
    """Stopped in memory, or held for their users."""
    queued: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    """Runs that do not say what they are of."""
    is_behind: bool = False
    """Whether the folder was used with another store, or with later steps of this one."""
    settings: str = ""
    """What the store has of the cluster, as a sentence: no run describes that."""
    left_alone: dict[Run, str] = field(default_factory=dict)
    """Runs that go on and cannot be taken over, and why."""

    def lines(self) -> Iterator[str]:
        """What was done, for the user."""
        parts = (
            ("running", self.running),
            ("suspended", self.suspended),
            ("queued again", self.queued),
            ("ended", [row.id for row in self.rows]),
        )
        named = [f"{len(ids)} {how} ({first_of(ids, MOST_NAMED)})" for how, ids in parts if ids]
        if named:
            yield f"Adopted from the data folder: {', '.join(named)}."
        if self.new_jobs or self.rows or self.is_behind:
            yield (
                "Jobs that had not been started, if there were any, are not in the folder: submit again"
                " what `trainmaster ps -a` does not list."
            )
        if self.unknown:
            yield (
                f"Left alone: {plural(len(self.unknown), 'run')} without a readable record of the job,"
                f" damaged or of an earlier version ({first_of(self.unknown, MOST_NAMED)})."
            )
        for run, why in self.left_alone.items():
            yield (
                f"Left alone: run {run.job}.{run.attempt}, because {why}. Once it has ended,"
                " `trainmaster up --adopt` takes its job in."
            )
        yield self.settings


async def adopt(driver: Driver, folder: Path) -> Adoption:
    """Take in what the store does not know; returns when that is stored, and what goes on is followed."""
    found = Adoption(is_behind=_is_behind(driver, folder), settings=_settings(driver))
    for id, attempts, job in await asyncio.to_thread(jobs_in, driver.engine, folder):
        _take(found, driver, id, attempts, job)
    if found.events or found.rows:
        request = Request(found.events, found.new_jobs, found.rows, is_whole=True)
        driver.inbox.request(request)
        await driver.step()
    known = {
        run.job: KnownJob(driver.jobs[run.job].recipe.uuid, run.attempt)
        for run in found.runs
        if run.job in driver.jobs
    }
    await driver.engine.observe(found.runs, known.get)
    return found


def _is_behind(driver: Driver, folder: Path) -> bool:
    mark, identity = store_mark(folder), driver.identity
    return mark is not None and (mark.store != identity.store or mark.seq > driver.writer.seq)


def _settings(driver: Driver) -> str:
    state, policy = driver.controller.state, driver.policy
    options = ", ".join(f"{name}={value}" for name, value in policy.options)
    drained = [state.topology.nodes[node].name for node in sorted(state.draining)]
    return (
        f"As the database has it: policy {policy.name}{f' ({options})' if options else ''},"
        f" queues: {first_of(sorted(state.queues), MOST_NAMED) or 'only default'},"
        f" drained nodes: {first_of(drained, MOST_NAMED) or 'none'}. What was changed later must be set"
        " again."
    )


def _take(
    found: Adoption, driver: Driver, id: str, attempts: Sequence[int], job: FoundJob | None
) -> None:
    live = driver.jobs.get(id)
    if live is None and driver.store.job(id) is not None:
        return  # it has ended
    if job is None:
        found.unknown += [f"{id}.{attempt}" for attempt in attempts]
    elif live is None:
        _take_unknown(found, driver, job)
    elif live.record is not None and uuid_of(job.record) == live.recipe.uuid:
        _take_known(found, driver, job, live, live.record)


# -- jobs that the store does not know -------------------------------------------------------------------


def _take_unknown(found: Adoption, driver: Driver, job: FoundJob) -> None:
    state, topology = job.outcome, driver.controller.state.topology
    if state not in (JobState.RUNNING, JobState.PENDING):
        found.rows.append(_ended_row(job, state, driver.clock.now()))
        return
    placement = _own_placement(job, topology) if state is JobState.RUNNING else None
    if state is JobState.RUNNING and placement is None:
        found.left_alone[job.newest] = NO_DEVICES if job.is_own else UNREADABLE
        return
    live, beyond = _live_job(job), job.record.beyond
    held = () if placement is None else tuple(placement.gpus())  # it avoids nothing that it is on
    submitted = e.JobSubmitted(
        live.job,
        held=job.is_held,
        attempts=job.newest.attempt,
        first_start_ms=job.first_start_ms,
        attained=gpu_ms(job, driver.clock.now()),
        preemptions=preemptions(job),
        failures=failures_of(job.runs),
        preflight=needs_prerun(live) and (placement is None or job.is_prerun),
        gpu_memory=beyond.gpu_memory,
        memory=beyond.memory,
        avoid=tuple(each for each in beyond.devices(topology) if each[1] not in held),
    )
    found.events.append(LoggedEvent(submitted, WHERE))
    found.new_jobs.append(live)
    if placement is not None:
        _adopt_run(found, live, job, placement, topology)
    else:
        live.history = replace(live.history, run_ms=ran_ms(job), since_ms=None, pids=())
        (found.suspended if job.is_held else found.queued).append(live.id)


def _live_job(job: FoundJob) -> LiveJob:
    row, history = job.record.row, job.history
    stored = stored_submission(row)
    suspension = history.suspension if job.is_held else None
    return LiveJob(
        job=_as_changed(stored.job, job),
        name=row.name,
        stored=stored,
        spec=json.loads(row.spec_json)["spec"],
        array=row.array,
        array_index=row.array_index,
        holds={Hold.OWNER} if job.is_held else set(),
        history=replace(history, story_entries=0, suspension=suspension),
    )


def _as_changed(known: Job, job: FoundJob) -> Job:
    """With what its user changed later."""
    row, history = job.record.row, job.history
    return replace(known, queue=row.queue, priority=history.priority, retries=history.retries)


def _ended_row(job: FoundJob, state: JobState, now: int) -> StoredJob:
    if job.has_recorded_end:
        return job.record.row
    row, (end, _) = job.record.row, job.reports[-1]
    assert isinstance(end, r.Ended)
    start_ms = job.first_start_ms
    history = replace(
        job.history,
        attempts=job.newest.attempt,
        run_ms=ran_ms(job),
        gpu_ms=gpu_ms(job, now),
        preemptions=preemptions(job),
        failures=failures_of(job.runs),
        since_ms=None,
        exit_code=end.code,
        pids=(),
        end=job.end,
    )
    return replace(
        row,
        state=state.value,
        start_ms=start_ms,
        finish_ms=max(end.at_ms, start_ms or row.submit_ms),
        exit_code=end.code,
        record_json=history.to_json(),
    )


# -- jobs that an older store knows ----------------------------------------------------------------------


def _take_known(
    found: Adoption, driver: Driver, job: FoundJob, live: LiveJob, record: JobRecord
) -> None:
    is_newer = job.record.seq > driver.writer.seq
    found.events += _start(driver, record)
    is_over = is_newer and job.has_recorded_end
    if is_newer and not is_over:
        found.events += _changes(driver, job, live)
    run = job.newest
    seen = live.history.seen if live.history.attempt == record.attempt else 0
    _tell_end(driver, live, record, seen)
    if record.phase is Phase.STOPPING:
        return
    if job.outcome in WITHDRAWN and (is_over or run.attempt > record.attempt):
        found.events.append(LoggedEvent(e.JobWithdrawn(live.id), WHERE, job.end))
    if job.outcome is not JobState.RUNNING:
        return
    is_later = run.attempt > record.attempt
    has_turned = run.attempt == record.attempt and any(
        isinstance(report, TURNS) and number > seen for report, number in job.reports
    )
    if not is_later and (not has_turned or record.phase is Phase.SUSPENDING):
        return
    placement = None if is_later or is_newer else record.frozen or record.placement
    topology = driver.controller.state.topology
    placement = placement or _own_placement(job, topology)
    if placement is None:
        found.left_alone[run] = NO_DEVICES if job.is_own else UNREADABLE
        return
    _adopt_run(found, live, job, placement, topology)


def _start(driver: Driver, record: JobRecord) -> Iterator[LoggedEvent]:
    """Where the store has ordered its run and not heard that it started: what is found comes after that."""
    known = driver.engine.recorded(record.run) if record.phase is Phase.STARTING else None
    if known is not None and any(isinstance(report, r.Started) for report, _ in known.reports):
        yield LoggedEvent(
            e.RunStarted(
                record.run, assumed_speed(record, driver.controller.state.topology), is_assumed=True
            ),
            WHERE,
        )


def _tell_end(driver: Driver, live: LiveJob, record: JobRecord, seen: int) -> None:
    """Where the run that the store knows is over: its devices are free for what runs there now."""
    known = driver.engine.recorded(record.run) if record.attempt > 0 else None
    if known is None or not known.reports or outcome([known], 0) is JobState.RUNNING:
        return
    last = known.reports[-1][1]
    live.history = replace(live.history, attempt=record.attempt, seen=seen, adopted=last)
    for report, number in known.reports:
        driver.inbox.report(report, number)


def _changes(driver: Driver, job: FoundJob, live: LiveJob) -> Iterator[LoggedEvent]:
    """What its user did after the store's last step."""
    by = job.history.suspension
    if job.is_held and Hold.OWNER not in live.holds:
        live.holds.add(Hold.OWNER)
        yield LoggedEvent(e.JobHeld(live.id), WHERE, by or Suspension(Suspender.USER))
    elif not job.is_held and Hold.OWNER in live.holds:
        yield from driver.dependencies.remove_hold(live, Hold.OWNER)
    changed = _as_changed(live.job, job)
    if changed != live.job:
        yield LoggedEvent(e.JobChanged(changed), WHERE)


# -- runs ------------------------------------------------------------------------------------------------


def _adopt_run(
    found: Adoption, live: LiveJob, job: FoundJob, placement: Placement, topology: Topology
) -> None:
    """Where it is: its journal up to now is told again, but changes nothing of that."""
    run, history = job.newest, live.history
    last = max((number for _, number in job.reports), default=0)
    if history.attempt != run.attempt:
        history = replace(history, attempt=run.attempt, seen=0, since_ms=None, pids=())
    live.history = replace(history, adopted=last)
    detail: dict[str, object] = {"on": named_devices(placement, topology)}
    by: Suspension | None = None
    if job.is_frozen:
        detail["frozen"] = True
        by = job.history.suspension if job.is_held else Suspension(Suspender.POLICY)
    speed = assumed_speed_on(live.job.demand, placement, topology)
    adopted = e.RunAdopted(run, placement, speed, job.is_frozen, job.is_prerun, is_assumed=True)
    found.events.append(LoggedEvent(adopted, detail, by))
    found.runs[run] = history.seen
    (found.suspended if job.is_frozen else found.running).append(live.id)


def _own_placement(job: FoundJob, topology: Topology) -> Placement | None:
    """The devices of its newest run; None where they are not known, or not there.

    CPU slots are only numbers: others of the node will do for one that is gone.
    """
    placement = job.record.placement_on(topology) if job.is_own else None
    if placement is None or topology.has_devices(placement.slices):
        return placement
    if any(node >= len(topology.nodes) for node in placement.nodes):
        return None
    slices: list[Slice] = []
    for index in placement.nodes:
        node, pieces = topology.nodes[index], [p for p in placement.slices if p.node == index]
        if node.type.name != SLOT_TYPE or len(pieces) > node.gpus:
            return None
        slices += [piece._replace(gpu=node.first_gpu + slot) for slot, piece in enumerate(pieces)]
    return replace(placement, slices=tuple(slices))
