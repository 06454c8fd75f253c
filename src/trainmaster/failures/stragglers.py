"""Which rank of a gang is slower than its peers: by the medians of the step times that each tells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

FEWEST = 5
"""Times of each rank that are needed; each is the mean of a second or more."""
SLOWER_PERCENT = 130
"""A rank is a straggler that takes so much of the time of its peers, ..."""
OVER_PERCENT = 115
"""... until it takes less than this."""


@dataclass(frozen=True, slots=True)
class Straggler:
    rank: int
    percent: int
    """Of the time that its peers take for a step."""


def straggler(
    times: Mapping[int, Sequence[float]], known: Straggler | None = None
) -> Straggler | None:
    """The slowest rank, where it is slower than all its peers most of the time; `known` was it before.

    Its fastest time must be slower than the usual one of its peers: a few slow steps are noise.
    """
    told = {rank: each for rank, each in times.items() if len(each) >= FEWEST}
    if len(told) < 2 or len(told) < len(times):
        return None
    usual = {rank: median(each) for rank, each in told.items()}
    slowest = max(usual, key=lambda rank: (usual[rank], -rank))
    peers = median(each for rank, each in usual.items() if rank != slowest)
    percent = round(100 * usual[slowest] / peers) if peers > 0 else 0
    is_known = known is not None and known.rank == slowest
    if percent < (OVER_PERCENT if is_known else SLOWER_PERCENT):
        return None
    return Straggler(slowest, percent) if is_known or min(told[slowest]) > peers else None
