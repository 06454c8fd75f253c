"""Holds back a program that cannot be held back at the ends of its steps: it is stopped part of the time.

Only where the GPU is shared by time-slicing: a stopped client of MPS may hold up the others.
"""

from __future__ import annotations

from trainmaster.engines.local.process_freezer import Members, freeze, thaw
from trainmaster_sdk.wire import FULL_PACE

PERIOD_S = 0.5


class DutyCycle:
    """Runs for the part of each period that the pace says."""

    def __init__(self, members: Members) -> None:
        self._members = members
        self.pace = FULL_PACE
        self._is_stopped = False
        self._next_at = 0.0

    @property
    def due_at(self) -> float | None:
        """When `tick` wants to be called; None: it runs all the time."""
        if self.pace == FULL_PACE and not self._is_stopped:
            return None
        return self._next_at

    def tick(self, now: float) -> None:
        if self.pace == FULL_PACE:
            self.let_go()
        elif now >= self._next_at:
            runs_s = PERIOD_S * self.pace / FULL_PACE
            if self._is_stopped and runs_s > 0:
                self.let_go()
                self._next_at = now + runs_s
            else:
                self._is_stopped = freeze(self._members) or self._is_stopped
                self._next_at = now + PERIOD_S - runs_s

    def end(self) -> None:
        """Let it run all the time, until it has a pace again."""
        self.pace = FULL_PACE
        self.let_go()

    def let_go(self) -> None:
        """Let it run, if it is stopped."""
        if self._is_stopped:
            self._is_stopped = False
            thaw(self._members)
