"""Tells the supervisors of runs how busy their GPUs are: a run on an idle GPU hangs sooner.

Called after each look at the GPUs; what is told is the highest use of several looks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainmaster.core.lifecycle import Phase
from trainmaster.core.state import JobRecord, State
from trainmaster.model.job import Run
from trainmaster.model.units import SECOND

if TYPE_CHECKING:
    from trainmaster.daemon.driver import Driver
    from trainmaster.daemon.gpu_readings import GpuReadings

TELL_MS = 10 * SECOND


class GpuActivity:
    """Listens to the readings of a driver's GPUs."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._peaks: dict[Run, int] = {}
        self._told_ms = driver.clock.now()

    def look(self, readings: GpuReadings) -> None:
        for run, util_ppm in self._uses(readings):
            self._peaks[run] = max(util_ppm, self._peaks.get(run, 0))
        now = self._driver.clock.now()
        if now - self._told_ms >= TELL_MS:
            self._told_ms, peaks, self._peaks = now, self._peaks, {}
            for run, util_ppm in peaks.items():
                self._driver.engine.tell_gpu_use(run, util_ppm)

    def _uses(self, readings: GpuReadings) -> Iterator[tuple[Run, int]]:
        """Of runs of which it is known."""
        for record in self._driver.controller.state.jobs.values():
            if record.phase is Phase.RUNNING:
                util_ppm = use_of(self._driver.controller.state, record, readings)
                if util_ppm is not None:
                    yield record.run, util_ppm


def use_of(state: State, record: JobRecord, readings: GpuReadings) -> int | None:
    """On the busiest of a run's GPUs; by all programs there, where nothing is known of its own."""
    uuids = state.topology.uuids
    if record.placement is None or not uuids:
        return None
    use, found = readings.of_run(record.run), []
    for gpu in record.placement.gpus():
        own = None if use is None else use.util_ppm.get(uuids[gpu])
        reading = readings.device(uuids[gpu])
        whole = None if reading is None else reading.util_ppm
        found.append(whole if own is None else own)
    known = [each for each in found if each is not None]
    return max(known) if len(known) == len(found) else None
