"""From a submission to the exit code of its job, which Ctrl-C may cancel."""

from __future__ import annotations

import time
from contextlib import closing

from trainmaster.cli.support.arrays import follow_elements
from trainmaster.cli.support.console import write_error
from trainmaster.cli.support.errors import INTERRUPTED, print_error
from trainmaster.cli.support.follow import follow
from trainmaster.cli.support.notes import Notes
from trainmaster.cli.support.output_lines import PrefixedLines, write_plain
from trainmaster.cli.support.submit_request import Submitted
from trainmaster.client.job_lists import elements_of
from trainmaster.client.manager_api import ManagerApi, Query, RequestRefused, Unreachable, job_path
from trainmaster.client.polling import poll, retry, row_now
from trainmaster.daemon.job_rows import JobRow
from trainmaster.model.job_state import LIVE_STATES

CANCEL_WAIT_S = 3.0
"""Time to press Ctrl-C again, in seconds."""


def wait_for(client: ManagerApi, job: Submitted) -> list[JobRow]:
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


def follow_to_end(client: ManagerApi, job: Submitted, all_ranks: bool) -> int:
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
            notes(row.end_sentence)
    except (RequestRefused, Unreachable) as no:
        print_error(str(no))
    return INTERRUPTED


def wants_to_cancel(job: Submitted) -> bool:
    """Ask, after a first Ctrl-C: a second one means yes."""
    try:
        write_error(f"\nJob {job.id} goes on. Ctrl-C again cancels it.\n")
        time.sleep(CANCEL_WAIT_S)
    except KeyboardInterrupt:
        return True
    write_error(
        f"`trainmaster logs -f {job.id}` shows its output, `trainmaster cancel {job.id}` ends it.\n"
    )
    return False


def _follow(client: ManagerApi, job: Submitted, all_ranks: bool, notes: Notes) -> int:
    if job.elements:
        rows = follow_elements(client, job.id)
    elif all_ranks:
        with closing(PrefixedLines()) as lines:
            rows = [follow(client, job.id, {"rank": "all"}, lines.write, notes)]
    else:
        rows = [follow(client, job.id, {"rank": 0}, write_plain, notes)]
    for row in rows:
        notes(row.end_sentence)
    return max(row.exit_status for row in rows)
