"""`trainmaster ps`: the jobs, and where each runs or why it waits."""

from __future__ import annotations

import sys
import time
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from trainmaster.cli.support.console import examples
from trainmaster.cli.support.options import AsJson, Data, Url

if TYPE_CHECKING:
    from rich.table import Table

    from trainmaster.api.response_models import JobRow
    from trainmaster.cli.support.client import Client, Query
    from trainmaster.cli.support.job_table import ArrayRow, Lines

EPILOG = examples(
    "trainmaster ps",
    "trainmaster ps -a --me",
    "trainmaster ps --state pending,held -o wide",
    "trainmaster ps --watch",
    "trainmaster ps --json | jq '.jobs[].id'",
)
PAUSE_S = 2.0
SMALL_PAGE = 100
GIVES_WAY = ("queue", "user", "waited", "progress", "run")
"""Where the screen is narrow, these columns are left out, the first of them first."""


class Form(StrEnum):
    """How a list is written."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"


def ps(
    context: typer.Context,
    everything: Annotated[
        bool, typer.Option("-a", "--all", help="Include jobs that have ended.")
    ] = False,
    me: Annotated[bool, typer.Option("--me", help="Only my jobs.")] = False,
    user: Annotated[
        str | None, typer.Option("--user", metavar="USER", help="Only jobs of this user.")
    ] = None,
    queue: Annotated[
        str | None, typer.Option("-q", "--queue", metavar="QUEUE", help="Only jobs in this queue.")
    ] = None,
    state: Annotated[
        str | None,
        typer.Option("--state", metavar="STATE,…", help="Only jobs in these states."),
    ] = None,
    array: Annotated[
        str | None, typer.Option("--array", metavar="JOB", help="Only elements of this array.")
    ] = None,
    each: Annotated[
        bool, typer.Option("-r", "--each", help="Show every element of an array on its own line.")
    ] = False,
    limit: Annotated[
        int | None,
        typer.Option("--limit", min=1, metavar="N", help="Show at most the N newest lines."),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Refresh every 2 s until Ctrl-C.")] = False,
    form: Annotated[Form, typer.Option("-o", "--output", help="Output format.")] = Form.TABLE,
    as_json: AsJson = False,
    url: Url = None,
    data: Data = None,
) -> None:
    """List jobs that have not ended, newest first, with where each runs or why it waits."""
    if context.invoked_subcommand is not None:
        return
    from trainmaster.cli.support.client import connect, my_name

    with connect(url, data) as client:
        query: Query = {
            "state": _states(state, everything),
            "user": my_name() if me else user,
            "queue": queue,
            "array": array,
        }
        if as_json or form is Form.JSON:
            _write_all(client, query, limit)
            return
        view = _View(
            client, query, limit, each or array is not None, form is Form.WIDE, bool(state)
        )
        if watch:
            _watch(view)
        else:
            view.show()


def _states(stated: str | None, everything: bool) -> str | None:
    from trainmaster.cli.support.job_table import states_of
    from trainmaster.model.job_state import LIVE_STATES, JobState

    if stated is None:
        return None if everything else ",".join(LIVE_STATES)
    unknown = "`{state}` is not a state of a job: there are {known}."
    return states_of(stated, list(JobState), unknown)


def _write_all(client: Client, query: Query, limit: int | None) -> None:
    from trainmaster.cli.support.format import write_json
    from trainmaster.cli.support.job_table import listed

    write_json({"jobs": list(listed(client, query, limit))})


def _watch(view: _View) -> None:
    from rich.live import Live

    from trainmaster.cli.support.console import screen

    console = screen()
    if not console.is_terminal:
        while True:
            view.show()
            sys.stdout.write("\n")
            sys.stdout.flush()
            time.sleep(PAUSE_S)
    with Live(view.table(console.width), console=console, screen=True, auto_refresh=False) as live:
        while True:
            live.refresh()
            time.sleep(PAUSE_S)
            live.update(view.table(console.width))


class _View:
    """What is listed, asked for again each time."""

    def __init__(
        self,
        client: Client,
        query: Query,
        limit: int | None,
        each: bool,
        wide: bool,
        is_stated: bool,
    ) -> None:
        self._client, self._query, self._limit = client, query, limit
        self._each, self._wide = each, wide
        self._is_stated = is_stated
        """Whether somebody asked for certain states."""

    def show(self) -> None:
        from trainmaster.cli.support.console import screen

        console = screen()
        made = self.table(console.width)
        if made.row_count:
            console.print(made)
        else:
            console.print(self._nothing(), markup=False)

    def _nothing(self) -> str:
        """Why the list is empty: nothing matches, or there is nothing."""
        if any(self._query[name] for name in ("user", "queue", "array")) or self._is_stated:
            more = (
                "" if self._query["state"] is None or self._is_stated else " Add -a for ended ones."
            )
            return f"No job matches.{more}"
        return "No jobs. `trainmaster run -- COMMAND` starts one, `trainmaster ps -a` lists ended ones."

    def table(self, width: int) -> Table | Lines:
        from trainmaster.cli.support.job_table import fitting, fold

        rows = self._rows()
        more = ("submitted", "priority", "attempt", "devices") if self._wide else ()
        headings = (
            *("id", "name", "user", "queue", "state", "gpus", "waited", "run", "progress"),
            *(*more, "where or why"),
        )
        cells = [self._cells(each) for each in (rows if self._each else fold(rows))]
        return fitting(headings, cells, width, () if self._wide else GIVES_WAY, folds=self._wide)

    def _rows(self) -> list[JobRow]:
        """As many as are wanted: elements of an array that is folded count as one, and are all there."""
        from trainmaster.api.response_models import JobRow
        from trainmaster.cli.support.job_table import listed

        most = self._limit
        if self._each or most is None:
            return [JobRow.from_json(said) for said in listed(self._client, self._query, most)]
        rows: list[JobRow] = []
        lines: set[str] = set()
        for said in listed(self._client, self._query, page=max(most, SMALL_PAGE)):
            row = JobRow.from_json(said)
            line = row.array or row.id
            if line not in lines and len(lines) == most:
                break
            lines.add(line)
            rows.append(row)
        return rows

    def _cells(self, each: JobRow | ArrayRow) -> tuple[str, ...]:
        from trainmaster.cli.support.job_table import ArrayRow

        return self._array_cells(each) if isinstance(each, ArrayRow) else self._job_cells(each)

    def _job_cells(self, row: JobRow) -> tuple[str, ...]:
        from rich.markup import escape

        from trainmaster.cli.support import format as words

        more = (
            words.at(row.submit_s),
            str(row.priority),
            str(row.attempt),
            escape(", ".join(row.devices)) or words.NOTHING,
        )
        return (
            *map(escape, (row.id, row.name, row.user, row.queue)),
            words.state(row.state),
            words.gpus(row.gpus),
            words.length(row.queue_s),
            words.length(row.run_s) if row.start_s is not None else words.NOTHING,
            words.progress(row),
            *(more if self._wide else ()),
            escape(words.where_or_why(row)),
        )

    def _array_cells(self, array: ArrayRow) -> tuple[str, ...]:
        from rich.markup import escape

        from trainmaster.cli.support import format as words

        first = array.rows[0]
        devices = ", ".join(each for row in array.rows for each in row.devices)
        more = (
            words.at(min(row.submit_s for row in array.rows)),
            str(first.priority),
            words.NOTHING,
            escape(devices) or words.NOTHING,
        )
        return (
            *map(escape, (array.id, _array_name(array), first.user, first.queue)),
            array.states,
            f"{len(array.rows)}x{words.gpus(first.gpus)}",
            words.length(max(row.queue_s for row in array.rows)),
            words.length(max(row.run_s for row in array.rows)),
            words.NOTHING,
            *(more if self._wide else ()),
            escape(array.why) or words.NOTHING,
        )


def _array_name(array: ArrayRow) -> str:
    """What the names of its elements have in common, without their index."""
    first = array.rows[0]
    return first.name.removesuffix(f"_{first.array_index}").removesuffix(f"[{first.array_index}]")
