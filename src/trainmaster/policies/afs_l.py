"""AFS-L (Hwang et al., NSDI'21): elastic shares for a short mean completion time, lengths known.

On every arrival and end the shares are divided again: all are 0, and one GPU after another goes to the
job of top priority, the winner of a tournament. Of two jobs without GPUs the one that is shorter
on one GPU wins. Else let a be the one that would end sooner at its present share (w/p; never, without
GPUs), b the other, p and p' the speeds with the present share and with one GPU more: b wins if
(p_b' - p_b)/p_b' > (p_a' - p_a)/p_a. That is when giving the GPU to b and not first to a makes the two
end sooner on average, if nothing else changes.

Deviations. The comparison is not transitive, so the order of the tournament matters and the source does
not say it: first come jobs with GPUs by falling gain p'/p, where exact heaps are possible, then the
shortest of those without. A job that must have at
least k GPUs gets its first k at once; rigid jobs get all or nothing. Measured curves are smoothed to
their concave hull, and GPUs that bring nothing are given on. Lengths come from estimates; a job without
one is taken to need as much again as it has done (our variant, not the paper's AFS-P), and lengths on
one GPU from the profile alone. Topology-aware placement and `resize_cost_s` as in `max-min`.
"""

from __future__ import annotations

from bisect import insort
from heapq import heappop, heappush

from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.estimators.throughput import UNKNOWN
from trainmaster.mechanisms.gpu_claims import Allocator, GpuClaim, Pool
from trainmaster.mechanisms.reallocating_policy import ElasticShares, ReallocatingOptions
from trainmaster.mechanisms.speedup_curves import SpeedupCurve
from trainmaster.model.plan import Rank
from trainmaster.model.units import NOMINAL, WHOLE

NEVER_STARTED = (1, 1)
"""Gain of the first GPU as the longer job sees it: (p' - p)/p' = 1."""
ROUNDING = 1e-9
"""Relative difference above which two floats are compared without the exact integers."""


class IdenticalJobs:
    """Jobs with the same speedup curve and share, so that a GPU gains them the same; shortest first."""

    __slots__ = ("curve", "due", "jobs", "more", "now", "rise", "share")

    def __init__(self, curve: SpeedupCurve, share: int) -> None:
        self.curve = curve
        self.share = share
        self.now, self.more, self.rise = curve.gain(share)
        self.jobs: list[tuple[int, int, GpuClaim]] = []
        """A heap of (work left, order of asking, claim)."""
        self.due = 0.0
        """Approximate end of its first job at this share; enough for most comparisons."""

    def add(self, order: int, claim: GpuClaim) -> None:
        heappush(self.jobs, (claim.work, order, claim))
        self.due = self.jobs[0][0] * self.curve.unit / self.now

    def pop(self) -> tuple[int, GpuClaim]:
        """Remove and return the shortest job."""
        _, order, claim = heappop(self.jobs)
        if self.jobs:
            self.due = self.jobs[0][0] * self.curve.unit / self.now
        return order, claim

    def ends_before(self, other: IdenticalJobs) -> bool:
        """Whether its first job ends sooner than the other's, at their present shares."""
        if abs(self.due - other.due) > ROUNDING * self.due:
            return self.due < other.due
        (mine, first, _), (theirs, second, _) = self.jobs[0], other.jobs[0]
        left = mine * self.curve.unit * other.now
        right = theirs * other.curve.unit * self.now
        return (left, first) < (right, second)


def beats(longer: tuple[int, int], shorter: tuple[int, int]) -> bool:
    """The comparison: (rise, p') of the job that ends later, (rise, p) of the one that ends sooner."""
    return longer[0] * shorter[1] > shorter[0] * longer[1]


