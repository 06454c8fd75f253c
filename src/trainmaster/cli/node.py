"""`trainmaster node`: the machines; taking one, or one of its devices, out of service and back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated
from urllib.parse import quote

import typer

from trainmaster.cli.nodes import Devices, show_nodes
from trainmaster.cli.support.command import command, group
from trainmaster.cli.support.console import screen, show_answer, show_table, write_json
from trainmaster.cli.support.errors import print_error
from trainmaster.cli.support.options import AsJson, argument, option
from trainmaster.cli.support.reservations import (
    Cancel,
    For,
    From,
    In,
    Why,
    cancel,
    show_reservations,
    summary,
    terms_of,
)
from trainmaster.client.manager_api import Json, ManagerApi, RequestRefused
from trainmaster.errors import FAILED, BadInput
from trainmaster.text.formatting import plural

Name = Annotated[str, argument("NODE", "Name of the node; `trainmaster nodes` lists them.")]
Names = Annotated[list[str], argument("NODE...", "Names of nodes; `trainmaster nodes` lists them.")]
Place = Annotated[
    str,
    argument(
        "NODE[:GPU]", "A node, or one of its devices; `trainmaster nodes --devices` lists them."
    ),
]


def node(client: ManagerApi, context: typer.Context, as_json: AsJson = False) -> None:
    """List nodes, or take one out of service and back.

    Examples:
        trainmaster node list
        trainmaster node drain n1
        trainmaster node undrain n1
        trainmaster node block n1:3
        trainmaster node unblock n1:3
        trainmaster node maintenance n1 --from 2026-12-01T22:00 --for 4h
    """
    if context.invoked_subcommand is None:
        show_nodes(client, False, as_json)


app = group(node)


@command(app, "list")
def listed(client: ManagerApi, devices: Devices = False, as_json: AsJson = False) -> None:
    """List nodes: their state, their devices, and the jobs on them.

    Examples:
        trainmaster node list
        trainmaster node list --devices
    """
    show_nodes(client, devices, as_json)


@command(app)
def drain(client: ManagerApi, name: Name, as_json: AsJson = False) -> None:
    """Start nothing more on a node. It stays so over restarts of the manager, until `undrain`.

    Jobs that run there are moved to other nodes where the policy finds room and no work is lost, and
    otherwise stay until they end.

    Examples:
        trainmaster node drain n1
    """
    answer = client.post(f"/nodes/{quote(name, safe='')}/drain")
    said = f"Node {name} takes nothing new. {' '.join(still_there(answer)) or 'It is free.'}"
    show_answer(answer, as_json, said)


def still_there(node: Json) -> Iterator[str]:
    """What is still on a drained node, and what becomes of it."""
    leaving = set(node.get("leaving") or ())
    staying = {job for device in node["devices"] for job in device["jobs"]} - leaving
    if leaving:
        they = "it is" if len(leaving) == 1 else "they are"
        yield f"{plural(len(leaving), 'job')} there now: {they} being moved or ended."
    if staying:
        yield f"{plural(len(staying), 'job')} there now: moved where there is room, or until the end."
    if node["frozen"]:
        stopped = plural(len(node["frozen"]), "job")
        yield f"{stopped} suspended in memory there: a program that cannot save waits for `undrain`."


@command(app)
def undrain(client: ManagerApi, name: Name, as_json: AsJson = False) -> None:
    """Use a drained node again.

    Examples:
        trainmaster node undrain n1
    """
    answer = client.post(f"/nodes/{quote(name, safe='')}/undrain")
    show_answer(answer, as_json, f"Node {name} is used again.")


@command(app)
def forget(client: ManagerApi, names: Names, as_json: AsJson = False) -> None:
    """Remove nodes of a cluster that are away and do not come back.

    A node that left the cluster is kept, with its drain, for the day of its return, and jobs may be submitted
    that only it can hold. A forgotten one is a new node when it comes again.

    Examples:
        trainmaster node forget n7
        trainmaster node forget n7 n8
    """
    results: list[Json] = []
    for name in dict.fromkeys(names):
        try:
            client.post(f"/nodes/{quote(name, safe='')}/forget")
        except RequestRefused as no:
            print_error(str(no))
            results.append({"node": name, "done": False, "error": str(no)})
            continue
        results.append({"node": name, "done": True})
        if not as_json:
            screen().print(f"Node {name} is forgotten.", markup=False)
    if as_json:
        write_json({"nodes": results})
    if not all(each["done"] for each in results):
        raise typer.Exit(FAILED)


@command(app)
def maintenance(
    client: ManagerApi,
    names: Annotated[
        list[str] | None,
        argument("NODE...", "Names of nodes, or `all`; none: list what is planned."),
    ] = None,
    begin: From = None,
    begin_in: In = None,
    lasts: For = None,
    reason: Why = "",
    force: Annotated[
        bool, option("--force", "End runs there when it begins, even if they lose work.")
    ] = False,
    cancelled: Cancel = None,
    as_json: AsJson = False,
) -> None:
    """Keep nodes free of jobs from one time to another; without names, list what is planned.

    No job is started there that might still run when it begins: one whose time limit or predicted end is
    after that waits, and so does one without either, unless it can be suspended without loss. When it begins,
    runs are suspended that lose nothing by it: those that can save end, others are stopped in the memory of
    the node, which a restart of the machine loses. The rest goes on, unless --force ends it; such jobs start
    again later. At the end the node is used again by itself.

    Examples:
        trainmaster node maintenance n1 --from 2026-12-01T22:00 --for 4h --reason "new driver"
        trainmaster node maintenance all --in 2h --for 1h
        trainmaster node maintenance
        trainmaster node maintenance --cancel 3
    """
    if cancelled is not None:
        cancel(client, cancelled, as_json, is_maintenance=True)
    elif not names:
        if begin or begin_in or lasts:
            raise BadInput("Say which nodes: `trainmaster node maintenance n1 …`, or `all`.")
        show_reservations(client, as_json, maintenance_only=True)
    else:
        body = {**terms_of(begin, begin_in, lasts), "places": names}
        answer = client.post("/reservations", {**body, "reason": reason, "force": force})
        show_answer(answer, as_json, f"Planned: {summary(answer)}.")


@command(app)
def block(client: ManagerApi, place: Place, as_json: AsJson = False) -> None:
    """Set a device aside, or all devices of a node. It stays so over restarts, until `unblock`.

    Nothing more is started there. What runs there goes on and is not moved: that is `drain`. The manager does
    the same by itself with a device that fails job after job, or that the driver reports as broken.

    Examples:
        trainmaster node block n1:3
        trainmaster node block n1
    """
    answer = client.post(f"/nodes/{quote(place, safe='')}/block")
    show_answer(answer, as_json, f"{place} takes nothing new.")


@command(app)
def unblock(client: ManagerApi, place: Place, as_json: AsJson = False) -> None:
    """Use a device again that is set aside, or all such devices of a node.

    Examples:
        trainmaster node unblock n1:3
        trainmaster node unblock n1
    """
    answer = client.post(f"/nodes/{quote(place, safe='')}/unblock")
    show_answer(answer, as_json, f"{place} is used again.")


@command(app, "test")
def self_test(client: ManagerApi, place: Place, as_json: AsJson = False) -> None:
    """Run the self-test of a device, or of all devices of a node: a matrix product and copies.

    Devices that jobs are on are left out. A device that fails, hangs the test, or (a GPU) copies at less than
    half of its usual speed is set aside. The exit code is 1 where one did.

    Examples:
        trainmaster node test n1:3
        trainmaster node test n1
    """
    answer = client.post(f"/nodes/{quote(place, safe='')}/test")
    rows = [(each["device"], each["verdict"], each["sentence"]) for each in answer["tests"]]
    if as_json:
        write_json(answer)
    else:
        show_table(("device", "verdict", ""), rows)
    if any(verdict in ("bad", "slow") for _, verdict, _ in rows):
        raise typer.Exit(FAILED)
