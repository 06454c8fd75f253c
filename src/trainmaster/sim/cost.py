"""What GPU time costs: a price per device and hour gives the cost of jobs, queues and idle GPUs.

Prices are integers, millionths of the currency per device and hour; money that adds up during a run
is in those x thousandths of a GPU x ms, so that the books close exactly.
"""

from __future__ import annotations

from collections.abc import Sequence

from trainmaster.model.placement import Placement, Sharing
from trainmaster.model.result import JobResult, QueueCost
from trainmaster.model.topology import CPU_TYPE, Topology
from trainmaster.model.units import HOUR, SECOND, WHOLE

MILLION = 1_000_000
UNIT = MILLION * WHOLE * HOUR
"""One of the currency, in what the books are kept in."""


def unpriced_types(topology: Topology) -> list[str]:
    """GPU types without a price; CPU slots come with their nodes and may go without."""
    kinds = topology.types
    return [kind.name for kind in kinds if kind.price_per_hour is None and kind.name != CPU_TYPE]


def money(booked: int) -> float:
    """What was booked, in the currency of the prices."""
    return booked / UNIT


class CostMeter:
    """Who holds what at which price, and how much of it is the same GPU held twice."""

    def __init__(self, topology: Topology) -> None:
        self._prices = [
            round((kind.price_per_hour or 0.0) * MILLION) for kind in topology.type_of_gpu
        ]
        self.whole_cluster = sum(self._prices) * WHOLE
        """What all devices cost together, per hour."""
        self._shares: dict[int, int] = {}
        """Thousandths held of each shared GPU; opportunistic runs add to others."""
        self._shared: dict[str, Placement] = {}
        self._beyond = 0
        """What is paid per hour beyond the price of the GPUs that are held."""
        self._overlap = 0
        self._overlap_ms = 0

    @classmethod
    def of(cls, topology: Topology) -> CostMeter | None:
        """None where a GPU type has no price: no sum would mean anything."""
        return None if unpriced_types(topology) else cls(topology)

    def took(self, job: str, placement: Placement, now: int) -> int:
        """What these GPUs cost their holder per hour: by the share of each that it holds."""
        prices = self._prices
        if placement.sharing is Sharing.EXCLUSIVE:
            return WHOLE * sum([prices[piece.gpu] for piece in placement.slices])
        self._shared[job] = placement
        self._share(placement, 1, now)
        return sum([piece.share * prices[piece.gpu] for piece in placement.slices])

    def left(self, job: str, now: int) -> None:
        placement = self._shared.pop(job, None)
        if placement is not None:
            self._share(placement, -1, now)

    def _share(self, placement: Placement, sign: int, now: int) -> None:
        self.overlap(now)
        for piece in placement.slices:
            before = self._shares.get(piece.gpu, 0)
            after = self._shares[piece.gpu] = before + sign * piece.share
            beyond = max(0, after - WHOLE) - max(0, before - WHOLE)
            self._beyond += beyond * self._prices[piece.gpu]

    def overlap(self, now: int) -> int:
        """What was paid up to now for more than the whole of a GPU."""
        self._overlap += self._beyond * (now - self._overlap_ms)
        self._overlap_ms = now
        return self._overlap

    def idle(self, makespan_ms: int, spent: int, now: int) -> int:
        """What the cluster cost over the makespan while nobody held it."""
        return self.whole_cluster * makespan_ms - (spent - self.overlap(now))


def wasted_part(spent: int, wasted: int, held: int) -> int:
    """The cost of wasted GPU time, at the mean price of all that the job held."""
    return spent * wasted // held if held else 0


def queue_costs(jobs: Sequence[JobResult]) -> tuple[QueueCost, ...]:
    """What each queue's jobs held and cost, by name; no cost where none is known."""
    by_queue: dict[str, list[JobResult]] = {}
    for job in jobs:
        by_queue.setdefault(job.queue, []).append(job)
    return tuple(
        QueueCost(
            queue=queue,
            jobs=len(theirs),
            gpu_s=sum(job.held for job in theirs) / (WHOLE * SECOND),
            cost=total([job.cost for job in theirs]),
            cost_wasted=total([job.cost_wasted for job in theirs]),
        )
        for queue, theirs in sorted(by_queue.items())
    )


def total(costs: Sequence[float | None]) -> float | None:
    """Their sum; None as soon as one is not known, or there is none."""
    known = [cost for cost in costs if cost is not None]
    return sum(known) if known and len(known) == len(costs) else None
