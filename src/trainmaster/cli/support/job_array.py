"""The elements of an array together: what they write, each line with the element before it."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable

from trainmaster.cli.support.client import NOT_FOUND, Client, Refused, of
from trainmaster.cli.support.job_rows import Row, listed, row_of
from trainmaster.cli.support.wait import patiently, pauses

MANY = 500
"""For so many elements one looks half as often."""


def is_array(client: Client, id: str) -> bool:
    return bool(client.get("/jobs", {"array": id, "limit": 1})["jobs"])


def elements_of(client: Client, array: str) -> list[Row]:
    """All elements, the first one first; none where this is no array's id."""
    said = patiently(lambda: list(listed(client, {"array": array})))
    return [row_of(each) for each in reversed(said)]


def follow_elements(client: Client, array: str) -> list[Row]:
    """Write what the elements write until all of them have ended; how each did."""
    outputs = Outputs(client)
    for pause in pauses():
        rows = elements_of(client, array)
        outputs.look(rows)
        if all(row.has_ended for row in rows):
            return rows
        time.sleep(pause * (1 + len(rows) // MANY))
    raise AssertionError  # pragma: no cover: the pauses never end


class Outputs:
    """How far the output of each element has been written here."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._attempts: dict[str, int] = {}
        self._read: dict[str, int] = {}
        """By element: bytes of its attempt that have been read."""
        self._open: dict[str, bytes] = {}
        """By element: the line that it has not ended yet."""
        self._done: set[str] = set()

    def look(self, rows: Iterable[Row]) -> None:
        """Write what is new of these."""
        for row in rows:
            if row.id in self._done:
                continue
            if row.start_s is not None or row.attempt:
                self._go_on(row)
            if row.has_ended:
                self._end_line(row.id)
                self._done.add(row.id)

    def close(self) -> None:
        """Lines without an end."""
        for id in list(self._open):
            self._end_line(id)

    def _go_on(self, row: Row) -> None:
        """The rest of the attempt that was looked at last, and those that came since."""
        first = self._attempts.get(row.id, row.attempt)
        for attempt in range(first, row.attempt + 1):
            if attempt != self._attempts.get(row.id):
                self._attempts[row.id], self._read[row.id] = attempt, 0
            patiently(lambda: self._read_on(row.id))

    def _read_on(self, id: str) -> None:
        query = {"rank": 0, "attempt": self._attempts[id], "from": self._read[id]}
        try:
            for piece in self._client.download(of(id, "logs"), query):
                self._read[id] += len(piece)
                self._write(id, piece)
        except Refused as no:
            if no.status != NOT_FOUND:
                raise

    def _write(self, id: str, piece: bytes) -> None:
        *lines, self._open[id] = (self._open.get(id, b"") + piece).split(b"\n")
        sys.stdout.buffer.write(b"".join(b"[%s] %s\n" % (id.encode(), each) for each in lines))
        sys.stdout.buffer.flush()

    def _end_line(self, id: str) -> None:
        if self._open.get(id):
            self._write(id, b"\n")
