"""`trainmaster queue`: the queues, and defining and removing one; `queues` is short for the list."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Annotated
from urllib.parse import quote

import typer

from trainmaster.cli.support.client import Client, Json
from trainmaster.cli.support.command import command, group
from trainmaster.cli.support.console import cell, remark, show_answer, show_table, write_json
from trainmaster.cli.support.errors import Failed
from trainmaster.cli.support.options import AsJson, argument, option

DIVIDES = frozenset({"queues"})
"""An option of the policies that divide GPUs between queues."""
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
    known = [each for each in client.get("/queues")["queues"] if each["name"] == name]
    kept = {key: known[0].get(key) for key in stated} if known else {}
    body = kept | {key: value for key, value in stated.items() if value is not None}
    wanted = {key: value for key, value in body.items() if value is not None}
    said = [
        f"{key.removesuffix('_gpus')} {cell(value)}"
        for key, value in wanted.items()
        if key != "allow_unpreemptible"
    ]
    if not wanted.get("allow_unpreemptible", True):
        said.append("no unpreemptible jobs")
    sentence = f"Queue {name}: {', '.join(said) or 'as it was'}."
    show_answer(client.put(f"/queues/{quote(name, safe='')}", wanted), as_json, sentence)
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
    if not DIVIDES & policy["options"].keys() and any(map(_is_limited, defined)):
        yield (
            f"the policy {policy['name']} does not look at queues, so their weights, guarantees and"
            " maxima have no effect; fair, two-level, philly, antman and trainmaster do"
        )


def _is_limited(queue: Json) -> bool:
    stated = (queue["weight"] != 1, queue["guaranteed_gpus"], queue["maximum_gpus"] is not None)
    return any(stated)


@command(app, "rm")
def remove(
    client: Client,
    names: Annotated[list[str], argument("NAME", "Queues to remove.")],
    as_json: AsJson = False,
) -> None:
    """Remove queues that nothing is in: no unfinished job, and no other queue.

    Examples:
        trainmaster queue rm vision
    """
    for name in dict.fromkeys(names):
        answer = client.delete(f"/queues/{quote(name, safe='')}")
        show_answer(answer, as_json, f"Queue {name} is removed.")
