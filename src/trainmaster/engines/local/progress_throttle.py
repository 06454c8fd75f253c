"""Thins the reports of programs, so that journals of week-long jobs stay small."""

from __future__ import annotations

import time
from typing import Any

MOST_PER_S = 1.0
"""Entries in a second, at most, for a young run."""
RAREST_S = 30.0
"""An old run has at most one entry in this many seconds."""
AGE_PER_S = 3600.0
"""For every hour of age an entry covers a second more."""

SAVES_AT_ONCE = 10
SAVE_EVERY_S = 1.0

NUMBERS = ("loss", "samples_per_s", "steps_per_s")
COUNTS = ("step", "total_steps", "epoch_steps")
PROFILE = ("sync_bytes", "cpu_us", "activation_bytes", "batch")

LARGEST = 1e12
"""Larger numbers are not losses; in millionths they still fit into 64 bits."""
COUNT_END = 1 << 53
"""Counts are below it: every JSON reader keeps them exactly."""


def cleaned(said: dict[str, Any]) -> dict[str, Any] | None:
    """The fields of a progress line that are what they should be.

    None without a step, or with an impossible count.
    """
    kept: dict[str, Any] = {}
    for name in COUNTS:
        count = _whole(said.get(name))
        if count is not None:
            if not 0 <= count < COUNT_END:
                return None
            kept[name] = count
    for name in NUMBERS:
        value = said.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        if abs(value) <= LARGEST:  # neither infinite nor NaN, which compares as false
            kept[name] = float(value)
    if said.get("counted") is True:
        kept["counted"] = True
    return kept if "step" in kept else None


def cleaned_profile(said: dict[str, Any]) -> dict[str, int]:
    """The fields of a profile line that are what they should be."""
    found = {name: _whole(said.get(name)) for name in PROFILE}
    return {name: value for name, value in found.items() if value and 0 < value < COUNT_END}


def cleaned_limit(said: dict[str, Any]) -> dict[str, int] | None:
    """How many ranks it can use at most, of how many there are; None if it is not said rightly."""
    ranks, world = _whole(said.get("count")), _whole(said.get("world"))
    if ranks is None or world is None or not (0 < ranks < COUNT_END and 0 < world < COUNT_END):
        return None
    return {"ranks": ranks, "world": world}


def _whole(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) else None


class ProgressThrottle:
    """Holds the newest report back until one is due."""

    def __init__(self) -> None:
        self._born = time.monotonic()
        self._due = 0.0
        self.held: dict[str, Any] | None = None

    @property
    def due_at(self) -> float | None:
        """When the one that is held may be written; None where none is."""
        return None if self.held is None else self._due

    def take(self) -> dict[str, Any] | None:
        """The one that is held, to be written now."""
        now = time.monotonic()
        taken, self.held = self.held, None
        if taken is not None:
            rarer = (now - self._born) / AGE_PER_S
            self._due = now + min(RAREST_S, max(1 / MOST_PER_S, rarer))
        return taken


class SaveThrottle:
    """Lets a burst of saves through, then one in a second: the newest."""

    def __init__(self) -> None:
        self._full_at = 0.0
        """When as many would have been let through as may be."""
        self.held: dict[str, Any] | None = None

    @property
    def due_at(self) -> float | None:
        """When the one that is held may be written; None where none is."""
        return None if self.held is None else self._full_at - SAVES_AT_ONCE * SAVE_EVERY_S

    def take(self) -> dict[str, Any] | None:
        """The one that is held, to be written now."""
        taken, self.held = self.held, None
        if taken is not None:
            self._full_at = max(self._full_at, time.monotonic()) + SAVE_EVERY_S
        return taken
