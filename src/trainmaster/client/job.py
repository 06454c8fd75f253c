"""A job of the Python client: its state, its output, its result, and what can be asked of it."""

from __future__ import annotations

import asyncio
import base64
import pickle
import time
from collections.abc import Generator, Iterator
from html import escape
from pathlib import Path
from typing import Any

from trainmaster.client import function_folder as files
from trainmaster.client.job_errors import (
    JobFailed,
    RemoteTraceback,
    error_of,
    interrupted_sentence,
    interruptions,
)
from trainmaster.client.manager_api import ManagerApi, Query, Unreachable, job_path
from trainmaster.client.polling import pause, poll, retry, row_now
from trainmaster.daemon.job_rows import JobRow
from trainmaster.errors import CommandError, Failed
from trainmaster.model.job_state import JobState
from trainmaster.text.formatting import duration

TRIES = 5
"""Streams of output that may end early, one after the other."""
NO_RESULT = "It wrote no result: its program ended before the function did."


class Job:
    """One job that the manager knows."""

    def __init__(
        self, api: ManagerApi, id: str, folder: Path | None = None, index: int = 0, name: str = ""
    ) -> None:
        self.api = api
        self.id = id
        self.name = name
        self.folder = folder
        """Where a function and its result are; None for a command."""
        self.index = index
        """Which call of the folder it is."""
        self.last: JobRow | None = None

    # -- as it is now ------------------------------------------------------------------------------------

    def row(self) -> JobRow:
        """All that lists show of it, as `trainmaster ps --json` has it."""
        if self.last is None or not self.last.has_ended:
            self.last = row_now(self.api, self.id)
        return self.last

    def see(self, row: JobRow) -> None:
        """Take over what a list has said of it."""
        self.last = row

    @property
    def state(self) -> str:
        """pending, running, suspended, succeeded, failed, timed_out or cancelled."""
        return str(self.row().state)

    @property
    def has_ended(self) -> bool:
        return self.row().has_ended

    @property
    def preemptions(self) -> int:
        return self.row().preemptions

    @property
    def restarts(self) -> int:
        return self.row().restarts

    def explain(self) -> str:
        """Why it waits, or what became of it, in a sentence."""
        return str(self.api.get(job_path(self.id, "explain"))["sentence"])

    # -- its result --------------------------------------------------------------------------------------

    def wait(self, timeout: float | None = None) -> JobRow:
        """Wait for its end; TimeoutError after so many seconds. An interrupt leaves the job running."""
        until = None if timeout is None else time.monotonic() + timeout

        def look() -> JobRow | None:
            row = self.row()
            if not row.has_ended and until is not None and time.monotonic() > until:
                raise TimeoutError(f"Job {self.id} is still {row.state} after {timeout:g} s.")
            return row if row.has_ended else None

        try:
            return poll(look)
        except KeyboardInterrupt as stop:
            stop.add_note(f"Job {self.id} goes on; job.cancel() ends it.")
            raise

    def result(self, timeout: float | None = None, rank: int = 0) -> Any:
        """What the function returned; of a command its output.

        What the function raised is raised here, with its traceback there as the cause; else JobFailed,
        JobTimedOut or JobCancelled say how the job ended.
        """
        row = self.wait(timeout)
        if row.state != JobState.SUCCEEDED:
            raise self._error(row, rank)
        if self.folder is None:
            return self.logs(rank)
        found = files.outcome_of(self.folder, self.index, rank)
        if found is None or not found.has_returned:
            raise JobFailed(f"Job {self.id} succeeded. {NO_RESULT}", row)
        return pickle.loads(found.pickled)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """What `result` would raise; None where it would not."""
        row = self.wait(timeout)
        return None if row.state == JobState.SUCCEEDED else self._error(row, 0)

    def _error(self, row: JobRow, rank: int) -> BaseException:
        failed = row.state == JobState.FAILED
        if self.folder is None or not failed:
            return error_of(row, self._last_lines() if failed else "")
        if row.end_reason is not None and row.end_reason.rank:
            rank = row.end_reason.rank
        found = files.outcome_of(self.folder, self.index, rank)
        if found is None or found.has_returned or found.attempt != row.attempt:
            return error_of(row, self._last_lines())
        sentence = " ".join(filter(None, [f"In job {self.id}.", interrupted_sentence(row)]))
        cause = RemoteTraceback(sentence, found.text)
        error = pickle.loads(found.pickled) if found.pickled else None
        if not isinstance(error, BaseException):
            last = found.text.strip().splitlines()[-1]
            error = error_of(row, last)
        error.__cause__ = cause
        return error

    def _last_lines(self) -> str:
        try:
            return self.logs(tail=10).strip()
        except CommandError:
            return ""

    async def awaitable(self, timeout: float | None = None) -> Any:
        """`result`, without holding up the event loop."""
        return await asyncio.to_thread(self.result, timeout)

    def __await__(self) -> Generator[Any, None, Any]:
        return self.awaitable().__await__()

    # -- its output --------------------------------------------------------------------------------------

    def logs(self, rank: int = 0, *, tail: int | None = None) -> str:
        """What a rank has written so far."""
        query = {"rank": rank, "tail": tail}
        return retry(
            self.api, lambda: b"".join(self.api.download(job_path(self.id, "logs"), query))
        ).decode("utf-8", "replace")

    def follow(self, rank: int = 0) -> Iterator[str]:
        """Its output in pieces as they come, until it has ended; also where it or the manager restarts."""
        after, early = "", 0
        query: Query = {"rank": rank, "follow": "true"}
        while True:
            try:
                for sent in self.api.events(job_path(self.id, "logs"), query, after):
                    early = 0
                    if sent.name == "log":
                        after = sent.id
                        piece = base64.b64decode(sent.json()["bytes"])
                        yield piece.decode("utf-8", "replace")
                    elif sent.name == "end":
                        return
            except Unreachable:
                pause()
            row, early = self.row(), early + 1
            if row.has_ended and early > TRIES:
                raise Failed(f"The output of job {self.id} cannot be read to its end.")
            pause(1 / TRIES)

    # -- what can be asked of it -------------------------------------------------------------------------

    def cancel(self) -> None:
        self._send("cancel")

    def suspend(self, *, force: bool = False) -> None:
        """Take it off its devices until `resume`; `force` does so where work would be lost."""
        self._send("suspend", force=force)

    def resume(self) -> None:
        self._send("resume")

    def _send(self, verb: str, *, force: bool = False) -> None:
        query = {"force": "true"} if force else None
        self.api.post(job_path(self.id, verb), query=query)

    # -- on a screen -------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        words, *others = cells(self)[2:]
        return f"<Job {self.id} {self.name}: {', '.join(filter(None, (words, *others)))}>"

    def _repr_html_(self) -> str:
        return html_table([self])


HEADINGS = ("job", "name", "state", "run", "")
MOST_ROWS = 50


def cells(job: Job) -> tuple[str, str, str, str, str]:
    """A job in a row of a table; as it was last seen where the manager does not answer."""
    try:
        row: JobRow | None = job.row()
    except CommandError:
        row = job.last
    if row is None:
        return job.id, job.name, "unknown", "", "the manager does not answer"
    said = row.where_or_why if row.state != JobState.SUCCEEDED else ""
    run = duration(row.run_s) if row.run_s else ""
    return (
        job.id,
        job.name,
        row.state_words,
        run,
        " ".join(filter(None, (said, interruptions(row)))),
    )


def html_table(jobs: list[Job]) -> str:
    """Jobs for a notebook; all text of users is escaped."""
    head = "".join(f"<th>{each}</th>" for each in HEADINGS)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(each)}</td>' for each in cells(job))}</tr>"
        for job in jobs[:MOST_ROWS]
    )
    more = len(jobs) - MOST_ROWS
    rest = f"<p>… and {more} more</p>" if more > 0 else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{rest}"
