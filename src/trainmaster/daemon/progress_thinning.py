"""Thinning of progress reports: whole while they are young, then one a minute, and at last one an hour.

Else 400 reports a second would fill 1.4 GB a day (docs/measurements/scale.md).
"""

from __future__ import annotations

from trainmaster.model.units import HOUR, MINUTE
from trainmaster.store.store import Store

ROWS = 1_000
"""Looked at in one go, so that what jobs report is not held up."""
LATER = 10
"""After so many times `keep_progress` one report an hour is kept."""


class ProgressThinning:
    """How far the reports have been thinned; another manager begins again, and finds little to do."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._to_minutes = self._to_hours = 0
        """The last row that was looked at for this."""

    def step(self, now: int, keep_ms: int) -> bool:
        """Thin a few; whether there are more. It blocks: call it from a thread."""
        before = now - LATER * keep_ms
        last = self._store.thin_progress(self._to_hours, before, HOUR, ROWS)
        if last is not None:
            self._to_hours = last
            return True
        after = max(self._to_minutes, self._to_hours)
        last = self._store.thin_progress(after, now - keep_ms, MINUTE, ROWS)
        if last is not None:
            self._to_minutes = last
        return last is not None
