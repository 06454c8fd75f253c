"""What programs say of their progress, thinned: journals of week-long jobs stay readable."""

from __future__ import annotations

import math
import time
from typing import Any

MOST_PER_S = 1.0
"""Entries in a second, at most, for a young run."""
RAREST_S = 30.0
"""An old run has one entry in so many seconds."""
AGE_PER_S = 3600.0
"""For every hour of age an entry covers a second more."""

NUMBERS = ("loss", "samples_per_s")
COUNTS = ("total_steps", "epoch_steps")


def cleaned(said: dict[str, Any]) -> dict[str, Any] | None:
    """The fields of a progress line that are what they should be; None without a step."""
    step = _count(said.get("step"))
    if step is None:
        return None
    kept: dict[str, Any] = {"step": step}
    for name in NUMBERS:
        value = said.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            kept[name] = float(value)
    for name in COUNTS:
        count = _count(said.get(name))
        if count is not None:
            kept[name] = count
    return kept


def _count(value: object) -> int | None:
    is_whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    if not is_whole or isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if value >= 0 else None


class Thinner:
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
