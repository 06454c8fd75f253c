"""Waiting for several jobs at once."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

from trainmaster.client.job import Job
from trainmaster.client.job_lists import elements_of
from trainmaster.client.manager_api import ManagerApi
from trainmaster.client.polling import FIRST_PAUSE_S, LONGEST_PAUSE_S

MANY = 500
"""Jobs for which one second is added between requests."""


def as_completed(jobs: Iterable[Job], timeout: float | None = None) -> Iterator[Job]:
    """Each job as soon as it has ended, whatever its end; TimeoutError after so many seconds."""
    left = list(dict.fromkeys(jobs))
    until = None if timeout is None else time.monotonic() + timeout
    pause_s = FIRST_PAUSE_S
    while left:
        _look(left)
        ended = [each for each in left if each.last is not None and each.last.has_ended]
        left = [each for each in left if each not in ended]
        yield from ended
        if not left:
            return
        if until is not None and time.monotonic() > until:
            raise TimeoutError(f"{len(left)} of the jobs have not ended after {timeout:g} s.")
        time.sleep(pause_s * (1 + len(left) // MANY))
        pause_s = FIRST_PAUSE_S if ended else min(pause_s * 1.3, LONGEST_PAUSE_S)


def _look(jobs: list[Job]) -> None:
    """See each as it is now: elements of an array by one list, the others one by one."""
    arrays: dict[tuple[ManagerApi, str], list[Job]] = {}
    for job in jobs:
        array, _, index = job.id.partition("_")
        if index:
            arrays.setdefault((job.api, array), []).append(job)
        else:
            job.row()
    for (api, array), elements in arrays.items():
        if len(elements) == 1:
            elements[0].row()
            continue
        rows = {row.id: row for row in elements_of(api, array)}
        for job in elements:
            job.see(rows[job.id])
