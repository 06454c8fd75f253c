"""From the facts of a step to the daemon's counters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from trainmaster.core.state import JobRecord
from trainmaster.daemon.live_job import LiveJob
from trainmaster.daemon.metrics import Metrics
from trainmaster.daemon.report_events import LoggedEvent
from trainmaster.model import events as e
from trainmaster.model.placement import Sharing
from trainmaster.model.units import NOMINAL, SECOND


def metered(
    metrics: Metrics, facts: Iterable[LoggedEvent], jobs: Mapping[str, LiveJob], now: int
) -> None:
    """Count what happened to runs; the jobs are as they were after the step."""
    for fact in facts:
        run = getattr(fact.event, "run", None)
        live = None if run is None else jobs.get(run.job)
        if live is not None and live.record is not None:
            _count(metrics, fact, live, live.record, now)


def _count(metrics: Metrics, fact: LoggedEvent, live: LiveJob, record: JobRecord, now: int) -> None:
    event, queue = fact.event, live.job.queue
    if isinstance(event, e.RunStarted) and record.first_start_ms == now:
        metrics.admitted(queue, now - live.job.submit_ms)
    elif isinstance(event, e.RunSuspended) and "took_s" in fact.detail:
        metrics.suspended(
            "freeze" if event.frozen else "halt", round(_number(fact, "took_s") * SECOND)
        )
        metrics.evicted(queue, "owner" if record.is_held else "policy")
        if not record.is_held:
            metrics.preempted(queue)
    elif isinstance(event, e.RunFailed | e.RunLost):
        metrics.evicted(queue, "failure" if isinstance(event, e.RunFailed) else "lost")
    elif isinstance(event, e.RunSpeedChanged) and event.speed_ppm:
        placement = record.placement
        if placement is not None and placement.sharing is not Sharing.EXCLUSIVE:
            metrics.packed(NOMINAL / event.speed_ppm)
    if "lost_s" in fact.detail:
        metrics.lost_work(_number(fact, "lost_s") * SECOND)


def _number(fact: LoggedEvent, name: str) -> float:
    found = fact.detail[name]
    assert isinstance(found, float | int)
    return found
