"""Compares what a replay found of each job with its row, which was written together with the steps.

They agree unless a policy stopped a job that waited, which is in no order, or a stored step did not fit.
Then the row is right: a job that has ended is dropped, and a later run that exists is taken over.
"""

from __future__ import annotations

from collections.abc import Mapping

import structlog

from trainmaster.core.controller import Controller
from trainmaster.core.followed_orders import drop, has_devices
from trainmaster.daemon.launch_record import LaunchRecord
from trainmaster.daemon.live_job import LiveJob
from trainmaster.engines.protocol import Engine
from trainmaster.model.actions import Launch
from trainmaster.model.events import RunStarted
from trainmaster.model.job import Run
from trainmaster.model.job_state import JobState
from trainmaster.model.units import NOMINAL

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
    launch = _launched(engine, run, record.work)
    log.error(
        "a job was started more often than was replayed", run=run, is_known=launch is not None
    )
    if launch is None or not has_devices(controller.state.topology, launch):
        return False
    started = [RunStarted(run, NOMINAL)] if state == JobState.RUNNING else []
    controller.begin_following()
    controller.follow(controller.now, (), [launch])
    controller.follow(controller.now, started, ())
    controller.decide_by(controller.policy)
    return True


def _launched(engine: Engine, run: Run, work: int) -> Launch | None:
    """The order that this run was started by, as the run's own files have it."""
    recorded = engine.recorded(run)
    if recorded is None or not recorded.has_begun:
        return None
    try:
        record = LaunchRecord.from_json(recorded.record)
        placement = record.placement_on(engine.topology)
    except ValueError:
        return None
    return None if placement is None else Launch(run, placement, work)
