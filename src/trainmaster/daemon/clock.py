"""The manager's clock: it never goes backwards, even if the wall clock is set."""

from __future__ import annotations

import time


class Clock:
    """Milliseconds since 1970, read from the wall clock once and continued by a monotonic clock.

    Setting the wall clock while the manager runs changes nothing. After a restart time goes on from the last
    stored step, if the wall clock is behind it.
    """

    def __init__(self, at_least_ms: int = 0) -> None:
        self._start_ms = max(at_least_ms, int(time.time() * 1000))
        self._steady = _steady()

    def at(self, steady_ms: int) -> int:
        """The time at which the machine's steady clock showed that."""
        return self._start_ms + steady_ms - int(self._steady * 1000)

    def now(self) -> int:
        return self._start_ms + int((_steady() - self._steady) * 1000)


def _steady() -> float:
    """Seconds of a clock that cannot be set, and that goes on while the machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
