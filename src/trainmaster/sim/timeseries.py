"""Exact curves of load; fragmentation and causes of delay, sampled as often as a chart can show."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable
from enum import Enum
from typing import Protocol, runtime_checkable

from trainmaster.core.controller import Controller
from trainmaster.core.view import View
from trainmaster.model.job import Demand
from trainmaster.model.placement import Role, Sharing
from trainmaster.model.reasons import Why
from trainmaster.model.result import Curve, Delays, SizeDelays
from trainmaster.model.units import SECOND, WHOLE
from trainmaster.placement.placers import CONSOLIDATED
from trainmaster.sim.accounting import Ledger

SAMPLES = 1_500
"""About the largest number of samples of fragmentation and causes over the arrivals' span."""

SIZE_BINS = (
    ("under 1 GPU", 0, WHOLE - 1),
    ("1 GPU", WHOLE, WHOLE),
    ("2-4 GPUs", WHOLE + 1, 4 * WHOLE),
    ("5-8 GPUs", 4 * WHOLE + 1, 8 * WHOLE),
    ("over 8 GPUs", 8 * WHOLE + 1, 1 << 60),
)
"""Philly's size classes, and one for fractions: label, from, to (thousandths of a GPU)."""


def size_label(share: int) -> str:
    return next(label for label, low, high in SIZE_BINS if low <= share <= high)


class DelayCause(Enum):
    """The cause that a delay is attributed to."""

    FAIR_SHARE = "fair share"
    FRAGMENTATION = "fragmentation"
    CONTENTION = "contention"


CAUSE_OF = {
    Why.SHARE_USED_UP: DelayCause.FAIR_SHARE,
    Why.FRAGMENTED: DelayCause.FRAGMENTATION,
    Why.HOST_TAKEN: DelayCause.FRAGMENTATION,
    Why.STOPPED_ON_NODE: DelayCause.FRAGMENTATION,
}
"""Causes of a policy's own reasons; the other reasons are contention."""

SizeAndCause = tuple[str, DelayCause]
"""A size class, and the cause of its jobs' waiting."""


@runtime_checkable
class DelayExplainer(Protocol):
    """A policy that attributes delays to causes itself."""

    def causes(self, view: View, memo: object, now: int) -> Callable[[str, Demand], Why]:
        """Why jobs of a queue with this demand wait now."""
        ...


