"""The leader's lease: it shows that it works, and acts only while no other manager can have taken over.

A standby compares the leader's sign of life from time to time. One that does not change for as long as the
limit `leader_silence` allows belongs to a leader that hangs; the standby then leads by force, which begins
a new epoch of the store. A leader that was stopped meanwhile must not act on what it decided before: its
lease has run out, so it asks the store first.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import structlog

from trainmaster.store.errors import LeadershipLost, StoreError
from trainmaster.store.store import Store

log = structlog.get_logger("trainmaster.daemon")

BEATS = 5
"""Heartbeats in the time after which a silent leader is replaced."""
LONGEST_TURN = 4
"""What counts of the time between two looks: as many usual ones. All beyond it, this process slept too."""


def boot_time_s() -> float:
    """A clock that goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Lease:
    """The leader's side."""

    def __init__(
        self, store: Store, silence_s: float, now_s: Callable[[], float] = boot_time_s
    ) -> None:
        self._store = store
        self._every_s = silence_s / BEATS
        self._valid_s = silence_s / 2
        self._now_s = now_s
        self._valid_until_s = now_s() + self._valid_s

    async def keep(self) -> None:
        """Show every now and then that this leader works; LeadershipLost when it does not lead any more."""
        while True:
            await self._show()
            await asyncio.sleep(self._every_s)

    async def confirm(self) -> None:
        """Before each act: LeadershipLost if another manager may lead by now."""
        if self._now_s() >= self._valid_until_s:
            await self._show(is_needed=True)

    async def _show(self, *, is_needed: bool = False) -> None:
        begun_s = self._now_s()
        try:
            await asyncio.to_thread(self._store.beat)
        except LeadershipLost:
            raise
        except StoreError:  # whoever writes steps says so; without a store nobody else leads either
            if is_needed:
                raise
        else:
            self._valid_until_s = begun_s + self._valid_s


class LeaderWatch:
    """A standby's side: how long the leader has not shown that it works."""

    def __init__(self, silence_s: float, every_s: float) -> None:
        self._silence_s = silence_s
        self._longest_s = LONGEST_TURN * every_s
        self._sign: tuple[int, ...] | None = None
        self._looked_s = 0.0
        self._silent_s = 0.0

    def is_silent(self, sign: tuple[int, ...], now_s: float) -> bool:
        """Whether this sign of life has been the same for too long."""
        since_s = min(now_s - self._looked_s, self._longest_s)
        self._silent_s = self._silent_s + since_s if sign == self._sign else 0.0
        self._sign, self._looked_s = sign, now_s
        return self._silent_s >= self._silence_s
