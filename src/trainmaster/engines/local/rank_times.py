"""The step times that the ranks of a run tell, and which of them is slower than the others.

Only the standard library is imported here: supervisors load it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from trainmaster.failures.stragglers import Straggler, straggler
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
        self._told: Straggler | None = None

    def take(self, rank: int, step_ms: object) -> None:
        """What a rank took for a step, as the mean of its last second or more."""
        if isinstance(step_ms, bool) or not isinstance(step_ms, int | float) or not step_ms > 0:
            return
        times = self._times.setdefault(rank, deque(maxlen=KEPT))
        if times and times[-1] == step_ms:  # the same one, told with another step
            return
        times.append(float(step_ms))
        found = straggler(self._times, self._told)
        if _is_like(found, self._told):
            return
        if found != self._told:
            self._told = found
            said = {} if found is None else {"rank": found.rank, "percent": found.percent}
            self._tell("straggler", said)


def _is_like(found: Straggler | None, told: Straggler | None) -> bool:
    """Whether it is the same rank, about as slow."""
    if found is None or told is None or found.rank != told.rank:
        return False
    return abs(found.percent - told.percent) < NEWS_PERCENT
