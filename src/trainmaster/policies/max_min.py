"""Max-min fair shares of GPUs for elastic jobs: the dynamic baseline of CoDDL (KAIST).

Water-filling on whole GPUs (equal weights): on every arrival and end,
all jobs get their minimum in order of submission (higher `priority` first), as long as it lasts, and
then the smallest share is raised by one GPU, again and again, until none is left or all have their
maximum: 7 GPUs and demands of 1, 3 and 8 make 1, 3 and 3. Jobs that are not elastic get all or nothing.
Topology-aware: a GPU that would make a job slower, by the throughput estimated for the placement, goes
to the next one.

Deviations. The source does not say what happens when minima do not fit: later jobs wait, and one that
slipped in is suspended when an earlier one fits. `resize_cost_s` limits re-sharing.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heapreplace

from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.mechanisms.gpu_claims import Allocator, GpuClaim, Pool
from trainmaster.mechanisms.reallocating_policy import ElasticShares, ReallocatingOptions
from trainmaster.model.plan import Rank
from trainmaster.model.units import WHOLE


class WaterFilling:
    """The smallest share is raised first; among equals, that of the better rank."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._claims: list[GpuClaim] = []

    def admit(self, claim: GpuClaim) -> bool:
        if not self._pool.take(claim.kinds, claim.need):
            return False
        claim.count = claim.low
        if claim.low < claim.high:
            self._claims.append(claim)
        return True

    def finish(self) -> None:
        if len(self._pool.left) == 1:
            raise_level(self._claims, self._pool.total // WHOLE)
        else:
            self._one_by_one()

    def _one_by_one(self) -> None:
        """Where jobs may use different types of GPUs."""
        heap = [(claim.count, index, claim) for index, claim in enumerate(self._claims)]
        heapify(heap)
        while heap and self._pool.total >= WHOLE:
            count, index, claim = heap[0]
            if count == claim.high or not self._pool.take(claim.kinds, WHOLE):
                heappop(heap)
            else:
                claim.count = count + 1
                heapreplace(heap, (count + 1, index, claim))


def raise_level(claims: Sequence[GpuClaim], left: int) -> None:
    """Give out `left` GPUs: all get the highest level that they can all have, the rest one more each.

    A job whose minimum is above the level keeps it, one whose maximum is below gets that.
    """
    left += sum(claim.low for claim in claims)
    level, above = 0, 1 + max((claim.high for claim in claims), default=0)
    while above - level > 1:
        middle = (level + above) // 2
        if sum([min(max(middle, claim.low), claim.high) for claim in claims]) <= left:
            level = middle
        else:
            above = middle
    for claim in claims:
        claim.count = min(max(level, claim.low), claim.high)
        left -= claim.count
    for claim in claims:
        if left and claim.low <= level < claim.high:
            claim.count += 1
            left -= 1


class MaxMin(ElasticShares[ReallocatingOptions]):
    name = "max-min"

    def base_rank(self, view: View, record: JobRecord) -> Rank:
        return Rank(-record.job.priority, record.job.submit_ms)

    def allocator(self, pool: Pool) -> Allocator:
        return WaterFilling(pool)
