"""The cluster at a glance, and what needs a person: one pass over the live jobs for everybody who asks."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from heapq import nsmallest

from trainmaster.core.lifecycle import WAITING
from trainmaster.core.state import JobRecord, State
from trainmaster.daemon.cluster_nodes import in_natural_order, known_nodes, node_state
from trainmaster.daemon.device_names import device_name
from trainmaster.daemon.driver import Driver
from trainmaster.daemon.failure_history import FAILED, failed_run
from trainmaster.daemon.hang_remarks import hung_jobs
from trainmaster.daemon.idle_watch import IdleWatch
from trainmaster.daemon.live_job import LiveJob
from trainmaster.daemon.response_models import FailureClass, NodeNote, QueueBar, amount
from trainmaster.daemon.reused_answer import ReusedAnswer
from trainmaster.model.failure_report import FailedRun
from trainmaster.model.queue import Queue
from trainmaster.model.units import HOUR, MINUTE, NOMINAL, SECOND, WHOLE
from trainmaster.store.rows import DAY_MS, FailedRunRow

IDLE_MS = 5 * MINUTE
LONG_WAIT_MS = 30 * MINUTE
MOST_FAILED = 2000
"""Failed runs of the last 24 hours that are sorted into classes, the newest ones."""
NAMED = 5
AROUND = 20
"""Queues in queues, at most."""


@dataclass(frozen=True, slots=True)
class Devices:
    """How many there are, and what those that jobs hold do."""

    total: int
    used: int
    measured: int
    util_ppm: int | None


@dataclass(frozen=True, slots=True)
class Facts:
    """What is the same for everybody who asks."""

    at_ms: int
    devices: Devices
    waiting: Sequence[tuple[int, str]]
    """Since when, and the job: of those that may start, the first one first."""
    hung: Sequence[LiveJob]
    idle: Sequence[tuple[LiveJob, int]]
    gpus_idle: int
    nodes: Sequence[NodeNote]
    queues: Sequence[QueueBar]


class OverviewFacts:
    """Of one manager that leads."""

    def __init__(
        self, driver: Driver, device_counts: Callable[[], tuple[int, int]], idle: IdleWatch
    ) -> None:
        self._driver = driver
        self._device_counts = device_counts
        self._idle = idle
        self._facts = ReusedAnswer[Facts]()
        self._failed = ReusedAnswer[Sequence[FailedRunRow]]()
        self._lost = ReusedAnswer[int]()

    async def facts(self) -> Facts:
        return await self._facts.get(None, self._look)

    async def lost_gpu_ms(self, user: str | None) -> int:
        """Since midnight, in thousandths of a GPU x ms: of all jobs, or those of one user."""
        driver, now = self._driver, self._driver.clock.now()
        midnight = now - now % DAY_MS

        async def add() -> int:
            return await asyncio.to_thread(driver.store.lost_gpu_ms, midnight, user)

        stored = await self._lost.get((midnight, user), add)
        return stored + driver.usage.lost_gpu_ms(driver.jobs, user)

    async def failures(self, user: str | None) -> list[FailureClass]:
        """Of the last 24 hours by reason, the most frequent first: of all jobs, or those of one user."""
        driver = self._driver
        since_ms = driver.clock.now() - DAY_MS

        async def read() -> Sequence[FailedRunRow]:
            return await asyncio.to_thread(
                driver.store.newest_failed_runs, FAILED, since_ms, MOST_FAILED
            )

        rows = await self._failed.get(None, read)
        own = [row for row in rows if user in (None, row.user)]
        classes: dict[str, list[tuple[FailedRunRow, FailedRun]]] = {}
        for row in own:
            run = failed_run(row.job, row.user, row.name, json.loads(row.detail_json))
            if run is not None:
                classes.setdefault(run.reason, []).append((row, run))
        found = [self._class(reason, runs) for reason, runs in classes.items()]
        return sorted(found, key=lambda each: (-each.runs, each.reason))

    def _class(self, reason: str, runs: Sequence[tuple[FailedRunRow, FailedRun]]) -> FailureClass:
        row = self._driver.failures.table.of(reason)
        gpu_ms = sum(run.run_ms * run.gpus for _, run in runs)
        return FailureClass(
            reason=reason,
            title=row.title,
            blame=", ".join(sorted({str(run.blame) for _, run in runs})),
            runs=len(runs),
            jobs=list(dict.fromkeys(row.job for row, _ in runs))[:NAMED],
            gpu_hours=round(gpu_ms / (WHOLE * HOUR), 6),
            last_s=runs[0][0].at_ms / SECOND,
        )

    async def _look(self) -> Facts:
        driver, state = self._driver, self._driver.controller.state
        total, used = self._device_counts()
        idle = [
            (driver.jobs[job], idle_ms)
            for job, idle_ms in self._idle.idle(IDLE_MS)
            if job in driver.jobs
        ]
        waiting = [
            (record.waiting_since_ms, record.id)
            for record in state.jobs.values()
            if record.phase in WAITING and record.may_start
        ]
        return Facts(
            at_ms=driver.clock.now(),
            devices=Devices(total, used, *self._utilisation(state)),
            waiting=sorted(waiting),
            hung=[live for live, _ in hung_jobs(driver.jobs.values())],
            idle=sorted(idle, key=lambda each: -each[1]),
            gpus_idle=len({gpu for live, _ in idle for gpu in _held_by(live)}),
            nodes=list(self._nodes(state)),
            queues=_queue_bars(state),
        )

    def _utilisation(self, state: State) -> tuple[int, int | None]:
        """How many held devices are measured, and the mean of what they do."""
        uuids, readings = state.topology.uuids, self._driver.readings
        if not uuids:
            return 0, None
        placed = (each.placement for each in state.jobs.values() if each.placement is not None)
        held = {gpu for placement in placed for gpu in placement.gpus()}
        read = (readings.device(uuids[gpu]) for gpu in held)
        known = [each.util_ppm for each in read if each is not None and each.util_ppm is not None]
        return len(known), sum(known) // len(known) if known else None

    def _nodes(self, state: State) -> Iterable[NodeNote]:
        for node in in_natural_order(known_nodes(state)):
            said = node_state(state, node.index)
            if said != "up":
                yield NodeNote(node.name, said, self._driver.nodes.why_away(node.name))
        for gpu, aside in sorted(state.gpus_aside.items()):
            if not state.is_all_aside(state.topology.node_of_gpu[gpu]):
                yield NodeNote(device_name(state.topology, gpu), "set aside", aside.why)


def _held_by(live: LiveJob) -> Sequence[int]:
    placement = None if live.record is None else live.record.placement
    return [] if placement is None else list(placement.gpus())


def longest_waits(
    facts: Facts, jobs: dict[str, LiveJob], most: int, user: str | None
) -> list[LiveJob]:
    """Of all jobs or those of one user: that have waited for long, the longest first."""
    found = (
        (since, job)
        for since, job in facts.waiting
        if facts.at_ms - since >= LONG_WAIT_MS and job in jobs
        if user is None or jobs[job].job.user == user
    )
    return [jobs[job] for _, job in nsmallest(most, found)]


def _queue_bars(state: State) -> list[QueueBar]:
    used, waiting = Counter[str](), Counter[str]()
    for record in state.jobs.values():
        if record.placement is not None:
            used.update(dict.fromkeys(_around(state, record), record.placement.total_share))
        elif record.phase in WAITING and record.may_start:
            asked = record.demand.nominal.total_share
            waiting.update(dict.fromkeys(_around(state, record), asked))
    names = sorted({*state.queues, *used, *waiting})
    return [_bar(state.queues.get(name, Queue(name)), used[name], waiting[name]) for name in names]


def _around(state: State, record: JobRecord) -> Sequence[str]:
    """The queue of a job, and those around it."""
    found: list[str] = [record.job.queue]
    while len(found) < AROUND and (queue := state.queues.get(found[-1])) and queue.parent:
        found.append(queue.parent)
    return found


def _bar(queue: Queue, used: int, waiting: int) -> QueueBar:
    return QueueBar(
        name=queue.name,
        parent=queue.parent,
        guaranteed_gpus=amount(queue.guaranteed),
        maximum_gpus=None if queue.maximum is None else amount(queue.maximum),
        gpus=amount(used),
        borrowed_gpus=amount(max(0, used - queue.guaranteed)),
        waiting_gpus=amount(waiting),
        starved_gpus=amount(min(waiting, max(0, queue.guaranteed - used))),
    )


def mean_utilisation(devices: Devices) -> float | None:
    """From 0 to 1."""
    return None if devices.util_ppm is None else devices.util_ppm / NOMINAL
