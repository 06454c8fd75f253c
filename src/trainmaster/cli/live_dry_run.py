"""What would become of jobs that are not submitted."""

from __future__ import annotations

from collections.abc import Sequence

from trainmaster.cli.client import Client, Json
from trainmaster.cli.live_words import gpus, write_json
from trainmaster.cli.wording import screen


def show_dry_run(client: Client, specs: Sequence[Json], as_json: bool) -> None:
    """Ask the daemon, and say for each job what it would be and when it would start."""
    from trainmaster.cli.explain import lines_of
    from trainmaster.cli.live_rows import row_of

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
            "sentence": row.sentence or "Nothing is in its way.",
            "code": row.code,
            "forecast": each["forecast"],
            "remarks": each["job"]["remarks"],
        }
        for line in lines_of(said):
            console.print(f"  {line}", markup=False)
