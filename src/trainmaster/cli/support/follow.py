"""Following a job until it ends: its output as it comes, over attempts and restarts of the manager."""

from __future__ import annotations

import base64
import time
from collections.abc import Sequence

from trainmaster.cli.support.notes import Notes, reason_key, state_sentence
from trainmaster.cli.support.output_lines import Write
from trainmaster.client.manager_api import ManagerApi, Query, ServerEvent, Unreachable, job_path
from trainmaster.client.polling import ABSENT_MIN, ABSENT_S, pause, poll, row_now
from trainmaster.daemon.job_rows import JobRow
from trainmaster.errors import Failed
from trainmaster.model.job_state import JobState

TRIES = 5
"""Streams of output that may end without anything in them, one after the other."""
STEADY_S = 5.0
"""A stream that stood longer than this worked: its job wrote nothing."""


PRERUN_OUTPUT = "The output of the pre-run of job {}, on one device:"
RUN_OUTPUT = "The output of job {}, on all its devices:"


class _Attempts:
    """Says where the output of a pre-run begins, and where it is over."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._shown: int | None = None

    def see(self, row: JobRow, attempt: int) -> None:
        """Output of this attempt is about to be written."""
        last, self._shown = self._shown, attempt
        prerun = None if row.prerun is None else row.prerun.attempt
        if prerun is None or attempt == last:
            return
        if attempt == prerun:
            self._notes(PRERUN_OUTPUT.format(row.id))
        elif last == prerun:
            self._notes(RUN_OUTPUT.format(row.id))


def _written(sent: ServerEvent) -> tuple[str, bytes]:
    answer = sent.json()
    return str(answer.get("rank") or 0), base64.b64decode(answer["bytes"])


def follow(client: ManagerApi, job: str, query: Query, write: Write, notes: Notes) -> JobRow:
    """Write a job's output until it has ended and all of it is written; how it ended."""
    after = ""
    row = wait_for_start(client, job, notes)
    tail, attempts = dict(query), _Attempts(notes)
    cuts: list[float] = []
    """When the streams ended that brought nothing, since the last one that did."""
    while True:
        is_whole, began = False, time.monotonic()
        try:
            for sent in client.events(job_path(row.id, "logs"), {**tail, "follow": "true"}, after):
                cuts.clear()
                if sent.name == "log":
                    after = sent.id
                    attempts.see(row, sent.json().get("attempt") or 0)
                    write(*_written(sent))
                elif sent.name == "end":
                    is_whole = True
                elif sent.name == "state":
                    answer = sent.json()
                    if not answer.get("transition"):  # what passes by itself
                        notes.on_state(row.id, answer["state"], answer.get("sentence") or "")
        except Unreachable:
            pause()
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
            pause(1 / 5)


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


def wait_for_start(client: ManagerApi, job: str, notes: Notes) -> JobRow:
    """Wait until it has started once, saying why it waits; a later job of the same name is another."""
    id = job

    def started() -> JobRow | None:
        nonlocal id
        row = row_now(client, id)
        id = row.id
        if row.has_ended or row.start_s is not None:
            return row
        if row.transition is None and row.state != JobState.RUNNING:
            notes(state_sentence(row.id, row.state, row.why), reason_key(row))
        return None

    return poll(started)
