"""Failures on GPUs wait for the next look at the driver: an XID that ended them is read a moment later."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from trainmaster.daemon.failure_evidence import is_failure
from trainmaster.daemon.gpu_readings import GpuReadings
from trainmaster.model.engine_reports import Ended, Report
from trainmaster.model.job import Run

WAIT_S = 4.0
"""How long they wait at most: two looks, if the driver answers."""


class EndsOnGpus:
    """Holds back reports of failed runs until the driver was asked after them."""

    def __init__(self, readings: GpuReadings, again: Callable[[Report, int], None]) -> None:
        self._readings = readings
        self._again = again
        self._held: list[tuple[Report, int]] = []
        self._looked: set[Run] = set()
        """Runs whose end has waited long enough."""
        readings.listeners.append(lambda _: self.release())

    def ready(self, reports: Iterable[tuple[Report, int]]) -> list[tuple[Report, int]]:
        """Those to be taken in now; the others come again after the next look, or after a while."""
        found, before = list[tuple[Report, int]](), len(self._held)
        is_read = bool(self._readings.look.readings) and not self._readings.trouble
        for report, number in reports:
            is_end = isinstance(report, Ended) and is_failure(report)
            if is_read and is_end and report.run not in self._looked:
                self._held.append((report, number))
            else:
                self._looked.discard(report.run)
                found.append((report, number))
        if len(self._held) > before:
            asyncio.get_running_loop().call_later(WAIT_S, self.release)
        return found

    def release(self) -> None:
        """Let them be taken in."""
        held, self._held = self._held, []
        for report, number in held:
            self._looked.add(report.run)
            self._again(report, number)
