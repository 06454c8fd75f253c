"""`trainmaster logs`: a job's output."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from trainmaster.cli.support.console import examples
from trainmaster.cli.support.options import Data, JobName, Url

if TYPE_CHECKING:
    from trainmaster.cli.support.client import Client

EPILOG = examples(
    "trainmaster logs 12",
    "trainmaster logs -f 12",
    "trainmaster logs 12 --rank 3 --tail 100",
    "trainmaster logs 12 --attempt 1 > first.log",
)
ID = re.compile(r"\d+")
WHOLE = {"rank": 0, "attempt": None, "tail": None}
"""All that there is of the last attempt."""


def logs(
    job: JobName,
    following: Annotated[
        bool, typer.Option("-f", "--follow", help="Follow the output until the job ends.")
    ] = False,
    rank: Annotated[
        int,
        typer.Option("--rank", min=0, metavar="N", help="Rank (process) whose output is shown."),
    ] = 0,
    all_ranks: Annotated[
        bool, typer.Option("--all-ranks", help="Show every rank, each line with its rank.")
    ] = False,
    attempt: Annotated[
        int | None,
        typer.Option("--attempt", min=0, metavar="N", help="Attempt number. Default: the last."),
    ] = None,
    tail: Annotated[
        int | None, typer.Option("--tail", min=0, metavar="N", help="Show only the last N lines.")
    ] = None,
    url: Url = None,
    data: Data = None,
) -> None:
    """Show what a job wrote to standard output and standard error.

    For the id of an array: what every element wrote, each line with its element.
    """
    from trainmaster.cli.support.client import connect
    from trainmaster.cli.support.follow import Notes, PrefixedLines, follow, is_array, write_plain

    query: dict[str, str | int | None] = {
        "rank": "all" if all_ranks else rank,
        "attempt": attempt,
        "tail": tail,
    }
    with connect(url, data) as client:
        if ID.fullmatch(job) and is_array(client, job):
            _write_elements(client, job, following, is_plain=query == WHOLE)
            return
        if not following:
            _write_all(client, job, query)
            return
        lines = PrefixedLines()
        write = lines.write if all_ranks else write_plain
        try:
            follow(client, job, query, write, Notes())
        finally:
            lines.close()


def _write_elements(client: Client, array: str, following: bool, is_plain: bool) -> None:
    """What the elements of an array wrote, each line with its element."""
    from trainmaster.cli.support.errors import BadInput
    from trainmaster.cli.support.follow import ArrayOutput, elements_of, follow_elements

    if not is_plain:
        raise BadInput(f"--rank, --attempt and --tail need one element: name one, as in {array}_0.")
    if following:
        follow_elements(client, array)
        return
    output = ArrayOutput(client)
    output.write_new(elements_of(client, array))
    output.close()


def _write_all(client: Client, job: str, query: dict[str, str | int | None]) -> None:
    """What there is now, of one rank or of one after the other."""
    from itertools import count

    from trainmaster.cli.support.client import NOT_FOUND, Refused, of
    from trainmaster.cli.support.follow import PrefixedLines

    if query["rank"] != "all":
        for piece in client.download(of(job, "logs"), query):
            sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
        return
    if client.get(of(job))["start_s"] is None:
        return  # no ranks yet: the daemon has nothing to say of any number
    for rank in count():
        lines = PrefixedLines()
        try:
            for piece in client.download(of(job, "logs"), {**query, "rank": rank}):
                lines.write(str(rank), piece)
        except Refused as no:
            if rank and no.status == NOT_FOUND:
                return
            raise
        lines.close()
