"""One command to several jobs: each is tried, and what went wrong is said for each."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import typer

from trainmaster.cli.support import errors as complaints
from trainmaster.cli.support.client import Client, Json, Refused, connect, of
from trainmaster.cli.support.console import screen
from trainmaster.cli.support.format import write_json
from trainmaster.daemon.response_models import JobRow

ID = re.compile(r"\d+(_\d+)?")
DONE = {
    "cancel": "is being cancelled",
    "suspend": "is being suspended: `trainmaster resume {job}` lets it go on",
    "resume": "goes on as soon as there is room",
    "save": "was asked to write a checkpoint",
}


def _whole(client: Client, job: str) -> str:
    """The id of a job; of the whole array where its name was given, which all its elements have."""
    if ID.fullmatch(job):
        return job
    row = JobRow.from_json(client.get(of(job)))
    return row.array or row.id


def do_to_each(
    jobs: Sequence[str], action: str, as_json: bool, url: str | None, data: Path | None
) -> None:
    """POST the action for every job; exit code 1 if one of them refused."""
    results: list[Json] = []
    with connect(url, data) as client:
        for job in dict.fromkeys(jobs):
            try:
                client.post(of(_whole(client, job), action))
            except Refused as no:
                complaints.say(str(no))
                results.append({"job": job, "done": False, "error": str(no)})
                continue
            results.append({"job": job, "done": True})
            if not as_json:
                screen().print(f"Job {job} {DONE[action].format(job=job)}.", markup=False)
    if as_json:
        write_json({"jobs": results})
    if not all(each["done"] for each in results):
        raise typer.Exit(complaints.FAILED)
