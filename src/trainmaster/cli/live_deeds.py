"""One deed done to several jobs: each is tried, and what went wrong is said for each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import typer

from trainmaster.cli import complaints
from trainmaster.cli.client import Json, Refused, connect, of
from trainmaster.cli.live_words import write_json
from trainmaster.cli.wording import screen

DONE = {
    "cancel": "is being cancelled",
    "suspend": "is being suspended: `trainmaster resume {job}` lets it go on",
    "resume": "goes on as soon as there is room",
    "save": "was asked to write a checkpoint",
}


def do_to_each(
    jobs: Sequence[str], deed: str, as_json: bool, url: str | None, data: Path | None
) -> None:
    """POST the deed for every job; exit code 1 if one of them refused."""
    results: list[Json] = []
    with connect(url, data) as client:
        for job in dict.fromkeys(jobs):
            try:
                client.post(of(job, deed))
            except Refused as no:
                complaints.say(str(no))
                results.append({"job": job, "done": False, "error": str(no)})
                continue
            results.append({"job": job, "done": True})
            if not as_json:
                screen().print(f"Job {job} {DONE[deed].format(job=job)}.", markup=False)
    if as_json:
        write_json({"jobs": results})
    if not all(each["done"] for each in results):
        raise typer.Exit(complaints.FAILED)
