"""How a global batch is divided between ranks of unequal speed, in whole samples, and when that changes.

Ranks that average their gradients wait for the slowest, so that shares are best that let all take as long
(LB-BSP, Chen et al. 2020, section 4.1: a batch of each worker's own size, from its measured speed).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from heapq import heapify, heappop, heappush


@lru_cache(maxsize=64)
def divided(total: int, speeds: tuple[int, ...], most: tuple[int, ...] = ()) -> tuple[int, ...]:
    """Samples of each rank, so that the one that takes longest takes least; each has one, if they suffice.

    `speeds` are in any unit; `most` is what each rank can take at most, 0 for as many as there are. Ranks
    that cannot take all of them together are given more in the same way.
    """
    bounds = tuple(bound or total for bound in most or (0,) * len(speeds))
    if sum(bounds) < total:
        bounds = (total,) * len(speeds)
    shares = [int(rank < total) for rank in range(len(speeds))]
    waiting = [
        ((share + 1) / speed, rank)
        for rank, (share, speed) in enumerate(zip(shares, speeds, strict=True))
        if share < bounds[rank]
    ]
    heapify(waiting)
    for _ in range(total - sum(shares)):
        _, rank = heappop(waiting)
        shares[rank] += 1
        if shares[rank] < bounds[rank]:
            heappush(waiting, ((shares[rank] + 1) / speeds[rank], rank))
    return tuple(shares)


def longest(shares: Sequence[int], speeds: Sequence[int]) -> float:
    """How long a step takes: as the rank that takes longest."""
    return max(share / speed for share, speed in zip(shares, speeds, strict=True))


def saves_enough(
    now: Sequence[int], then: Sequence[int], speeds: Sequence[int], gain: float
) -> bool:
    """Whether steps become faster by this part, at least: other shares have a price, and speeds waver."""
    return longest(now, speeds) > (1 + gain) * longest(then, speeds)


@dataclass(frozen=True, slots=True)
class Division:
    """From this sample on, batches are divided so."""

    begin: int
    speeds: tuple[int, ...]
    most: tuple[int, ...]


class Divisions:
    """Which division holds where: the same on all ranks, however far each has drawn its batches ahead."""

    def __init__(self) -> None:
        self._known: list[Division] = []

    def add(self, division: Division) -> None:
        """It holds from its begin on; divisions come in order."""
        self._known.append(division)

    def forget_before(self, begin: int) -> None:
        """Nothing before this sample is divided any more."""
        past = [each for each in self._known if each.begin <= begin]
        self._known = self._known[max(0, len(past) - 1) :]

    def shares_at(self, begin: int, total: int, ranks: int) -> tuple[int, ...]:
        """Samples of each rank in the batch that begins there; equal ones for other numbers of ranks."""
        fitting = (each for each in reversed(self._known) if each.begin <= begin)
        found = next(fitting, None)
        if found is None or len(found.speeds) != ranks:
            return divided(total, (1,) * ranks)
        return divided(total, found.speeds, found.most)
