"""Compares what a replay found of each job with its row, which was written together with the steps.

They agree unless a policy stopped a job that waited, which is in no order, or a stored step did not fit.
Then the row is right: a job that has ended is dropped, a later run that goes on is taken over, and a job that
was not replayed at all is submitted again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import structlog

from trainmaster.core.controller import Controller
from trainmaster.core.followed_orders import drop, has_devices
from trainmaster.core.lifecycle import WAITING, Phase
from trainmaster.core.state import JobRecord
from trainmaster.daemon.launch_record import LaunchRecord
from trainmaster.daemon.live_job import LiveJob, from_row
from trainmaster.daemon.report_events import LoggedEvent
from trainmaster.engines.protocol import Engine
from trainmaster.model.actions import Launch
from trainmaster.model.events import JobSubmitted, RunStarted
from trainmaster.model.job import Run
from trainmaster.model.job_state import JobState
from trainmaster.model.topology import Topology
from trainmaster.model.units import NOMINAL
from trainmaster.store.rows import StoredJob

log = structlog.get_logger("trainmaster.recovery")


def drop_ended(controller: Controller, live: Mapping[str, object]) -> bool:
    """Drop jobs whose rows say that they have ended; returns whether there were any."""
    ended = [record for record in controller.state.jobs.values() if record.id not in live]
    for record in ended:
        log.warning("a job has ended that was replayed as live", job=record.id)
        drop(controller.state, record, controller.now)
    return bool(ended)


def take_counts(job: LiveJob, state: str) -> None:
    """Count as its row does; note where they disagree about its state."""
    record, history = job.record, job.history
    assert record is not None
    record.preemptions, record.migrations = history.preemptions, history.migrations
    if job.state != state:
        log.warning("a job was replayed otherwise", job=job.id, state=job.state, stored=state)


def take_over_later_run(controller: Controller, engine: Engine, job: LiveJob, state: str) -> bool:
    """Take a run over that is later than the replay knows, where the engine knows it; whether it was."""
    record, attempts = job.record, job.history.attempts
    if record is None or attempts <= record.attempt:
        return False
    run = Run(job.id, attempts)
    if state != JobState.RUNNING:  # it is over, and a run of its own number cannot follow it
        log.error("a job was started more often than was replayed", run=run, stored=state)
        if not has_run(record):
            record.attempt = attempts
        return True
    launch = _launched(engine, run, record.work, controller.state.topology)
    log.error(
        "a job was started more often than was replayed", run=run, is_known=launch is not None
    )
    if launch is None or not has_devices(controller.state.topology, launch):
        return False
    controller.begin_following()
    controller.follow(controller.now, (), [launch])
    controller.follow(controller.now, [RunStarted(run, NOMINAL)], ())
    controller.decide_by(controller.policy)
    return True


def submitted_again(row: StoredJob, now: int) -> tuple[LiveJob, LoggedEvent]:
    """A job that its row has as live and the replay does not have at all."""
    log.error("a live job was not replayed and is submitted again", job=row.id, stored=row.state)
    live = from_row(row, None)
    live.paused(now)
    live.history = replace(live.history, pids=())
    event = JobSubmitted(
        live.job,
        held=bool(live.holds),
        attempts=live.history.attempts,
        first_start_ms=row.start_ms,
        preflight=needs_prerun(live),
    )
    return live, LoggedEvent(event, {"why": "the manager had lost it"})


def needs_prerun(live: LiveJob) -> bool:
    """Whether its pre-run is still to come, or went on when that was written down."""
    prerun = live.history.prerun
    return prerun is not None and prerun.result in ("", "failed")


def has_run(record: JobRecord) -> bool:
    """Whether processes of its present attempt may exist."""
    rests = record.phase in WAITING or record.phase is Phase.HELD
    return record.attempt > 0 and (not rests or record.frozen is not None)


def _launched(engine: Engine, run: Run, work: int, topology: Topology) -> Launch | None:
    """The order that this run was started by, as the run's own files have it."""
    recorded = engine.recorded(run)
    if recorded is None or not recorded.has_begun:
        return None
    try:
        record = LaunchRecord.from_json(recorded.record)
        placement = record.placement_on(topology)
    except ValueError:
        return None
    if placement is None:
        return None
    return Launch(run, placement, work, is_prerun=recorded.is_prerun)
