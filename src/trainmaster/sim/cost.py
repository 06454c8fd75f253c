"""Cost of GPU time: a price per device and hour gives the cost of jobs, queues and idle GPUs.

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
"""One unit of the currency, in the unit of the accounts."""


def unpriced_types(topology: Topology) -> list[str]:
    """GPU types without a price; CPU slots come with their nodes and may go without."""
    kinds = topology.types
    return [kind.name for kind in kinds if kind.price_per_hour is None and kind.name != CPU_TYPE]


def money(booked: int) -> float:
    """A cost of the accounts, in the currency of the prices."""
    return booked / UNIT


class OverlapMeter:
    """Integrates the GPU share that runs hold beyond a whole GPU, where GPUs are shared.

    Opportunistic runs use a GPU in addition to others: GPU time and cost must not count it twice.
    """

    def __init__(self, prices: Sequence[int] | None = None) -> None:
        self._prices = prices
        """By GPU, where the sum is one of money; None = in GPU time."""
        self._shares: dict[int, int] = {}
        self._beyond = 0
        self._sum = 0
        self._since_ms = 0

    def count(self, placement: Placement, sign: int, now: int) -> int:
        """A run comes (1) or goes (-1); thousandths of GPUs that are in use in addition, or no more."""
        self.up_to(now)
        changed = 0
        for piece in placement.slices:
            before = self._shares.get(piece.gpu, 0)
            after = self._shares[piece.gpu] = before + sign * piece.share
            beyond = max(0, after - WHOLE) - max(0, before - WHOLE)
            self._beyond += beyond * (1 if self._prices is None else self._prices[piece.gpu])
            changed += after - before - beyond
        return changed

    def up_to(self, now: int) -> int:
        """The sum up to now."""
        self._sum += self._beyond * (now - self._since_ms)
        self._since_ms = now
        return self._sum


class CostMeter:
    """Meters the cost of held GPUs, and how much of it counts one GPU twice."""

    def __init__(self, topology: Topology) -> None:
        self._prices = [
            round((kind.price_per_hour or 0.0) * MILLION) for kind in topology.type_of_gpu
        ]
        self._shared: dict[str, Placement] = {}
        self._overlap = OverlapMeter(self._prices)

    @classmethod
    def of(cls, topology: Topology) -> CostMeter | None:
        """None if a GPU type has no price: sums would be meaningless."""
        return None if unpriced_types(topology) else cls(topology)

    def took(self, job: str, placement: Placement, now: int) -> int:
        """Price per hour of these GPUs, by the share of each that is held."""
        prices = self._prices
        if placement.sharing is Sharing.EXCLUSIVE:
            return WHOLE * sum([prices[piece.gpu] for piece in placement.slices])
        self._shared[job] = placement
        self._overlap.count(placement, 1, now)
        return sum([piece.share * prices[piece.gpu] for piece in placement.slices])

    def left(self, job: str, now: int) -> None:
        placement = self._shared.pop(job, None)
        if placement is not None:
            self._overlap.count(placement, -1, now)

    def idle(self, makespan_ms: int, spent: int, now: int) -> int:
        """Cost of GPUs that no job held, over the makespan."""
        whole_cluster = sum(self._prices) * WHOLE
        return whole_cluster * makespan_ms - (spent - self._overlap.up_to(now))


def wasted_part(spent: int, wasted: int, held: int) -> int:
    """The cost of wasted GPU time, at the mean price of the GPUs the job held."""
    return spent * wasted // held if held else 0


def queue_costs(jobs: Sequence[JobResult]) -> tuple[QueueCost, ...]:
    """GPU time and cost of each queue's jobs, by name; no cost without prices."""
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
    """Their sum; None if one is unknown, or there are none."""
    known = [cost for cost in costs if cost is not None]
    return sum(known) if known and len(known) == len(costs) else None