class AfsAllocator:
    """Gives GPUs one by one to the job of top priority."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._groups: dict[tuple[int, int], IdenticalJobs] = {}
        """By curve and share."""
        self._by_gain: list[tuple[float, int, IdenticalJobs]] = []
        """All groups, largest p'/p first."""
        self._asked = 0

    def admit(self, claim: GpuClaim) -> bool:
        """Admit a job without GPUs as soon as no job with GPUs has priority over it."""
        while self._pool.total >= WHOLE and self._has_linear():
            top = self._top()
            if top is None or beats(NEVER_STARTED, (top.rise, top.now)):
                break
            self._grant(top)
        if not self._pool.take(claim.kinds, claim.need):
            return False
        claim.count = claim.low
        self._asked += 1
        self._enter(claim, self._asked)
        return True

    def finish(self) -> None:
        while self._pool.total >= WHOLE:
            top = self._top()
            if top is None:
                return
            self._grant(top)

    def _has_linear(self) -> bool:
        """Whether a job with GPUs would double its speed with one more; only such a job beats a first GPU."""
        return any(group.rise >= group.now for _, _, group in self._by_gain[:1])

    def _top(self) -> IdenticalJobs | None:
        """The winner among jobs that have GPUs.

        Coming by falling gain u = p'/p - 1, a challenger is never the longer winner: with
        v = 1 - p/p' < u, it would need v > u of the champion. It wins if it is shorter and its u is at
        least the champion's v; below that none wins any more.
        """
        champion: IdenticalJobs | None = None
        for _, _, group in self._by_gain:
            if champion is None:
                champion = group
            elif beats((champion.rise, champion.more), (group.rise, group.now)):
                break
            elif group.ends_before(champion):
                champion = group
        return champion

    def _grant(self, group: IdenticalJobs) -> None:
        """Give one GPU to the shortest job of the group; a job that cannot take it gets no more."""
        order, claim = group.pop()
        if not group.jobs:
            self._leave(group)
        if self._pool.take(claim.kinds, WHOLE):
            claim.count += 1
            self._enter(claim, order)

    def _enter(self, claim: GpuClaim, order: int) -> None:
        curve = claim.curve
        if curve is None or claim.count >= claim.high:
            return
        key = (id(curve), claim.count)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = IdenticalJobs(curve, claim.count)
            insort(self._by_gain, (-group.rise / group.now, order, group), key=_gain)
        group.add(order, claim)

    def _leave(self, group: IdenticalJobs) -> None:
        del self._groups[id(group.curve), group.share]
        self._by_gain = [each for each in self._by_gain if each[2] is not group]


def _gain(entry: tuple[float, int, IdenticalJobs]) -> tuple[float, int]:
    return entry[:2]


class AfsL(ElasticShares[ReallocatingOptions]):
    name = "afs-l"

    def __init__(self, options: ReallocatingOptions) -> None:
        super().__init__(options)
        self._one_gpu_slowdown: dict[object, int] = {}

    def forget(self) -> None:
        super().forget()
        self._one_gpu_slowdown.clear()

    def base_rank(self, view: View, record: JobRecord) -> Rank:
        """By remaining time on one GPU."""
        slowdown = self._on_one_gpu(view, record)
        left, speed = -record.work, -record.speed_ppm
        if record.estimate is None:
            left, speed = -left, -speed
        else:
            left += record.estimate.work
        if record.since_ms is None:
            return Rank(0, left * slowdown)
        return Rank(0, (left - record.since_ms * speed) * slowdown, rate=speed * slowdown)

    def waits_for_events(self, record: JobRecord) -> bool:
        """A job without an estimate that has run: others will always have run longer by now."""
        return record.estimate is None and record.first_start_ms is not None

    def _on_one_gpu(self, view: View, record: JobRecord) -> int:
        """Run time on one GPU relative to the nominal size, in parts per million; where there is none, 1."""
        key = (record.group, record.job.model, record.profile)
        found = self._one_gpu_slowdown.get(key)
        if found is None:
            profile = record.profile or UNKNOWN
            curve = self.curves(view).estimator.curve(record.job, profile, (1,))
            speed = curve[0][1] if curve else NOMINAL
            found = self._one_gpu_slowdown[key] = NOMINAL * NOMINAL // speed
        return found

    def allocator(self, pool: Pool) -> Allocator:
        return AfsAllocator(pool)
