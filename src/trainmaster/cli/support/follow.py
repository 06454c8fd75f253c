"""Following jobs until they end: their output as it comes, over attempts and restarts of the manager."""

from __future__ import annotations

import base64
import re
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from typing import TypeVar

from trainmaster.cli.support.client import (
    NOT_FOUND,
    Client,
    Query,
    RequestRefused,
    ServerEvent,
    Unreachable,
    job_path,
)
from trainmaster.cli.support.errors import INTERRUPTED, Failed, print_error
from trainmaster.cli.support.format import ended_sentence
from trainmaster.cli.support.job_table import list_jobs
from trainmaster.cli.support.submit_request import Submitted
from trainmaster.daemon.job_rows import JobRow
from trainmaster.model.job_state import LIVE_STATES, JobState

T = TypeVar("T")
ID = re.compile(r"\d+")
Write = Callable[[str, bytes], None]
"""Takes the rank, or the element of an array, and what it wrote."""

FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 1.0
ABSENT_S = 600.0
"""How long a manager may be away; its jobs keep running meanwhile."""
ABSENT_MIN = f"{ABSENT_S / 60:.0f} min"
ABSENT = f"The manager does not answer; waiting for it ({ABSENT_MIN} at most) …"
TRIES = 5
"""Streams of output that may end without anything in them, one after the other."""
STEADY_S = 5.0
"""A stream that stood longer than this worked: its job wrote nothing."""
MANY = 500
"""Elements of an array for which one second is added between requests."""
CANCEL_WAIT_S = 3.0
"""Time to press Ctrl-C again, in seconds."""
PAUSES = (JobState.PENDING, JobState.SUSPENDED)
"""States of a job that has started and does not run."""


# -- waiting -------------------------------------------------------------------------------------------


def poll(look: Callable[[], T | None]) -> T:
    """Poll until there is a result: quickly at first, then every second."""
    pause = FIRST_PAUSE_S
    while (found := look()) is None:
        time.sleep(pause)
        pause = min(pause * 1.3, LONGEST_PAUSE_S)
    return found


def retry(client: Client, ask: Callable[[], T]) -> T:
    """An answer, even if the manager is restarted, or another takes over, meanwhile: wherever it is then."""
    last: float | None = None
    while True:
        try:
            return ask()
        except Unreachable:
            if client.is_late:
                raise
            if client.look_again():
                continue
            if last is None and client.has_answered:
                sys.stderr.write(f"{ABSENT}\n")
                sys.stderr.flush()
                last = time.monotonic() + ABSENT_S
            if last is None or time.monotonic() > last:
                raise
            time.sleep(LONGEST_PAUSE_S)


def row_now(client: Client, job: str) -> JobRow:
    """The job as it is now; Failed where another has its id by now."""
    answer = retry(client, lambda: client.get(job_path(job)))
    client.check_job(answer["id"], answer.get("uuid"))
    return JobRow.from_json(answer)


def wait_for(client: Client, job: Submitted) -> list[JobRow]:
    """Wait for a job, or for every element of an array; how each ended."""
    live: Query = {"array": job.id, "state": ",".join(LIVE_STATES), "limit": 1}

    def ended() -> list[JobRow] | None:
        if not job.elements:
            row = row_now(client, job.id)
            return [row] if row.has_ended else None
        if retry(client, lambda: client.get("/jobs", live))["jobs"]:
            return None
        return elements_of(client, job.id)[::-1]

    return poll(ended)


# -- output --------------------------------------------------------------------------------------------


def _written(sent: ServerEvent) -> tuple[str, bytes]:
    answer = sent.json()
    return str(answer.get("rank") or 0), base64.b64decode(answer["bytes"])


def follow(client: Client, job: str, query: Query, write: Write, notes: Notes) -> JobRow:
    """Write a job's output until it has ended and all of it is written; how it ended."""
    after = ""
    row = wait_for_start(client, job, notes)
    tail = dict(query)
    cuts: list[float] = []
    """When the streams ended that brought nothing, since the last one that did."""
    while True:
        is_whole, began = False, time.monotonic()
        try:
            for sent in client.events(job_path(row.id, "logs"), {**tail, "follow": "true"}, after):
                cuts.clear()
                if sent.name == "log":
                    after = sent.id
                    write(*_written(sent))
                elif sent.name == "end":
                    is_whole = True
                elif sent.name == "state":
                    answer = sent.json()
                    if not answer.get("transition"):  # what passes by itself
                        notes.on_state(row.id, answer["state"], answer.get("sentence") or "")
        except Unreachable:
            time.sleep(LONGEST_PAUSE_S)
        if after:
            tail.pop("tail", None)  # what was written since is wanted whole
        if row.has_ended and is_whole:  # since before this look: nothing can have been missed
            return row
        row = row_now(client, row.id)
        if not row.has_ended and row.transition is None:
            notes.on_state(row.id, row.state, row.why)
        if not is_whole:
            if time.monotonic() - began > STEADY_S:
                cuts.clear()
            cuts.append(time.monotonic())
            _check_cuts(row, cuts, notes)
            time.sleep(LONGEST_PAUSE_S / 5)


def _check_cuts(row: JobRow, cuts: Sequence[float], notes: Notes) -> None:
    """Say that the output does not come; Failed after a few tries where the job has ended, else later."""
    if len(cuts) < TRIES:
        return
    if row.has_ended or cuts[-1] - cuts[0] > ABSENT_S:
        raise Failed(
            f"Job {row.id} {'has ended' if row.has_ended else f'is {row.state}'}, but its output cannot be"
            f" read to its end: the manager cuts it off each time. `trainmaster show {row.id}` says how"
            " the job is, the manager's log why."
        )
    if len(cuts) == TRIES:
        notes(f"The output of job {row.id} does not come; trying again ({ABSENT_MIN} at most) …")


