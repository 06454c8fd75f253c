"""`trainmaster nodes`: the machines, their devices and who is on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from trainmaster.cli.support.console import examples
from trainmaster.cli.support.options import AsJson, Data, Url

if TYPE_CHECKING:
    from trainmaster.cli.support.client import Json

EPILOG = examples("trainmaster nodes", "trainmaster nodes --devices", "trainmaster nodes --json")
GIB = 1 << 30


def nodes(
    devices: Annotated[
        bool, typer.Option("--devices", help="Show every device on its own line.")
    ] = False,
    as_json: AsJson = False,
    url: Url = None,
    data: Data = None,
) -> None:
    """List nodes: their state, their devices, and the jobs on them."""
    from trainmaster.cli.support.client import connect
    from trainmaster.cli.support.console import remark
    from trainmaster.cli.support.format import write_json

    with connect(url, data) as client:
        answer = client.get("/nodes")
    if as_json:
        write_json(answer)
        return
    found = answer["nodes"]
    if devices:
        _show_devices(found)
    else:
        _show_nodes(found)
    remark("Note", (f"{node['name']}: {line}" for node in found for line in node["remarks"]))


def _show_nodes(found: list[Json]) -> None:
    from rich.markup import escape

    from trainmaster.cli.support.console import screen
    from trainmaster.cli.support.format import NOTHING, table

    made = table(
        "node", "state", "type", "devices", "free", "cpus", "memory", "jobs", "suspended here"
    )
    for node in found:
        jobs = dict.fromkeys(job for device in node["devices"] for job in device["jobs"])
        free = sum(not device["jobs"] for device in node["devices"])
        made.add_row(
            escape(node["name"]),
            escape(node["state"]),
            escape(node["type"]),
            str(len(node["devices"])),
            str(free),
            f"{node['cpus']:g}",
            f"{node['memory_bytes'] / GIB:.0f} GiB",
            escape(", ".join(jobs)) or NOTHING,
            escape(", ".join(node["frozen"])) or NOTHING,
        )
    screen().print(made)


def _show_devices(found: list[Json]) -> None:
    from rich.markup import escape

    from trainmaster.cli.support.console import screen
    from trainmaster.cli.support.format import NOTHING, table

    made = table("node", "device", "type", "jobs")
    for node in found:
        for device in node["devices"]:
            made.add_row(
                escape(node["name"]),
                escape(str(device["name"])),
                escape(node["type"]),
                escape(", ".join(device["jobs"])) or NOTHING,
            )
    screen().print(made)
