"""The times that the ranks of a run tell, and which of them is slower than the others.

Only the standard library is imported here: supervisors load it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TypeGuard

from trainmaster.failures.stragglers import OwnTime, Straggler, held_up_by, straggler
from trainmaster_sdk.wire import Message

KEPT = 9
"""Times of each rank that are compared."""
NEWS_PERCENT = 25
"""A straggler is told again when it has become so much slower or faster."""


class RankTimes:
    """`tell` is called with what is news: a straggler, or that there is none any more."""

    def __init__(self, tell: Callable[[str, Message], None]) -> None:
        self._tell = tell
        self._times: dict[int, deque[float]] = {}
        self._own: dict[int, deque[OwnTime]] = {}
        self._ranks = 0
        """How many there are, where they tell what they take for themselves."""
        self._told: Straggler | None = None

    def take(self, rank: int, step_ms: object) -> None:
        """What a rank took for a step, as the mean of its last second or more."""
        if not _is_time(step_ms):
            return
        times = self._times.setdefault(rank, deque(maxlen=KEPT))
        if times and times[-1] == step_ms:  # the same one, told with another step
            return
        times.append(float(step_ms))
        self._compare()

    def take_own(self, said: Message) -> None:
        """What a rank took of a step before it waited for the others, likewise."""
        rank, ranks = said.get("rank"), said.get("ranks")
        own_ms, step_ms = said.get("ms"), said.get("step_ms")
        if not isinstance(rank, int) or not isinstance(ranks, int) or not 0 <= rank < ranks:
            return
        if not _is_time(own_ms) or not _is_time(step_ms):
            return
        if ranks != self._ranks:
            self._own, self._ranks = {}, ranks
        times = self._own.setdefault(rank, deque(maxlen=KEPT))
        times.append(OwnTime(float(own_ms), float(step_ms)))
        self._compare()

    def _compare(self) -> None:
        found = straggler(self._times, self._told)
        found = found or held_up_by(self._own, self._ranks, self._told)
        if found == self._told or _is_like(found, self._told):
            return
        self._told = found
        self._tell("straggler", {} if found is None else _stated(found))


def _is_time(said: object) -> TypeGuard[float]:
    return not isinstance(said, bool) and isinstance(said, int | float) and said > 0


def _stated(found: Straggler) -> Message:
    said: Message = {"rank": found.rank, "percent": found.percent}
    if found.own_ms is not None:
        said |= {"own_ms": found.own_ms, "peers_ms": found.peers_ms}
    return said


def _is_like(found: Straggler | None, told: Straggler | None) -> bool:
    """Whether it is the same rank, about as slow."""
    if found is None or told is None or found.rank != told.rank:
        return False
    if (found.own_ms is None) != (told.own_ms is None):
        return False
    return abs(found.percent - told.percent) < NEWS_PERCENT
