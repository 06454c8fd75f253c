"""`trainmaster wait`: wait for jobs, and return their exit code."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated

import typer

from trainmaster.cli.support.console import remark, write_json
from trainmaster.cli.support.errors import print_error
from trainmaster.cli.support.format import seconds_of
from trainmaster.cli.support.job_table import states_of
from trainmaster.cli.support.options import AsJson, JobNames, option
from trainmaster.client.job_lists import elements_of
from trainmaster.client.manager_api import ManagerApi, Unreachable
from trainmaster.client.polling import poll, row_now
from trainmaster.daemon.job_rows import JobRow
from trainmaster.errors import FAILED
from trainmaster.model.job_state import JobState
from trainmaster.text.formatting import listing

TIMED_OUT = 124
"""As of `timeout`."""
FOR = "Wait until they are in one of these states, instead of for their end."


def wait(
    client: ManagerApi,
    jobs: JobNames,
    wanted: Annotated[str | None, option("--for STATE,…", FOR)] = None,
    timeout: Annotated[
        str | None, option("--timeout TIME", "Give up after this time: 30s, 5m, 2h.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Wait until jobs have ended, and return the exit code of the job; of several, the highest.

    With --for the exit code is 0 as soon as all are in one of the states, and 1 where one ends in
    another. It is 124 when --timeout is over.

    Examples:
        trainmaster wait 12
        trainmaster wait bert gpt --timeout 2h
        trainmaster wait 12 --for running
    """
    states = frozenset(_states(wanted)) if wanted else frozenset()
    patience = None if timeout is None else seconds_of(timeout, "--timeout")
    if patience is not None:
        client.until = time.monotonic() + patience
    try:
        ids = list(dict.fromkeys(id for job in jobs for id in _ids(client, job)))
        rows = _wait(client, ids, states)
    except Unreachable:
        if not client.is_late:
            raise
        print_error(f"the time of --timeout {timeout} is over, and the manager does not answer.")
        raise typer.Exit(TIMED_OUT) from None
    if as_json:
        shown = ("id", "name", "state", "exit_code")
        write_json({"jobs": [{key: getattr(row, key) for key in shown} for row in rows]})
    raise typer.Exit(_code(rows, states, timeout))


def _states(text: str) -> list[str]:
    unknown = "--for: `{state}` is not a job state (choose from {known})."
    return states_of(text, list(JobState), unknown).split(",")


def _ids(client: ManagerApi, job: str) -> list[str]:
    """The job; of an array, all its elements."""
    row = row_now(client, job)
    if row.array is not None and job in (row.array, row.name):
        return [each.id for each in elements_of(client, row.array)]
    return [each.id for each in elements_of(client, row.id)] or [row.id]


def _wait(client: ManagerApi, ids: Sequence[str], states: frozenset[str]) -> list[JobRow]:
    """The jobs as they are when all of them are done, or when the time is over."""
    found: dict[str, JobRow] = {}

    def look() -> list[JobRow] | None:
        for id in ids:
            if id not in found or not _is_done(found[id], states):
                found[id] = row_now(client, id)
        is_done = all(_is_done(row, states) for row in found.values())
        return list(found.values()) if is_done or client.is_late else None

    return poll(look)


def _is_done(row: JobRow, states: frozenset[str]) -> bool:
    return row.has_ended or row.state in states


def _code(rows: Sequence[JobRow], states: frozenset[str], timeout: str | None) -> int:
    late = [row for row in rows if not _is_done(row, states)]
    if late:
        still = listing([f"job {row.id} is still {row.state}" for row in late[:10]])
        print_error(f"the time of --timeout {timeout} is over: {still}.")
        return TIMED_OUT
    if states:
        others = [row for row in rows if row.state not in states]
        remark("Note", (f"job {row.id} {row.state} instead" for row in others[:10]))
        return FAILED if others else 0
    bad = [row for row in rows if row.exit_status]
    remark("Note", (f"j{row.end_sentence[1:].rstrip('.')}" for row in bad[:10]))
    return max(row.exit_status for row in rows)
