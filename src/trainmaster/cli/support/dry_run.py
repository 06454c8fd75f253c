"""What would become of jobs that are not submitted."""

from __future__ import annotations

import time
from collections.abc import Sequence

from trainmaster.cli.support.client import Client, Json
from trainmaster.cli.support.console import screen
from trainmaster.cli.support.format import gpus, write_json

SOON_S = 1.0
"""What is expected within this is said to be now."""


def show_dry_run(client: Client, specs: Sequence[Json], as_json: bool) -> None:
    """Ask the daemon, and say for each job what it would be and when it would start."""
    from trainmaster.cli.explain import lines_of
    from trainmaster.cli.support.job_rows import row_of

    answer = client.post("/jobs", {"jobs": list(specs)}, {"dry_run": "true"})
    if as_json:
        write_json(answer)
        return
    console = screen()
    for each in answer["jobs"]:
        row = row_of(each["job"])
        what = (
            f"Would submit {row.name}: {gpus(row.gpus)} {'GPU' if row.gpus == 1 else 'GPUs'},"
            f" queue {row.queue}, user {row.user}."
        )
        console.print(what, markup=False)
        said = {
            "sentence": row.sentence or _outlook(each["forecast"]),
            "code": row.code,
            "forecast": each["forecast"],
            "remarks": each["job"]["remarks"],
        }
        for line in lines_of(said):
            console.print(f"  {line}", markup=False)


def _outlook(forecast: Json | None) -> str:
    """What the forecast says, in words: a job that nobody has looked at yet has no reason to wait."""
    if forecast is None or forecast["start_s"] is None:
        return "Nobody can say yet what it would wait for."
    starts_now = forecast["start_s"] - time.time() < SOON_S
    return "Nothing is in its way." if starts_now else "Others would be before it."
