"""Staying with a job until it ends: its output, its exit code, and what Ctrl-C means."""

from __future__ import annotations

import sys
import time

from trainmaster.cli.submit import sentence_of
from trainmaster.cli.support.client import Client, Refused, Unreachable, of
from trainmaster.cli.support.errors import INTERRUPTED, say
from trainmaster.cli.support.format import ended_sentence
from trainmaster.cli.support.job_array import follow_elements
from trainmaster.cli.support.log_follower import Notes, Prefixed, follow, write_plain
from trainmaster.cli.support.submit_request import Submitted
from trainmaster.cli.support.wait import patiently, wait_for

SECOND_THOUGHTS_S = 3.0
"""How long a second Ctrl-C is waited for."""


def attend(client: Client, job: Submitted, all_ranks: bool) -> int:
    """The exit code of the job; of an array the highest."""
    notes = Notes()
    notes(sentence_of(job))
    try:
        return _stay(client, job, all_ranks, notes)
    except KeyboardInterrupt:
        if not wants_to_cancel(job):
            return INTERRUPTED
    try:
        patiently(lambda: client.post(of(job.id, "cancel")))
        notes(f"Job {job.id} is being cancelled.")
        _stay(client, job, all_ranks, notes, only_wait=True)
    except (Refused, Unreachable) as no:
        say(str(no))
    return INTERRUPTED


def wants_to_cancel(job: Submitted) -> bool:
    """Ask, after a first Ctrl-C: a second one means yes."""
    try:
        sys.stderr.write(f"\nJob {job.id} goes on. Ctrl-C again cancels it.\n")
        sys.stderr.flush()
        time.sleep(SECOND_THOUGHTS_S)
    except KeyboardInterrupt:
        return True
    sys.stderr.write(
        f"`trainmaster logs -f {job.id}` shows its output, `trainmaster cancel {job.id}` ends it.\n"
    )
    return False


def _stay(
    client: Client, job: Submitted, all_ranks: bool, notes: Notes, only_wait: bool = False
) -> int:
    if only_wait:
        rows = wait_for(client, job)
    elif job.is_array:
        rows = follow_elements(client, job.id)
    elif all_ranks:
        lines = Prefixed()
        try:
            rows = [follow(client, job.id, {"rank": "all"}, lines, notes)]
        finally:
            lines.close()
    else:
        rows = [follow(client, job.id, {"rank": 0}, write_plain, notes)]
    for row in rows:
        notes(ended_sentence(row))
    return max(row.exit_status for row in rows)
