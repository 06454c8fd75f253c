"""Waiting for jobs to end, across restarts of the daemon."""

from __future__ import annotations

import time
from collections.abc import Iterator

from trainmaster.cli.client import Client, Json, Query, Unreachable, of
from trainmaster.cli.live_jobs import Submitted
from trainmaster.cli.live_rows import LIVE_STATES, Row, listed, row_of

FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 1.0
ABSENT_S = 60.0
"""How long a daemon may be away, being restarted: its jobs go on meanwhile."""


def pauses() -> Iterator[float]:
    """Short at first, for jobs that are over soon; then up to a second."""
    pause = FIRST_PAUSE_S
    while True:
        yield pause
        pause = min(pause * 1.3, LONGEST_PAUSE_S)


def patiently(client: Client, path: str, query: Query | None = None) -> Json:
    """An answer, even if the daemon is restarted meanwhile."""
    until = time.monotonic() + ABSENT_S
    while True:
        try:
            return client.get(path, query)
        except Unreachable:
            if time.monotonic() > until:
                raise
            time.sleep(LONGEST_PAUSE_S)


def row_now(client: Client, job: str) -> Row:
    return row_of(patiently(client, of(job)))


def wait_for(client: Client, job: Submitted) -> list[Row]:
    """Wait for a job, or for every element of an array; how each ended."""
    for pause in pauses():
        if job.is_array:
            live: Query = {"array": job.id, "state": ",".join(LIVE_STATES), "limit": 1}
            if not patiently(client, "/jobs", live)["jobs"]:
                return [row_of(said) for said in listed(client, {"array": job.id})]
        else:
            row = row_now(client, job.id)
            if row.has_ended:
                return [row]
        time.sleep(pause)
    raise AssertionError  # pragma: no cover: the pauses never end
