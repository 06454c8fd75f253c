"""Curves over time, exact; fragmentation and causes of delay, looked at as often as a chart can show."""

from __future__ import annotations

from array import array

from trainmaster.core.state import State
from trainmaster.model.job import Demand
from trainmaster.model.placement import Role, Sharing
from trainmaster.model.result import Curve, Delays
from trainmaster.model.units import SECOND, WHOLE
from trainmaster.placement.placers import CONSOLIDATED
from trainmaster.sim.ledger import Ledger

SAMPLES = 1_500
"""At most about this many looks at fragmentation and causes over the arrivals' span."""


class Sampler:
    """Looks at a run after each step, at most every `grain_ms`."""

    def __init__(self, state: State, ledger: Ledger, span_ms: int) -> None:
        self._state = state
        self._ledger = ledger
        self._grain = span_ms // SAMPLES
        self.next_ms = 0
        self._times = array("q")
        self._progressing = array("q")
        self._queued = array("q")
        self._looks = array("q")
        self._fragmented = array("d")
        self._causes: tuple[int, int, int] = (0, 0, 0)
        self._delays = [0, 0, 0]
        self._demands: list[Demand] = []
        self._gpus = max(1, state.topology.training_gpus)

    def note(self, now: int) -> None:
        """Every change of what makes progress and of who waits, exactly."""
        progressing, queued = self._ledger.progressing, self._ledger.queued
        times = self._times
        if not times or progressing != self._progressing[-1] or queued != self._queued[-1]:
            if times and times[-1] == now:
                self._progressing[-1], self._queued[-1] = progressing, queued
                return
            times.append(now)
            self._progressing.append(progressing)
            self._queued.append(queued)

    def look(self, now: int) -> None:
        """Fragmentation and the causes of waiting from now on, as they stand at this look."""
        looks = self._looks
        if looks:
            span = now - looks[-1]
            for cause, jobs in enumerate(self._causes):
                self._delays[cause] += jobs * span
        self.next_ms = now + self._grain
        if looks and looks[-1] == now:
            looks.pop()
            self._fragmented.pop()
        looks.append(now)
        self._fragmented.append(self._fragmentation())
        self._causes = self._count_causes() if self._ledger.queued else (0, 0, 0)

    def end(self, now: int) -> None:
        """The last point of every curve."""
        self.look(now)
        if not self._times or self._times[-1] < now:
            self._times.append(now)
            self._progressing.append(self._ledger.progressing)
            self._queued.append(self._ledger.queued)

    def _fragmentation(self) -> float:
        """Part of the free GPUs that lie on partly used nodes."""
        space = self._state.occupancy
        free = space.total_free()
        if not free:
            return 0.0
        empty = 0
        for kind, row in enumerate(space.by_free):
            if len(set(space.largest)) == 1 or len(space.by_free) == 1:
                empty += space.largest[kind] * row[space.largest[kind]].bit_count()
        return 1.0 - empty / free

    def _count_causes(self) -> tuple[int, int, int]:
        """Waiting jobs by cause: share used up, fragmentation, contention."""
        ledger, space = self._ledger, self._state.occupancy
        if len(self._demands) != len(self._state.groups):
            self._demands = list(self._state.groups)
        parts = ledger.fairness.parts(list(ledger.using))
        fair_share = fragmentation = contention = 0
        fits: dict[int, bool] = {}
        for (queue, group), jobs in ledger.waiting.items():
            if not jobs:
                continue
            demand = self._demands[group]
            need = demand.nominal.total_share
            share = self._gpus * WHOLE * parts.get(queue, 1.0)
            if len(ledger.using) > 1 and ledger.using.get(queue, 0) + need > share:
                fair_share += jobs
                continue
            free = sum(space.free_gpus[kind] for kind in space.kinds_for(demand)) * WHOLE
            if demand.mode is Sharing.EXCLUSIVE and free >= need:
                if group not in fits:
                    found = CONSOLIDATED.shaped(space, demand, demand.nominal, Role.GUARANTEED)
                    fits[group] = found is not None
                if not fits[group]:
                    fragmentation += jobs
                    continue
            contention += jobs
        return fair_share, fragmentation, contention

    def delays(self) -> Delays:
        fair_share, fragmentation, contention = (total / SECOND for total in self._delays)
        return Delays(fair_share, fragmentation, contention)

    def utilisation(self) -> Curve:
        capacity = self._gpus * WHOLE
        return _curve(self._times, [milli / capacity for milli in self._progressing])

    def queue_length(self) -> Curve:
        return _curve(self._times, [float(count) for count in self._queued])

    def fragmentation(self) -> Curve:
        return _curve(self._looks, list(self._fragmented))


def _curve(times_ms: array[int], values: list[float]) -> Curve:
    times = tuple(ms / SECOND for ms in times_ms)
    return Curve(times, tuple(round(value, 6) for value in values))
