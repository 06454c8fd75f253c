"""Which job gets the next worker: Optimus' greedy by marginal gain (EuroSys'18, section 4.1).

Every job has its first workers, in order of arrival. Then, again and again, a worker goes to the job
whose completion it brings forward most:

    gain = Q / f(w) - Q / f(w + 1),   Q the remaining work, f(w) the speed on w workers

until nothing is gained or nothing fits. The paper divides by the amount of the dominant resource that a
task takes, and gives parameter servers out by the same rule; here a worker is one GPU, and servers are
tied to workers.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush


@dataclass(slots=True)
class WorkerClaim:
    """A job that can use more workers, and how many it has been given so far."""

    job: Hashable
    work: float
    """What is left to do, in units of speed x time."""
    speeds: Mapping[int, float]
    """By number of workers."""
    count: int

    def gain(self) -> float:
        """Time that one more worker saves."""
        now, then = self.speeds.get(self.count, 0.0), self.speeds.get(self.count + 1, 0.0)
        if now <= 0:
            return float("inf") if then > 0 else 0.0
        return self.work / now - self.work / then if then > 0 else 0.0


def grow(
    claims: Iterable[WorkerClaim], takes: Callable[[WorkerClaim], bool]
) -> list[tuple[Hashable, float]]:
    """Hand out workers by the largest gain, ties in order of arrival; (job, gain) of each step.

    `takes` books one more worker for a claim if there is room for it, and says whether there was.
    """
    in_order = list(claims)
    heap = [(-claim.gain(), index) for index, claim in enumerate(in_order)]
    heapify(heap)
    steps = []
    while heap and heap[0][0] < 0:
        negated, index = heappop(heap)
        claim = in_order[index]
        if takes(claim):
            claim.count += 1
            steps.append((claim.job, -negated))
            heappush(heap, (-claim.gain(), index))
    return steps
