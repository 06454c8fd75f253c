"""`trainmaster logs`: a job's output."""

from __future__ import annotations

import re
from contextlib import closing
from itertools import count
from typing import Annotated

from trainmaster.cli.support.client import NOT_FOUND, Client, Query, Refused, of
from trainmaster.cli.support.console import examples
from trainmaster.cli.support.errors import BadInput
from trainmaster.cli.support.follow import (
    ArrayOutput,
    Notes,
    PrefixedLines,
    elements_of,
    follow,
    follow_elements,
    is_array,
    write_plain,
)
from trainmaster.cli.support.options import JobName, option

EPILOG = examples(
    "trainmaster logs 12",
    "trainmaster logs -f 12",
    "trainmaster logs 12 --rank 3 --tail 100",
    "trainmaster logs 12 --attempt 1 > first.log",
)
ID = re.compile(r"\d+")
WHOLE = {"rank": 0, "attempt": None, "tail": None}
"""All that there is of the last attempt."""
RANK = "Rank (process) whose output is shown."


def logs(
    client: Client,
    job: JobName,
    following: Annotated[
        bool, option("-f --follow", "Follow the output until the job ends.")
    ] = False,
    rank: Annotated[int, option("--rank N", RANK, min=0)] = 0,
    all_ranks: Annotated[
        bool, option("--all-ranks", "Show every rank, each line with its rank.")
    ] = False,
    attempt: Annotated[
        int | None, option("--attempt N", "Attempt number. Default: the last.", min=0)
    ] = None,
    tail: Annotated[int | None, option("--tail N", "Show only the last N lines.", min=0)] = None,
) -> None:
    """Show what a job wrote to standard output and standard error.

    For the id of an array: what every element wrote, each line with its element.
    """
    query: Query = {"rank": "all" if all_ranks else rank, "attempt": attempt, "tail": tail}
    if ID.fullmatch(job) and is_array(client, job):
        if query != WHOLE:
            raise BadInput(
                f"--rank, --attempt and --tail need one element: name one, as in {job}_0."
            )
        _write_elements(client, job, following)
    elif following:
        with closing(PrefixedLines()) as lines:
            follow(client, job, query, lines.write if all_ranks else write_plain, Notes())
    elif not all_ranks:
        for piece in client.download(of(job, "logs"), query):
            write_plain("", piece)
    elif client.get(of(job))["start_s"] is not None:  # before that it has no ranks
        _write_ranks(client, job, query)


def _write_elements(client: Client, array: str, following: bool) -> None:
    """What the elements of an array wrote, each line with its element."""
    if following:
        follow_elements(client, array)
        return
    with closing(ArrayOutput(client)) as output:
        output.write_new(elements_of(client, array))


def _write_ranks(client: Client, job: str, query: Query) -> None:
    """What there is now, of one rank after the other."""
    for rank in count():
        try:
            with closing(PrefixedLines()) as lines:
                for piece in client.download(of(job, "logs"), {**query, "rank": rank}):
                    lines.write(str(rank), piece)
        except Refused as no:
            if rank and no.status == NOT_FOUND:
                return
            raise
