"""`trainmaster queue`: the queues, and defining and removing one; `queues` is short for the list."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Annotated
from urllib.parse import quote

import typer

from trainmaster.cli.support.client import Client
from trainmaster.cli.support.command import command, group
from trainmaster.cli.support.console import cell, remark, show_answer, show_table, write_json
from trainmaster.cli.support.errors import BadInput, Failed
from trainmaster.cli.support.options import AsJson, argument, option

COLUMNS = {
    "queue": "name",
    "in": "parent",
    "weight": "weight",
    "guaranteed": "guaranteed_gpus",
    "maximum": "maximum_gpus",
    "gpus held": "gpus",
    "running": "running",
    "pending": "pending",
    "suspended": "suspended",
}
SETTINGS = {key: COLUMNS[key] for key in ("in", "weight", "guaranteed", "maximum")}


def queue(client: Client, context: typer.Context, as_json: AsJson = False) -> None:
    """List queues, define or remove one.

    Examples:
        trainmaster queue list
        trainmaster queue set vision --weight 2 --guaranteed 4 --maximum 12
        trainmaster queue rm vision
    """
    if context.invoked_subcommand is None:
        show_queues(client, as_json)


app = group(queue)


@command(app, "list")
def queues(client: Client, as_json: AsJson = False) -> None:
    """List queues: weight, guaranteed and maximum GPUs, GPUs in use, and jobs by state.

    Examples:
        trainmaster queues
        trainmaster queues --json
        trainmaster queue set vision --weight 2 --guaranteed 4
    """
    show_queues(client, as_json)


def show_queues(client: Client, as_json: bool) -> None:
    said = client.get("/queues")
    if as_json:
        write_json(said)
    else:
        rows = ([queue[key] for key in COLUMNS.values()] for queue in said["queues"])
        show_table(tuple(COLUMNS), rows)


@command(app, "set")
def define(
    client: Client,
    name: Annotated[str, argument("NAME", "Queue name.")],
    weight: Annotated[int | None, option("--weight W", "Weight.", min=1)] = None,
    guaranteed: Annotated[float | None, option("--guaranteed GPUS", "Guaranteed GPUs.")] = None,
    maximum: Annotated[float | None, option("--maximum GPUS", "Maximum number of GPUs.")] = None,
    parent: Annotated[str | None, option("--parent QUEUE", "Parent queue.")] = None,
    unpreemptible: Annotated[
        bool | None,
        option(
            "--allow-unpreemptible/--forbid-unpreemptible",
            "Whether its jobs may be `preemptible: false`.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Define or change a queue; options that are left out keep their value.

    Examples:
        trainmaster queue set vision --weight 2
        trainmaster queue set vision.night --parent vision --maximum 4
    """
    stated = {
        "weight": weight,
        "guaranteed_gpus": guaranteed,
        "maximum_gpus": maximum,
        "parent": parent,
        "allow_unpreemptible": unpreemptible,
    }
    name = _name(name)
    known = [each for each in client.get("/queues")["queues"] if each["name"] == name]
    kept = {key: known[0].get(key) for key in stated} if known else {}
    body = kept | {key: value for key, value in stated.items() if value is not None}
    wanted = {key: value for key, value in body.items() if value is not None}
    row = client.put(f"/queues/{quote(name, safe='')}", wanted)
    said = [
        f"{key} {cell(row[field])}" for key, field in SETTINGS.items() if row[field] is not None
    ]
    if not row["allow_unpreemptible"]:
        said.append("no unpreemptible jobs")
    show_answer(row, as_json, f"Queue {name}: {', '.join(said)}.")
    remark("Warning", cautions(client))


def cautions(client: Client) -> list[str]:
    """What the queues promise and the cluster, or its policy, does not keep."""
    with suppress(Failed):  # what was asked for is done
        return list(_broken_promises(client))
    return []


def _broken_promises(client: Client) -> Iterator[str]:
    defined = [each for each in client.get("/queues")["queues"] if each["is_defined"]]
    promised = sum(each["guaranteed_gpus"] for each in defined if each["parent"] is None)
    devices = client.get("/status")["devices"] or 0
    if promised > devices:
        yield f"queues are guaranteed {promised:g} GPUs together, and there are {devices}"
    policy = client.get("/policy")
    if defined and not policy.get("obeys_queues", True):
        yield (
            f"the policy {policy['name']} does not look at queues, so their weights and guarantees"
            " have no effect; fair, two-level, philly, antman and trainmaster do"
        )


def _name(name: str) -> str:
    from trainmaster.config.job_file import read_name

    try:
        return read_name(name)
    except ValueError as error:
        raise BadInput(f"the name of a queue {error}.") from None


@command(app, "rm")
def remove(
    client: Client,
    names: Annotated[list[str], argument("NAME", "Queues to remove.")],
    as_json: AsJson = False,
) -> None:
    """Remove queues that nothing is in: no unfinished job, and no other queue.

    The queue `default` is always there: what was set for it is forgotten.

    Examples:
        trainmaster queue rm vision
    """
    for name in dict.fromkeys(map(_name, names)):
        answer = client.delete(f"/queues/{quote(name, safe='')}")
        show_answer(answer, as_json, f"Queue {name} is removed.")
