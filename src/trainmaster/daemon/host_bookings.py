"""Host memory of jobs on CPU slots whose users state none: booked, and limited, by what earlier runs needed.

Where control groups limit memory, a slot's host memory is to its job what a GPU's is to a job on GPUs. A job
of which nothing is known books the usual part of its slot and is not limited; the next ones get what the
program was seen to need. One that needs more is tried again with twice as much, and the next ones book that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainmaster.core.job_record import MEMORY_MARGIN_PERCENT, JobRecord
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

    def book(self, live: LiveJob) -> MemoryEstimate | None:
        """Change a job that holds nothing to what it is expected to need; None: that is no news."""
        topology, demand = self._driver.controller.state.topology, live.job.demand
        is_stated = live.recipe.memory is not None and not live.recipe.is_memory_estimated
        slots = [node for node in topology.nodes if node.type.name == SLOT_TYPE]
        if is_stated or not slots or not self._driver.engine.abilities.limits_memory:
            return None
        estimate = self._driver.memory_forecasts.host_estimate(live)
        if estimate is None:
            return None
        count = demand.nominal.count
        fits = max(node.memory // min(count, node.gpus) for node in slots)
        memory = min(fits, max(LEAST, estimate.high))
        if memory == live.recipe.memory:
            return None
        live.expect_memory(memory)
        return estimate

    def news(self, live: LiveJob) -> Iterator[LoggedEvent]:
        """The same for one that waits, as facts."""
        estimate = self.book(live)
        if estimate is not None:
            yield LoggedEvent(e.JobChanged(live.job), {"memory": size(live.recipe.memory or 0)})


def needed(record: JobRecord, peak: int | None) -> int | None:
    """What a run that has ended needed: at least what it was given after it had been out of memory."""
    now, first = (each.host_memory or 0 for each in (record.demand, record.job.demand))
    given = record.demand.for_piece(now)
    if peak is None or now <= first:
        return peak
    return max(peak, given * 100 // (100 + MEMORY_MARGIN_PERCENT))
