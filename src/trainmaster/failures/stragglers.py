"""Which rank of a gang is slower than its peers: by the medians of the times that each tells.

Ranks that do not wait for each other differ in what they take for a step (`straggler`). Those that do all
take the time of the slowest one, and differ in what they take before they wait (`held_up_by`).
"""

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
HELD_UP_PERCENT = 120
"""A rank holds its peers up where a step takes so much of what it would take without its delay, ..."""
NOT_HELD_UP_PERCENT = 110
"""... until it is less than this."""
TOGETHER_PERCENT = 115
"""Ranks wait for each other where the longest step takes at most so much of the shortest one."""


@dataclass(frozen=True, slots=True)
class Straggler:
    rank: int
    percent: int
    """Of the time that its peers take for a step, or where they wait for it, of a step without its delay."""
    own_ms: int | None = None
    """Where they wait for it: what it takes of each step before that, ..."""
    peers_ms: int | None = None
    """... and what they take."""


@dataclass(frozen=True, slots=True)
class OwnTime:
    """What a rank takes of a step before it waits for the others, and the whole step."""

    own_ms: float
    step_ms: float


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


def held_up_by(
    times: Mapping[int, Sequence[OwnTime]], ranks: int, known: Straggler | None = None
) -> Straggler | None:
    """The rank that the others wait for, where all take the same time for a step; `known` was it before.

    Most of the time it must take longer before it waits than its peers usually do, and so much longer that
    the steps would be shorter without it.
    """
    if ranks < 2 or len(times) < ranks or min(map(len, times.values())) < FEWEST:
        return None
    own = {rank: median(each.own_ms for each in told) for rank, told in times.items()}
    steps = [median(each.step_ms for each in told) for told in times.values()]
    if 100 * max(steps) > TOGETHER_PERCENT * min(steps):
        return None
    slowest = max(own, key=lambda rank: (own[rank], -rank))
    peers = median(each for rank, each in own.items() if rank != slowest)
    without = median(steps) - (own[slowest] - peers)
    if without <= 0 or 100 * own[slowest] < SLOWER_PERCENT * peers:
        return None
    percent = round(100 * median(steps) / without)
    is_known = known is not None and known.rank == slowest
    if percent < (NOT_HELD_UP_PERCENT if is_known else HELD_UP_PERCENT):
        return None
    if not is_known and min(each.own_ms for each in times[slowest]) <= peers:
        return None
    return Straggler(slowest, percent, round(own[slowest]), round(peers))
