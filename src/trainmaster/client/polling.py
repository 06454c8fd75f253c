"""Asking again: until there is a result, and while the manager is away."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from trainmaster.client.manager_api import ManagerApi, NotYet, Unreachable, job_path
from trainmaster.client.notes import note
from trainmaster.daemon.job_rows import JobRow

T = TypeVar("T")
FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 1.0
ABSENT_S = 600.0
"""How long a manager may be away; its jobs keep running meanwhile."""
ABSENT_MIN = f"{ABSENT_S / 60:.0f} min"
ABSENT = f"The manager does not answer; waiting for it ({ABSENT_MIN} at most) …"
BACK = "The manager answers again."


def pause(times: float = 1) -> None:
    """Wait as long as between two requests at most, so many times."""
    time.sleep(LONGEST_PAUSE_S * times)


def poll(look: Callable[[], T | None]) -> T:
    """Poll until there is a result: quickly at first, then every second."""
    pause_s = FIRST_PAUSE_S
    while (found := look()) is None:
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.3, LONGEST_PAUSE_S)
    return found


def retry(client: ManagerApi, ask: Callable[[], T]) -> T:
    """An answer, even if the manager is restarted, or another takes over, meanwhile: wherever it is then."""
    last: float | None = None
    while True:
        try:
            answer = ask()
            if last is not None:
                note(BACK)
            return answer
        except Unreachable as error:
            if client.is_late:
                raise
            if client.look_again():
                continue
            if last is None and client.has_answered:
                is_answer = isinstance(error, NotYet)
                note(f"{error} Trying again ({ABSENT_MIN} at most) …" if is_answer else ABSENT)
                last = time.monotonic() + ABSENT_S
            if last is None or time.monotonic() > last:
                raise
            pause()


def row_now(client: ManagerApi, job: str) -> JobRow:
    """The job as it is now; Failed where another has its id by now."""
    answer = retry(client, lambda: client.get(job_path(job)))
    client.check_job(answer["id"], answer.get("uuid"))
    return JobRow.from_json(answer)
