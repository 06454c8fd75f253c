"""Host memory of jobs on CPU slots whose users state none: booked by earlier runs, and never limited.

A job of which nothing is known books the usual part of its slot; the next ones book what the program was seen
to use. A booking decides who finds room beside it, and is no limit. What is known is what all processes of a
rank had together, where control groups count it, and else the peak of the largest process alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from trainmaster.daemon.live_job import LiveJob
from trainmaster.daemon.report_events import LoggedEvent
from trainmaster.model import events as e
from trainmaster.model.memory_estimate import MemoryEstimate
from trainmaster.model.topology import SLOT_TYPE
from trainmaster.model.units import MIB
from trainmaster.text.formatting import size

if TYPE_CHECKING:
    from trainmaster.daemon.driver import Driver

LEAST = 64 * MIB
"""Of what is booked: a program that does nothing needs some of it to start."""


class HostBookings:
    """Books host memory for jobs of a driver that state none."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    def estimate(self, live: LiveJob) -> MemoryEstimate | None:
        """What it is expected to use for each device; None: its user knows, or nobody does."""
        types = self._driver.controller.state.topology.types
        if live.recipe.memory is not None or all(kind.name != SLOT_TYPE for kind in types):
            return None
        return self._driver.memory_forecasts.host_estimate(live)

    def book(self, live: LiveJob) -> bool:
        """Let a job that holds nothing ask for what it is expected to use; whether that is news."""
        estimate, demand = self.estimate(live), live.job.demand
        if estimate is None:
            return False
        count = demand.nominal.count
        nodes = self._driver.controller.state.topology.nodes
        slots = [node for node in nodes if node.type.name == SLOT_TYPE]
        fits = max(node.memory // min(count, node.gpus) for node in slots)
        memory = min(fits, max(LEAST, estimate.high))
        expected = replace(demand, host_memory=demand.for_whole_gpu(memory))
        live.job = replace(live.job, demand=expected)
        return expected != demand

    def news(self, live: LiveJob) -> Iterator[LoggedEvent]:
        """The same for one that waits, as facts."""
        if self.book(live):
            demand = live.job.demand
            booked = size(demand.for_piece(demand.host_memory or 0))
            yield LoggedEvent(e.JobChanged(live.job), {"booked": f"{booked} of host memory"})
