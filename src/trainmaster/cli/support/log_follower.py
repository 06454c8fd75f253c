"""A job's output as it comes, over attempts and across restarts of the daemon."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from trainmaster.cli.support.client import Client, Json, Query, Sent, Unreachable, of
from trainmaster.cli.support.job_rows import Row
from trainmaster.cli.support.wait import ABSENT_S, LONGEST_PAUSE_S, pauses, row_now

Write = Callable[["Piece"], None]
Note = Callable[[str], None]


UNREMARKABLE = ("starting", "running", "preflight")
PAUSES = ("pending", "suspended", "held")
"""States of a job that has started and does not run; others pass by themselves."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Some bytes that a rank wrote."""

    rank: int
    content: bytes


def _piece(sent: Sent) -> Piece:
    import base64

    said: Json = sent.json()
    return Piece(int(said.get("rank") or 0), base64.b64decode(said["bytes"]))


def follow(client: Client, job: str, query: Query, write: Write, note: Note) -> Row:
    """Write a job's output until it has ended and all of it is written; how it ended."""
    after = ""
    row = wait_for_start(client, job, note)
    standings = Standings(row.id, note)
    absent_since: float | None = None
    tail = dict(query)
    while True:
        try:
            for sent in client.events(of(job, "logs"), {**tail, "follow": "true"}, after):
                if sent.name == "log":
                    after, absent_since = sent.id, None
                    write(_piece(sent))
                elif sent.name == "state":
                    said = sent.json()
                    standings(said["state"], said.get("sentence") or "")
        except Unreachable:
            absent_since = absent_since or time.monotonic()
            if time.monotonic() - absent_since > ABSENT_S:
                raise
            time.sleep(LONGEST_PAUSE_S)
        if after:
            tail.pop("tail", None)  # what was written since is wanted whole
        if row.has_ended:  # since before this look: nothing can have been missed
            return row
        row = row_now(client, job)
        if not row.has_ended:
            standings(row.state, row.sentence)
            time.sleep(LONGEST_PAUSE_S / 5)


def wait_for_start(client: Client, job: str, note: Note) -> Row:
    """Wait until it has started once, saying why it waits."""
    for pause in pauses():
        row = row_now(client, job)
        if row.has_ended or row.start_s is not None:
            return row
        if row.state not in UNREMARKABLE:
            note(_standing(row.id, row.state, row.sentence))
        time.sleep(pause)
    raise AssertionError  # pragma: no cover: the pauses never end


def _standing(job: str, state: str, sentence: str) -> str:
    return f"Job {job} is {state}: {sentence}" if sentence else f"Job {job} is {state}."


class Standings:
    """Says of a job that has started that it pauses, why, and that it goes on."""

    def __init__(self, job: str, note: Note) -> None:
        self._job, self._note = job, note
        self._pauses = False

    def __call__(self, state: str, sentence: str) -> None:
        if state in PAUSES:
            self._note(_standing(self._job, state, sentence))
            self._pauses = True
        elif state == "running" and self._pauses:
            self._note(f"Job {self._job} runs again.")
            self._pauses = False


class Notes:
    """What happens to the job, on standard error, each thing once."""

    def __init__(self) -> None:
        self._last = ""

    def __call__(self, text: str) -> None:
        if text and text != self._last:
            sys.stderr.write(f"{text}\n")
            sys.stderr.flush()
        self._last = text or self._last


def write_plain(piece: Piece) -> None:
    """Bytes to standard output, untouched."""
    sys.stdout.buffer.write(piece.content)
    sys.stdout.buffer.flush()


class Prefixed:
    """Lines of several ranks, each with its rank before it."""

    def __init__(self) -> None:
        self._open: dict[int, bytes] = {}

    def __call__(self, piece: Piece) -> None:
        *lines, rest = (self._open.get(piece.rank, b"") + piece.content).split(b"\n")
        self._open[piece.rank] = rest
        for line in lines:
            self._write(piece.rank, line)

    def close(self) -> None:
        """Lines without an end."""
        for rank, rest in self._open.items():
            if rest:
                self._write(rank, rest)
        self._open.clear()

    def _write(self, rank: int, line: bytes) -> None:
        sys.stdout.buffer.write(b"[%d] %s\n" % (rank, line))
        sys.stdout.buffer.flush()
