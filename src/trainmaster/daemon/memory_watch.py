"""Stops runs that use more GPU memory than they have booked, and books what they needed from then on.

A run that is over its share at a look at the GPUs is held, which ends it with its work saved where its
program can; once it is gone, which needs no look, its booking is raised and the hold removed. The hold is
stored with the job, so a restart in between changes nothing. A neighbour that was out of memory by then has
not failed by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from trainmaster.core.lifecycle import Phase
from trainmaster.core.occupancy import is_opportunistic
from trainmaster.core.state import JobRecord
from trainmaster.daemon.live_job import Hold, LiveJob
from trainmaster.daemon.measurements import profile_of_peak
from trainmaster.daemon.memory_overuse import (
    Overuse,
    Tenant,
    booking_after,
    over_its_share,
    overuse_words,
    overuses,
    taking_words,
    who_took,
)
from trainmaster.daemon.report_events import LoggedEvent
from trainmaster.failures.reason_table import Memory
from trainmaster.failures.retry_rules import asked_memory, used_memory
from trainmaster.model import events as e
from trainmaster.model.failure import MEMORY_TAKEN_REASON, Blame, Failure
from trainmaster.model.job import Run
from trainmaster.model.placement import Sharing
from trainmaster.model.stop_reasons import Suspender, Suspension
from trainmaster.model.units import SECOND
from trainmaster.text.formatting import size

if TYPE_CHECKING:
    from trainmaster.daemon.driver import Driver
    from trainmaster.daemon.gpu_readings import GpuReadings

log = structlog.get_logger("trainmaster.daemon")

KEPT_MS = 10 * SECOND
"""How long after it has left the GPU a run that was over its booking may have been what harmed another."""


class MemoryWatch:
    """Listens to the readings of a driver's GPUs, and to the ends of the runs that it has stopped."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._overuses: dict[tuple[int, Run], tuple[Overuse, int]] = {}
        """By GPU and run: what was seen of it, and when it was last seen there."""

    def look(self, readings: GpuReadings) -> None:
        """Stop what is over its share."""
        tenants = self._tenants(readings)
        self._note(readings, tenants)
        self._driver.inbox.follow_up([*self._stops(readings, tenants)])

    def blamed(self, run: Run, failure: Failure | None) -> Failure | None:
        """The failure of a run; that of a neighbour, where that used GPU memory that the run had booked."""
        record = self._driver.controller.state.jobs.get(run.job)
        placement = None if record is None or record.run != run else record.placement
        if failure is None or placement is None:
            return failure
        if self._driver.failures.table.of(failure.reason).memory is not Memory.GPU:
            return failure
        used = used_memory(failure) or self._driver.measurements.peak_of(run)
        known = (overuse for overuse, _ in self._overuses.values())
        found = who_took(run, placement, used + asked_memory(failure), known)
        if found is None:
            return failure
        lines = (taking_words(found.by), *failure.lines)
        return replace(failure, reason=MEMORY_TAKEN_REASON, blame=Blame.PLATFORM, lines=lines)

    def _note(self, readings: GpuReadings, tenants: Mapping[int, Sequence[Tenant]]) -> None:
        """Remember who was over its booking, for as long as it is there: its booking may be raised since."""
        now, uuids = self._driver.clock.now(), self._driver.controller.state.topology.uuids
        for (gpu, run), (overuse, seen_ms) in [*self._overuses.items()]:
            use = readings.of_run(run)
            if use is not None and use.memory.get(uuids[gpu]):
                self._overuses[gpu, run] = overuse, now
            elif now - seen_ms > KEPT_MS:
                del self._overuses[gpu, run]
        for gpu, there in tenants.items():
            for found in overuses(gpu, there):
                key = gpu, found.by.run
                before = self._overuses.get(key)
                beside = found.beside if before is None else found.beside | before[0].beside
                self._overuses[key] = replace(found, beside=beside), now

    def release(self, jobs: Iterable[LiveJob]) -> None:
        """Let those of them start again that were stopped and are gone."""
        self._driver.inbox.follow_up([*self._releases(jobs)])

    def _stops(
        self, readings: GpuReadings, on: Mapping[int, Sequence[Tenant]]
    ) -> Iterator[LoggedEvent]:
        state = self._driver.controller.state
        leaving = {piece.gpu for slices in state.leaving.values() for piece in slices}
        for gpu, tenants in on.items():
            reading = readings.device(state.topology.uuids[gpu])
            if gpu in leaving or reading is None or not reading.memory_total:
                continue
            bookable = state.topology.type_of_gpu[gpu].memory - sum(each.used for each in tenants)
            free = min(bookable, reading.memory_total - reading.memory_used)
            worst = over_its_share(free, tenants)
            live = None if worst is None else self._driver.jobs.get(worst.run.job)
            if worst is not None and live is not None and Hold.MEMORY not in live.holds:
                yield from self._driver.profiled(live, profile_of_peak(worst.used))
                yield _stop(live, worst, overuse_words(worst, tenants))

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


def _stop(live: LiveJob, over: Tenant, words: str) -> LoggedEvent:
    live.holds.add(Hold.MEMORY)
    log.warning("a run is over its GPU memory and is stopped", run=over.run, why=words)
    by = Suspension(Suspender.MEMORY, detail=words)
    return LoggedEvent(e.JobHeld(live.id, may_end=True, ends=True), {"memory": words}, by)
