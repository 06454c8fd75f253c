"""`trainmaster ps`: the jobs, and where each runs or why it waits."""

from __future__ import annotations

import gc
import shutil
import sys
import time
from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

from trainmaster.cli.support.console import Styled, plainly, remark, say, write_json, write_styled
from trainmaster.cli.support.job_table import jobs_table, states_of
from trainmaster.cli.support.options import AsJson, OnlyMe, OnlyQueue, OnlyUser, option
from trainmaster.cli.support.plain_table import PlainTable, drawn, is_terminal, screen_width
from trainmaster.client.job_lists import list_jobs
from trainmaster.client.manager_api import ManagerApi, Query
from trainmaster.errors import BadInput
from trainmaster.model.job_state import LIVE_STATES, JobState

if TYPE_CHECKING:
    from rich.table import Table

PAUSE_S = 2.0
SECOND_SCREEN, FIRST_SCREEN = Styled("\x1b[?1049h\x1b[?25l"), Styled("\x1b[?25h\x1b[?1049l")
"""To a screen of its own without a cursor, and back to what was there before."""
CLEAR = "\x1b[H\x1b[2J"
ALL_USERS = (
    "Include jobs of other users, without their names. Operators and viewers see them anyway."
)
EACH = "Show every element of an array on its own line."


class OutputFormat(StrEnum):
    """How a list is written."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"


def ps(
    client: ManagerApi,
    everything: Annotated[bool, option("-a --all", "Include jobs that have ended.")] = False,
    all_users: Annotated[bool, option("-A --all-users", ALL_USERS)] = False,
    me: OnlyMe = False,
    user: OnlyUser = None,
    queue: OnlyQueue = None,
    state: Annotated[str | None, option("--state STATE,…", "Only jobs in these states.")] = None,
    array: Annotated[
        str | None, option("--array JOB", "Only elements of this array, by id or name.")
    ] = None,
    each: Annotated[bool, option("-r --each", EACH)] = False,
    limit: Annotated[
        int | None, option("--limit N", "Show at most the N newest lines.", min=1)
    ] = None,
    watch: Annotated[bool, option("--watch", "Refresh every 2 s until Ctrl-C.")] = False,
    form: Annotated[OutputFormat, option("-o --output", "Output format.")] = OutputFormat.TABLE,
    as_json: AsJson = False,
) -> None:
    """List jobs that have not ended, newest first, with where each runs or why it waits.

    Examples:
        trainmaster ps
        trainmaster ps -a --me
        trainmaster ps --all-users
        trainmaster ps --state pending,suspended -o wide
        trainmaster ps --watch
        trainmaster ps --json | jq '.jobs[].id'
    """
    gc.set_threshold(100_000)  # thousands of rows are read, and none of them has a cycle
    query: Query = {
        "state": _states(state, everything),
        "user": _whose(client, me, user, all_users),
        "queue": queue,
        "array": None if array is None else _array(client, array),
    }
    if as_json or form is OutputFormat.JSON:
        found = list(list_jobs(client, query, limit))
        write_json({"jobs": found, "notes": client.notes})
        return
    each = each or array is not None

    def table(width: int) -> Table | PlainTable:
        return jobs_table(client, query, limit, width, each=each, wide=form is OutputFormat.WIDE)

    is_filtered = any((me, user, queue, array, state))
    _show(table, watch, _nothing(is_filtered, everything or state is not None))
    remark("Note", client.notes)


def _array(client: ManagerApi, named: str) -> str:
    """The id of the array, by id or name."""
    from trainmaster.cli.support.arrays import ID, array_id  # `ps` has to start quickly

    if ID.fullmatch(named):
        return named
    found = array_id(client, named)
    if found is None:
        raise BadInput(f"--array {named} is a job and not an array: `trainmaster show {named}`.")
    return found


def _whose(client: ManagerApi, me: bool, user: str | None, all_users: bool) -> str | None:
    """The user whose jobs are listed; None: everybody's."""
    if me:
        return client.my_name()
    return user if user is not None or all_users else client.only_own()


def _states(stated: str | None, everything: bool) -> str | None:
    if stated is None:
        return None if everything else ",".join(LIVE_STATES)
    unknown = "`{state}` is not a job state: choose from {known}."
    return states_of(stated, list(JobState), unknown)


def _nothing(is_filtered: bool, everything: bool) -> str:
    """Why the list is empty: nothing matches, or there is nothing."""
    if is_filtered:
        return "No job matches." + ("" if everything else " Add -a for ended ones.")
    return "No jobs. `trainmaster run -- COMMAND` starts one, `trainmaster ps -a` lists ended ones."


def _show(table: Callable[[int], Table | PlainTable], watch: bool, nothing: str) -> None:
    def text() -> Styled:
        made = table(screen_width())
        return drawn(made) if made.row_count else plainly(f"{nothing}\n")

    if watch and is_terminal():
        _watch(text)
    while True:
        write_styled(text())
        if not watch:
            return
        say("")
        time.sleep(PAUSE_S)


def _watch(text: Callable[[], Styled]) -> None:
    """Fill the screen with as many lines as it has, until Ctrl-C."""
    try:
        write_styled(SECOND_SCREEN)
        while True:
            lines = text().splitlines()[: shutil.get_terminal_size().lines]
            write_styled(Styled(CLEAR + "\n".join(lines)))
            sys.stdout.flush()
            time.sleep(PAUSE_S)
    finally:
        write_styled(FIRST_SCREEN)
        sys.stdout.flush()
