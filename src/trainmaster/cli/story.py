"""`trainmaster story`: what happened to a job, from its submission on."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from trainmaster.cli.support.arrays import array_id
from trainmaster.cli.support.console import show_table, write, write_json
from trainmaster.cli.support.format import at
from trainmaster.cli.support.options import AsJson, JobName
from trainmaster.client.job_lists import elements_of
from trainmaster.client.manager_api import Json, ManagerApi, job_path
from trainmaster.errors import BadInput
from trainmaster.text.formatting import short_length

MOST = 20
"""Elements of an array that are shown together."""


def story(client: ManagerApi, job: JobName, as_json: AsJson = False) -> None:
    """Show what happened to a job, oldest first; for an array, each element in turn.

    Examples:
        trainmaster story 12
        trainmaster story 12 --json
    """
    answer = client.get(job_path(job, "story"))
    if as_json:
        write_json(answer)
        return
    if answer["story"]:
        _show(answer["story"])
        return
    elements = elements_of(client, array_id(client, job) or job)
    if len(elements) > MOST:
        raise BadInput(
            f"Array {job} has {len(elements)} jobs: name one, as in `trainmaster story {job}_0`."
        )
    if not elements:
        _show([])
    for row in elements:
        write(f"Job {row.id}\n")
        _show(client.get(job_path(row.id, "story"))["story"])


def _show(happened: Sequence[Json]) -> None:
    if not happened:
        write("It ended under a database that is gone, and its story with it.\n")
        return
    first = happened[0]["at_s"]
    rows = ((at(e["at_s"]), short_length(e["at_s"] - first), e["sentence"]) for e in happened)
    show_table(("when", "after", "what happened"), rows, folds=True)
    sys.stdout.flush()
