"""Stops runs that use more GPU memory than they have booked, and books what they needed from then on.

A run that is over its share at a look at the GPUs is held, which ends it with its work saved where its
program can; once it is gone, which needs no look, its booking is raised and the hold removed. The hold is
stored with the job, so a restart in between changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from trainmaster.core.lifecycle import Phase
from trainmaster.core.occupancy import is_opportunistic
from trainmaster.core.state import JobRecord
from trainmaster.daemon.live_job import Hold, LiveJob
from trainmaster.daemon.measurements import profile_of_peak
from trainmaster.daemon.memory_overuse import (
    Tenant,
    booking_after,
    over_its_share,
    overuse_words,
)
from trainmaster.daemon.report_events import LoggedEvent
from trainmaster.model import events as e
from trainmaster.model.placement import Sharing
from trainmaster.model.stop_reasons import Suspender, Suspension
from trainmaster.text.formatting import size

if TYPE_CHECKING:
    from trainmaster.daemon.driver import Driver
    from trainmaster.daemon.gpu_readings import GpuReadings

log = structlog.get_logger("trainmaster.daemon")


class MemoryWatch:
    """Listens to the readings of a driver's GPUs, and to the ends of the runs that it has stopped."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    def look(self, readings: GpuReadings) -> None:
        """Stop what is over its share."""
        self._driver.inbox.follow_up([*self._stops(readings)])

    def release(self, jobs: Iterable[LiveJob]) -> None:
        """Let those of them start again that were stopped and are gone."""
        self._driver.inbox.follow_up([*self._releases(jobs)])

    def _stops(self, readings: GpuReadings) -> Iterator[LoggedEvent]:
        state = self._driver.controller.state
        leaving = {piece.gpu for slices in state.leaving.values() for piece in slices}
        for gpu, tenants in self._tenants(readings).items():
            reading = readings.device(state.topology.uuids[gpu])
            if gpu in leaving or reading is None or not reading.memory_total:
                continue
            bookable = state.topology.type_of_gpu[gpu].memory - sum(each.used for each in tenants)
            free = min(bookable, reading.memory_total - reading.memory_used)
            worst = over_its_share(free, tenants)
            live = None if worst is None else self._driver.jobs.get(worst.run.job)
            if worst is not None and live is not None and Hold.MEMORY not in live.holds:
                yield from _stop(live, worst, overuse_words(worst, tenants))

    def _tenants(self, readings: GpuReadings) -> dict[int, list[Tenant]]:
        """The runs on each GPU that is shared."""
        uuids, jobs = self._driver.controller.state.topology.uuids, self._driver.jobs
        found: dict[int, list[Tenant]] = {}
        for record in self._driver.controller.state.jobs.values():
            placement = record.placement
            if placement is None or placement.sharing is Sharing.EXCLUSIVE or not uuids:
                continue
            use = readings.of_run(record.run)
            is_client = record.id in jobs and jobs[record.id].history.by_mps
            by_mps = is_client and record.demand.states_gpu_memory
            for piece in placement.slices:
                used = 0 if use is None else use.memory.get(uuids[piece.gpu], 0)
                is_guest = is_opportunistic(placement)
                tenant = Tenant(record.run, piece.memory, used, is_guest, by_mps)
                found.setdefault(piece.gpu, []).append(tenant)
        return found

    def _releases(self, jobs: Iterable[LiveJob]) -> Iterator[LoggedEvent]:
        state = self._driver.controller.state
        for live in jobs:
            record = live.record
            if Hold.MEMORY not in live.holds or record is None:
                continue
            if record.phase is Phase.HELD and record.run not in state.leaving:
                yield from self._raised_booking(live, record)
                yield from self._driver.dependencies.remove_hold(live, Hold.MEMORY)

    def _raised_booking(self, live: LiveJob, record: JobRecord) -> Iterator[LoggedEvent]:
        """What it books where that does not follow from what was measured: stated, or a part of a GPU."""
        shape = live.job.demand.nominal
        if record.profile is None or not live.job.demand.states_gpu_memory:
            return
        topology = self._driver.controller.state.topology
        allowed = [kind.memory for kind in topology.types if live.job.demand.allows(kind.name)]
        most = max(allowed, default=0)
        memory = booking_after(record.profile.gpu_memory, most)
        if memory > shape.memory:
            demand = replace(live.job.demand, nominal=replace(shape, memory=memory))
            changed = e.JobChanged(replace(live.job, demand=demand))
            yield LoggedEvent(changed, {"gpu_memory": size(memory)})


def _stop(live: LiveJob, over: Tenant, words: str) -> Iterator[LoggedEvent]:
    live.holds.add(Hold.MEMORY)
    log.warning("a run is over its GPU memory and is stopped", run=over.run, why=words)
    yield LoggedEvent(e.JobProfiled(live.id, profile=profile_of_peak(over.used)))
    by = Suspension(Suspender.MEMORY, detail=words)
    yield LoggedEvent(e.JobHeld(live.id, may_end=True, ends=True), {"memory": words}, by)