def wait_for_start(client: Client, job: str, notes: Notes) -> JobRow:
    """Wait until it has started once, saying why it waits; a later job of the same name is another."""
    id = job

    def started() -> JobRow | None:
        nonlocal id
        row = row_now(client, id)
        id = row.id
        if row.has_ended or row.start_s is not None:
            return row
        if row.transition is None and row.state != JobState.RUNNING:
            notes(_state_sentence(row.id, row.state, row.why), reason_key(row))
        return None

    return poll(started)


def reason_key(row: JobRow) -> object:
    """What makes a reason another one; the times in its sentence change all the while."""
    why = row.reason
    return why and (row.state, why.code, tuple(why.held_by or ()), why.need, why.free)


def _state_sentence(job: str, state: str, sentence: str) -> str:
    return f"Job {job} is {state}: {sentence}" if sentence else f"Job {job} is {state}."


class Notes:
    """What happens to the job, on standard error, each thing once."""

    def __init__(self) -> None:
        self._last: object = ""
        self._pauses = False

    def __call__(self, text: str, key: object = None) -> None:
        """Say this, unless it was what was said last; `key` tells by what, where the text may vary."""
        if text and (key or text) != self._last:
            sys.stderr.write(f"{text}\n")
            sys.stderr.flush()
            self._last = key or text

    def on_state(self, job: str, state: str, sentence: str) -> None:
        """Of a job that has started: that it pauses, why, and that it goes on."""
        if state in PAUSES:
            self(_state_sentence(job, state, sentence))
            self._pauses = True
        elif state == JobState.RUNNING and self._pauses:
            self(f"Job {job} runs again.")
            self._pauses = False


def write_plain(_rank: str, content: bytes) -> None:
    """Bytes to standard output, untouched."""
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()


class PrefixedLines:
    """Lines of several ranks, or of several elements of an array, each with its own before it."""

    def __init__(self) -> None:
        self._open: dict[str, bytes] = {}
        """What each has begun to write: a line without its end."""

    def write(self, label: str, content: bytes) -> None:
        *lines, self._open[label] = (self._open.get(label, b"") + content).split(b"\n")
        sys.stdout.buffer.write(b"".join(b"[%s] %s\n" % (label.encode(), each) for each in lines))
        sys.stdout.buffer.flush()

    def end(self, label: str) -> None:
        """It has ended: its last line may have no line break."""
        if self._open.get(label):
            self.write(label, b"\n")

    def close(self) -> None:
        for label in list(self._open):
            self.end(label)


# -- arrays --------------------------------------------------------------------------------------------


def is_array(client: Client, id: str) -> bool:
    return bool(client.get("/jobs", {"array": id, "limit": 1})["jobs"])


def array_id(client: Client, job: str) -> str | None:
    """The id of the array that this id or name means; None where it means a job."""
    if ID.fullmatch(job):
        return job if is_array(client, job) else None
    found = client.get(job_path(job))
    return str(found["id"]) if found.get("elements") else None


def elements_of(client: Client, array: str) -> list[JobRow]:
    """All elements, the first one first; none where it is not the id of an array."""
    rows = retry(client, lambda: list(list_jobs(client, {"array": array})))
    return [JobRow.from_json(each) for each in reversed(rows)]


def follow_elements(client: Client, array: str) -> list[JobRow]:
    """Write what the elements write until all of them have ended; how each did."""
    output = ArrayOutput(client)

    def ended() -> list[JobRow] | None:
        rows = elements_of(client, array)
        output.write_new(rows)
        if all(row.has_ended for row in rows):
            return rows
        time.sleep(LONGEST_PAUSE_S * (len(rows) // MANY))
        return None

    return poll(ended)


class ArrayOutput:
    """How far the output of each element has been written here."""

    def __init__(self, client: Client) -> None:
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


# -- from submission to exit code ----------------------------------------------------------------------


def follow_to_end(client: Client, job: Submitted, all_ranks: bool) -> int:
    """The exit code of the job; of an array the highest."""
    notes = Notes()
    notes(job.sentence)
    try:
        return _follow(client, job, all_ranks, notes)
    except KeyboardInterrupt:
        if not wants_to_cancel(job):
            return INTERRUPTED
    try:
        retry(client, lambda: client.post(job_path(job.id, "cancel")))
        notes(f"Job {job.id} is being cancelled.")
        for row in wait_for(client, job):
            notes(ended_sentence(row))
    except (RequestRefused, Unreachable) as no:
        print_error(str(no))
    return INTERRUPTED


def wants_to_cancel(job: Submitted) -> bool:
    """Ask, after a first Ctrl-C: a second one means yes."""
    try:
        sys.stderr.write(f"\nJob {job.id} goes on. Ctrl-C again cancels it.\n")
        sys.stderr.flush()
        time.sleep(CANCEL_WAIT_S)
    except KeyboardInterrupt:
        return True
    sys.stderr.write(
        f"`trainmaster logs -f {job.id}` shows its output, `trainmaster cancel {job.id}` ends it.\n"
    )
    return False


def _follow(client: Client, job: Submitted, all_ranks: bool, notes: Notes) -> int:
    if job.elements:
        rows = follow_elements(client, job.id)
    elif all_ranks:
        with closing(PrefixedLines()) as lines:
            rows = [follow(client, job.id, {"rank": "all"}, lines.write, notes)]
    else:
        rows = [follow(client, job.id, {"rank": 0}, write_plain, notes)]
    for row in rows:
        notes(ended_sentence(row))
    return max(row.exit_status for row in rows)
