"""Arrays: which name means one, its elements, and what they write."""

from __future__ import annotations

import re
from collections.abc import Iterable

from trainmaster.cli.support.output_lines import PrefixedLines
from trainmaster.client.job_lists import elements_of
from trainmaster.client.manager_api import NOT_FOUND, ManagerApi, RequestRefused, job_path
from trainmaster.client.polling import pause, poll, retry
from trainmaster.daemon.job_rows import JobRow

ID = re.compile(r"\d+")
MANY = 500
"""Elements of an array for which one second is added between requests."""


def is_array(client: ManagerApi, id: str) -> bool:
    return bool(client.get("/jobs", {"array": id, "limit": 1})["jobs"])


def array_id(client: ManagerApi, job: str) -> str | None:
    """The id of the array that this id or name means; None where it means a job."""
    if ID.fullmatch(job):
        return job if is_array(client, job) else None
    found = client.get(job_path(job))
    return str(found["id"]) if found.get("elements") else None


def follow_elements(client: ManagerApi, array: str) -> list[JobRow]:
    """Write what the elements write until all of them have ended; how each did."""
    output = ArrayOutput(client)

    def ended() -> list[JobRow] | None:
        rows = elements_of(client, array)
        output.write_new(rows)
        if all(row.has_ended for row in rows):
            return rows
        pause(len(rows) // MANY)
        return None

    return poll(ended)


class ArrayOutput:
    """How far the output of each element has been written here."""

    def __init__(self, client: ManagerApi) -> None:
        self._client = client
        self._attempts: dict[str, int] = {}
        self._read: dict[str, int] = {}
        """By element: bytes of its attempt that have been read."""
        self._lines = PrefixedLines()
        self._done: set[str] = set()

    def write_new(self, rows: Iterable[JobRow]) -> None:
        """Write what is new of these."""
        for row in rows:
            if row.id in self._done:
                continue
            if row.start_s is not None or row.attempt:
                self._go_on(row)
            if row.has_ended:
                self._lines.end(row.id)
                self._done.add(row.id)

    def close(self) -> None:
        self._lines.close()

    def _go_on(self, row: JobRow) -> None:
        """The rest of the attempt that was read last, and those that came since."""
        first = self._attempts.get(row.id, row.attempt)
        for attempt in range(first, row.attempt + 1):
            if attempt != self._attempts.get(row.id):
                self._attempts[row.id], self._read[row.id] = attempt, 0
            retry(self._client, lambda: self._read_on(row.id))

    def _read_on(self, id: str) -> None:
        query = {"rank": 0, "attempt": self._attempts[id], "from": self._read[id]}
        try:
            for piece in self._client.download(job_path(id, "logs"), query):
                self._read[id] += len(piece)
                self._lines.write(id, piece)
        except RequestRefused as no:
            if no.status != NOT_FOUND:
                raise
