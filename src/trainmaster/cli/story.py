"""`trainmaster story`: what happened to a job, from its submission on."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from trainmaster.cli.support.console import examples
from trainmaster.cli.support.options import AsJson, Data, JobName, Url

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainmaster.cli.support.client import Json

EPILOG = examples("trainmaster story 12", "trainmaster story 12 --json")


MOST = 20
"""Elements of an array that are told of together."""


def story(job: JobName, as_json: AsJson = False, url: Url = None, data: Data = None) -> None:
    """Show what happened to a job, oldest first; for an array, each element in turn."""
    from trainmaster.cli.support.client import connect, of
    from trainmaster.cli.support.follow import elements_of
    from trainmaster.cli.support.format import write_json

    with connect(url, data) as client:
        said = client.get(of(job, "story"))
        if as_json:
            write_json(said)
            return
        if said["story"]:
            _show(said["story"])
            return
        elements = elements_of(client, job)
        _check(job, len(elements))
        for row in elements:
            sys.stdout.write(f"Job {row.id}\n")
            _show(client.get(of(row.id, "story"))["story"])


def _check(array: str, count: int) -> None:
    from trainmaster.cli.support.errors import BadInput

    if count > MOST:
        raise BadInput(
            f"Array {array} has {count} jobs: name one, as in `trainmaster story {array}_0`."
        )


def _show(happened: Sequence[Json]) -> None:
    from rich.markup import escape

    from trainmaster.cli.support import format as words
    from trainmaster.cli.support.console import screen

    made = words.table("when", "after", "what happened")
    made.columns[-1].no_wrap = False
    made.columns[-1].overflow = "fold"
    first = happened[0]["at_s"] if happened else 0
    for each in happened:
        made.add_row(
            words.at(each["at_s"]),
            words.length(each["at_s"] - first),
            escape(each["sentence"]),
        )
    screen().print(made)
    sys.stdout.flush()
