"""The daemon's clock: it never goes backwards, whatever happens to the wall clock."""

from __future__ import annotations

import time


class Clock:
    """Milliseconds since 1970, read off the wall once and carried on by a steady clock.

    Setting the wall clock while the daemon runs changes nothing. After a restart time goes on from the last
    stored step, if the wall clock is behind it.
    """

    def __init__(self, at_least_ms: int = 0) -> None:
        self._start_ms = max(at_least_ms, int(time.time() * 1000))
        self._steady = _steady()

    def now(self) -> int:
        return self._start_ms + int((_steady() - self._steady) * 1000)


def _steady() -> float:
    """Seconds of a clock that cannot be set, and that goes on while the machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
