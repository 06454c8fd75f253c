"""When a run is expected to end, by what is known of how long it still takes."""

from __future__ import annotations

from trainmaster.core.state import JobRecord
from trainmaster.model.units import MINUTE


def expected_end(left: int | None, record: JobRecord, now: int) -> int | None:
    """By its remaining time; a job that has exceeded its estimate gets a tenth of its run time more."""
    if left is None:
        return None
    if left > 0:
        return now + left
    run_ms = now - record.since_ms if record.since_ms is not None else 0
    return now + max(MINUTE, run_ms // 10)