class Sampler:
    """Records curves after each step, and samples the rest at most every `_grain`."""

    def __init__(self, controller: Controller, ledger: Ledger, span_ms: int) -> None:
        self._controller = controller
        self._state = state = controller.state
        self._ledger = ledger
        self._grain = span_ms // SAMPLES
        self.next_ms = 0
        self._times = array("q")
        self._progressing = array("q")
        self._queued = array("q")
        self._noted: tuple[int, int] | None = None
        self._sampled = array("q")
        self._fragmented = array("d")
        self._causes = Counter[SizeAndCause]()
        self._delays = Counter[SizeAndCause]()
        self._demands: list[Demand] = []
        self._gpus = max(1, state.topology.training_gpus)

    def record(self, now: int) -> None:
        """Record every change of the GPUs in progress and of the waiting jobs."""
        noted = progressing, queued = self._ledger.progressing, self._ledger.queued
        if noted == self._noted:
            return
        self._noted, times = noted, self._times
        if times and times[-1] == now:
            self._progressing[-1], self._queued[-1] = noted
        else:
            times.append(now)
            self._progressing.append(progressing)
            self._queued.append(queued)

    def sample(self, now: int) -> None:
        """Sample fragmentation and the causes of waiting."""
        sampled = self._sampled
        if sampled:
            span = now - sampled[-1]
            for cause, jobs in self._causes.items():
                self._delays[cause] += jobs * span
        self.next_ms = now + self._grain
        if sampled and sampled[-1] == now:
            sampled.pop()
            self._fragmented.pop()
        sampled.append(now)
        self._fragmented.append(self._fragmentation())
        self._causes = self._count_causes(now) if self._ledger.queued else Counter()

    def end(self, now: int) -> None:
        """Record the last point of every curve."""
        self.sample(now)
        if not self._times or self._times[-1] < now:
            self._times.append(now)
            self._progressing.append(self._ledger.progressing)
            self._queued.append(self._ledger.queued)

    def _fragmentation(self) -> float:
        """Fraction of the free GPUs that are on partly used nodes."""
        space = self._state.occupancy
        free = space.total_free()
        if not free:
            return 0.0
        empty = 0
        for kind, row in enumerate(space.by_free):
            if len(set(space.largest)) == 1 or len(space.by_free) == 1:
                empty += space.largest[kind] * row[space.largest[kind]].bit_count()
        return 1.0 - empty / free

    def _count_causes(self, now: int) -> Counter[SizeAndCause]:
        """Waiting jobs by size class and cause."""
        ledger, found = self._ledger, Counter[SizeAndCause]()
        if len(self._demands) != len(self._state.groups):
            self._demands = list(self._state.groups)
        cause_of = self._causes_now(now)
        for (queue, group), jobs in ledger.waiting.items():
            if jobs:
                demand = self._demands[group]
                label = size_label(demand.nominal.total_share)
                found[label, cause_of(queue, demand)] += jobs
        return found

    def _causes_now(self, now: int) -> Callable[[str, Demand], DelayCause]:
        """The policy's own reasons if it gives any, else causes derived from the occupancy."""
        policy = self._controller.policy
        if not isinstance(policy, DelayExplainer):
            return self._causes_by_occupancy()
        why = policy.causes(self._controller.view, self._controller.memo, now)
        return lambda queue, demand: CAUSE_OF.get(why(queue, demand), DelayCause.CONTENTION)

    def _causes_by_occupancy(self) -> Callable[[str, Demand], DelayCause]:
        ledger, space = self._ledger, self._state.occupancy
        parts = ledger.fairness.parts(list(ledger.using))
        fits: dict[Demand, bool] = {}

        def cause_of(queue: str, demand: Demand) -> DelayCause:
            need = demand.nominal.total_share
            share = self._gpus * WHOLE * parts.get(queue, 1.0)
            if len(ledger.using) > 1 and ledger.using.get(queue, 0) + need > share:
                return DelayCause.FAIR_SHARE
            free = sum(space.free_gpus[kind] for kind in space.kinds_for(demand)) * WHOLE
            if demand.mode is not Sharing.EXCLUSIVE or free < need:
                return DelayCause.CONTENTION
            if demand not in fits:
                found = CONSOLIDATED.shaped(space, demand, demand.nominal, Role.GUARANTEED)
                fits[demand] = found is not None
            return DelayCause.CONTENTION if fits[demand] else DelayCause.FRAGMENTATION

        return cause_of

    def delays(self) -> Delays:
        waited = self._delays

        def seconds(label: str) -> list[float]:
            return [waited[label, cause] / SECOND for cause in DelayCause]

        rows = {label: seconds(label) for label, _, _ in SIZE_BINS}
        by_size = tuple(SizeDelays(label, *row) for label, row in rows.items() if any(row))
        fair_share, fragmentation, contention = map(sum, zip(*rows.values(), strict=True))
        return Delays(fair_share, fragmentation, contention, by_size)

    def utilisation(self) -> Curve:
        capacity = self._gpus * WHOLE
        return _curve(self._times, [milli / capacity for milli in self._progressing])

    def queue_length(self) -> Curve:
        return _curve(self._times, [float(count) for count in self._queued])

    def fragmentation(self) -> Curve:
        return _curve(self._sampled, list(self._fragmented))


def _curve(times_ms: array[int], values: list[float]) -> Curve:
    times = tuple(ms / SECOND for ms in times_ms)
    return Curve(times, tuple(round(value, 6) for value in values))
