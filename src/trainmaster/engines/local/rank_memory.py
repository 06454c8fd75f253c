"""How much host memory the processes of a rank have together: read from its control group, now and then.

What the kernel itself keeps as the group's peak has the pages of files in it that were read, which it takes
back when others need memory: a program that reads a large dataset once would seem to need all of it. So what
it cannot take back is read again and again, and a peak between two readings is missed.

Only the standard library is imported: supervisors load this.
"""

from __future__ import annotations

from collections.abc import Callable

SOON_S, EVERY_S = 0.2, 1.0
"""Between two readings, at first and later."""
EARLY_S = 10.0
"""Within which a program takes most of what it will have."""


class RankMemory:
    """Remembers the most that any rank had."""

    def __init__(self, read: Callable[[int], int]) -> None:
        self._read = read
        """Bytes of a rank's processes now; 0: they are not counted."""
        self._began = 0.0
        self.due_at: float | None = None
        """When `tick` wants to be called, by time.monotonic(); None: nothing is counted."""
        self.peak = 0

    def start(self, now: float) -> None:
        self._began = self.due_at = now

    def tick(self, now: float, ranks: int) -> None:
        if self.due_at is None or now < self.due_at:
            return
        self.peak = max(self.peak, *map(self._read, range(ranks)))
        self.due_at = now + (SOON_S if now - self._began < EARLY_S else EVERY_S)
