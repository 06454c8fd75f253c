"""The jobs that a manager learns from when it takes over: the newest of each program."""

from __future__ import annotations

from collections.abc import Iterator

from trainmaster.model.job_state import JobState
from trainmaster.store.rows import StoredJob
from trainmaster.store.store import Store

OF_EACH = 20
"""As many as are remembered of each program."""
MOST = 5_000
"""Jobs that are read in all."""


def past_jobs(store: Store) -> Iterator[StoredJob]:
    """Those that have succeeded, the oldest first."""
    return reversed(store.newest_of_each_program(JobState.SUCCEEDED, OF_EACH, MOST))
