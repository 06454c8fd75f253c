"""`trainmaster inputs`: input paths that are set aside, and bringing one back."""

from __future__ import annotations

import os
from typing import Annotated
from urllib.parse import quote

import typer

from trainmaster.cli.support.command import command, group
from trainmaster.cli.support.console import show_answer, show_table
from trainmaster.cli.support.options import AsJson, argument
from trainmaster.client.manager_api import Json, ManagerApi
from trainmaster.failures.input_blocks import absolute
from trainmaster.model.units import SECOND
from trainmaster.text.formatting import first_of, plural, utc_time

COLUMNS = ("path", "since", "failed jobs", "of users", "reason", "jobs that wait")
NAMED = 5


def inputs(client: ManagerApi, context: typer.Context, as_json: AsJson = False) -> None:
    """List the input paths that are set aside because job after job failed on them, or bring one back.

    Jobs that name such a path, in `data` or in their arguments, wait. It is used again by itself when it
    has changed.

    Examples:
        trainmaster inputs
        trainmaster inputs unblock /data/train.rec
    """
    if context.invoked_subcommand is None:
        show_inputs(client, as_json)


app = group(inputs)


def show_inputs(client: ManagerApi, as_json: bool) -> None:
    said = client.get("/inputs")
    if as_json or not said["inputs"]:
        show_answer(said, as_json, "No input is set aside.")
    else:
        show_table(COLUMNS, [_row(each) for each in said["inputs"]])


def _row(found: Json) -> list[str]:
    lists = (found[name] for name in ("jobs", "users", "reasons", "waiting"))
    since = utc_time(round(found["since_s"] * SECOND))
    return [found["path"], since, *(first_of(each, NAMED) or "-" for each in lists)]


@command(app)
def unblock(
    client: ManagerApi,
    path: Annotated[
        str, argument("PATH", "The path, as `trainmaster inputs` lists it, or from here.")
    ],
    as_json: AsJson = False,
) -> None:
    """Use an input again: jobs that waited for it may start.

    What failed on it before does not count any more.

    Examples:
        trainmaster inputs unblock /data/train.rec
    """
    path = absolute(path, os.getcwd())
    answer = client.delete(f"/inputs/{quote(path, safe='')}")
    waited = f" {plural(len(answer['waiting']), 'job')} waited for it." if answer["waiting"] else ""
    show_answer(answer, as_json, f"Input {path} is used again.{waited}")
