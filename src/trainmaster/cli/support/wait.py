"""Waiting for jobs to end, across restarts of the daemon."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from trainmaster.cli.support.client import Client, Query, Unreachable, of
from trainmaster.cli.support.job_rows import LIVE_STATES, Row, listed, row_of
from trainmaster.cli.support.submit_request import Submitted

T = TypeVar("T")

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


def patiently(ask: Callable[[], T]) -> T:
    """An answer, even if the daemon is restarted meanwhile."""
    until = time.monotonic() + ABSENT_S
    while True:
        try:
            return ask()
        except Unreachable:
            if time.monotonic() > until:
                raise
            time.sleep(LONGEST_PAUSE_S)


def row_now(client: Client, job: str) -> Row:
    return row_of(patiently(lambda: client.get(of(job))))


def wait_for(client: Client, job: Submitted) -> list[Row]:
    """Wait for a job, or for every element of an array; how each ended."""
    live: Query = {"array": job.id, "state": ",".join(LIVE_STATES), "limit": 1}
    for pause in pauses():
        if job.is_array:
            if not patiently(lambda: client.get("/jobs", live))["jobs"]:
                ended = patiently(lambda: list(listed(client, {"array": job.id})))
                return [row_of(said) for said in ended]
        else:
            row = row_now(client, job.id)
            if row.has_ended:
                return [row]
        time.sleep(pause)
    raise AssertionError  # pragma: no cover: the pauses never end
