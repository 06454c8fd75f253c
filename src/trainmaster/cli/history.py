"""`trainmaster history`: jobs that have ended, and what they cost."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from trainmaster.cli.support.console import examples
from trainmaster.cli.support.options import AsJson, Data, Url
from trainmaster.text.formatting import plural

if TYPE_CHECKING:
    from trainmaster.cli.support.client import Json

EPILOG = examples(
    "trainmaster history",
    "trainmaster history --since 7d --user alice",
    "trainmaster history --state failed --json",
    "trainmaster history --since 2026-11-01 --csv > november.csv",
)
COLUMNS = (
    *("id", "name", "user", "queue", "state", "exit_code", "gpus", "priority"),
    *("submit_s", "start_s", "finish_s", "queue_s", "run_s", "gpu_s"),
    *("attempt", "restarts", "preemptions", "array", "array_index"),
)
UNKNOWN_STATE = "No job ends as `{state}`: there are {known}; `ps` lists live jobs."
GIVES_WAY = ("preempted", "queue", "user", "waited", "code", "run")


def history(
    since: Annotated[
        str | None,
        typer.Option(
            "--since", metavar="WHEN", help="Only jobs submitted since: 7d (ago), 2026-11-15."
        ),
    ] = None,
    user: Annotated[
        str | None, typer.Option("--user", metavar="USER", help="Only jobs of this user.")
    ] = None,
    me: Annotated[bool, typer.Option("--me", help="Only my jobs.")] = False,
    queue: Annotated[
        str | None, typer.Option("-q", "--queue", metavar="QUEUE", help="Only jobs in this queue.")
    ] = None,
    state: Annotated[
        str | None,
        typer.Option(
            "--state", metavar="STATE,…", help="Only these: succeeded, failed, cancelled."
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, metavar="N", help="Show at most the N newest.")
    ] = None,
    as_json: AsJson = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Write CSV with a header.")] = False,
    url: Url = None,
    data: Data = None,
) -> None:
    """List jobs that have ended, newest first: how each ended, how long it ran and what it used."""
    from trainmaster.cli.support.client import connect, my_name
    from trainmaster.cli.support.errors import BadInput
    from trainmaster.cli.support.format import moment_of, write_json
    from trainmaster.cli.support.job_table import listed, states_of
    from trainmaster.model.job_state import ENDED_STATES

    if as_json and as_csv:
        raise BadInput("--json and --csv exclude each other: choose one.")
    query: dict[str, str | int | None] = {
        "state": states_of(state or ",".join(ENDED_STATES), ENDED_STATES, UNKNOWN_STATE),
        "user": my_name() if me else user,
        "queue": queue,
        "since": None if since is None else f"{moment_of(since, '--since'):.3f}",
    }
    with connect(url, data) as client:
        found: list[Json] = list(listed(client, query, limit))
    if as_json:
        write_json({"jobs": found})
    elif as_csv:
        _write_csv(found)
    else:
        _show(found)


def _write_csv(found: list[Json]) -> None:
    import csv

    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows([said.get(column) for column in COLUMNS] for said in found)


def _show(found: list[Json]) -> None:
    from rich.markup import escape

    from trainmaster.cli.support import format as words
    from trainmaster.cli.support.console import screen
    from trainmaster.cli.support.job_table import fitting
    from trainmaster.daemon.response_models import JobRow

    console = screen()
    if not found:
        console.print("No job has ended that matches.")
        return
    headings = (
        *("id", "name", "user", "queue", "state", "code", "gpus", "waited", "run"),
        *("gpu hours", "preempted", "ended"),
    )
    rows = [JobRow.from_json(said) for said in found]
    cells = [
        (
            *map(escape, (row.id, row.name, row.user, row.queue)),
            words.state(row.state),
            words.NOTHING if row.exit_code is None else str(row.exit_code),
            words.gpus(row.gpus),
            words.length(row.queue_s),
            words.length(row.run_s),
            f"{row.gpu_s / 3600:.2f}",
            str(row.preemptions),
            words.at(row.finish_s),
        )
        for row in rows
    ]
    console.print(fitting(headings, cells, console.width, GIVES_WAY))
    hours = sum(row.gpu_s for row in rows) / 3600
    console.print(f"{plural(len(rows), 'job')}, {hours:.2f} GPU hours.")
