"""`trainmaster logs`: a job's output."""

from __future__ import annotations

import re
from contextlib import closing
from itertools import count
from typing import Annotated

from trainmaster.cli.support.arrays import ArrayOutput, array_id, follow_elements
from trainmaster.cli.support.console import remark
from trainmaster.cli.support.follow import PRERUN_OUTPUT, follow
from trainmaster.cli.support.notes import Notes
from trainmaster.cli.support.options import JobName, option
from trainmaster.cli.support.output_lines import PrefixedLines, write_plain
from trainmaster.client.job_lists import elements_of
from trainmaster.client.manager_api import NOT_FOUND, ManagerApi, Query, RequestRefused, job_path
from trainmaster.client.polling import row_now
from trainmaster.errors import BadInput

ELEMENT = re.compile(r"\d+_\d+")
ONLY_PRERUN = (
    "Job {job} has written nothing yet on all its devices: `trainmaster logs {job} --prerun` shows what its"
    " pre-run wrote."
)
WHOLE = {"rank": 0, "attempt": None, "tail": None}
"""All output of the last attempt."""
STACKS = "Show where its processes were when it hung, instead of its output."
RANK = "Rank (process) whose output is shown."


def logs(
    client: ManagerApi,
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
    prerun: Annotated[
        bool, option("--prerun", "Show the output of its pre-run on one device.")
    ] = False,
    tail: Annotated[int | None, option("--tail N", "Show only the last N lines.", min=0)] = None,
    stacks: Annotated[bool, option("--stacks", STACKS)] = False,
) -> None:
    """Show what a job wrote to standard output and standard error.

    For the id of an array: what every element wrote, each line with its element.

    Examples:
        trainmaster logs 12
        trainmaster logs -f 12
        trainmaster logs 12 --rank 3 --tail 100
        trainmaster logs 12 --attempt 1 > first.log
        trainmaster logs 12 --stacks
    """
    if stacks:
        for piece in client.download(job_path(job, "stacks"), {"attempt": attempt}):
            write_plain("", piece)
        return
    if prerun:
        attempt = _prerun_attempt(client, job, attempt)
    query: Query = {"rank": "all" if all_ranks else rank, "attempt": attempt, "tail": tail}
    array = None if ELEMENT.fullmatch(job) else array_id(client, job)
    if array is not None:
        if query != WHOLE:
            raise BadInput(
                f"--rank, --attempt and --tail need one element: name one, as in {array}_0."
            )
        _write_elements(client, array, following)
    elif following:
        with closing(PrefixedLines()) as lines:
            follow(client, job, query, lines.write if all_ranks else write_plain, Notes())
    elif not all_ranks:
        if attempt is None:
            query = _marked(client, job, query)
        is_empty = True
        try:
            for piece in client.download(job_path(job, "logs"), query):
                write_plain("", piece)
                is_empty = False
        except RequestRefused as refused:
            if attempt is not None or refused.status != NOT_FOUND or query["attempt"] is None:
                raise
            Notes()(ONLY_PRERUN.format(job=job))
            return
        if is_empty:
            _say_if_unstarted(client, job)
    elif client.get(job_path(job))["start_s"] is not None:  # before that it has no ranks
        _write_ranks(client, job, query)


def _marked(client: ManagerApi, job: str, query: Query) -> Query:
    """What to ask for, so that the output of a pre-run is not taken for that of the run after it."""
    row = row_now(client, job)
    prerun = None if row.prerun is None else row.prerun.attempt
    if prerun is None:
        return query
    if row.attempt == prerun:
        Notes()(PRERUN_OUTPUT.format(row.id))
    return query if row.has_ended else {**query, "attempt": row.attempt}


def _prerun_attempt(client: ManagerApi, job: str, attempt: int | None) -> int:
    """The attempt that was, or is, its pre-run."""
    found = row_now(client, job).prerun
    if attempt is not None:
        raise BadInput("--prerun is an attempt itself: leave --attempt out.")
    if found is None or found.attempt is None:
        said = found.sentence if found is not None else "it needs none."
        raise BadInput(f"Job {job} has had no pre-run: {said[:1].lower()}{said[1:]}")
    return int(found.attempt)


def _say_if_unstarted(client: ManagerApi, job: str) -> None:
    """Nothing was written by a job that has not started: say so."""
    row = row_now(client, job)
    if row.start_s is None:
        name = job if row.id == job else f"{job} ({row.id})"
        how = "never started" if row.has_ended else "has not started yet"
        why = row.why or row.ended_because or row.state_words
        remark("Note", (f"job {name} {how}: {why}",))


def _write_elements(client: ManagerApi, array: str, following: bool) -> None:
    """What the elements of an array wrote, each line with its element."""
    if following:
        follow_elements(client, array)
        return
    with closing(ArrayOutput(client)) as output:
        output.write_new(elements_of(client, array))


def _write_ranks(client: ManagerApi, job: str, query: Query) -> None:
    """What there is now, of one rank after the other."""
    for rank in count():
        try:
            with closing(PrefixedLines()) as lines:
                for piece in client.download(job_path(job, "logs"), {**query, "rank": rank}):
                    lines.write(str(rank), piece)
        except RequestRefused as no:
            if rank and no.status == NOT_FOUND:
                return
            raise
