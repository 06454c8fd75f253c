"""`trainmaster nodes`: the machines, their devices and the jobs on them."""

from __future__ import annotations

from typing import Annotated, Any

from trainmaster.cli.support.client import Client
from trainmaster.cli.support.console import remark, show_table, write_json
from trainmaster.cli.support.options import AsJson, option
from trainmaster.model.units import GIB

HEADINGS = (
    *("node", "state", "type", "devices", "free", "cpus", "memory", "jobs"),
    "suspended here",
)


Devices = Annotated[bool, option("--devices", "Show every device on its own line.")]


def nodes(client: Client, devices: Devices = False, as_json: AsJson = False) -> None:
    """List nodes: their state, their devices, and the jobs on them.

    Examples:
        trainmaster nodes
        trainmaster nodes --devices
        trainmaster nodes --json
    """
    show_nodes(client, devices, as_json)


def show_nodes(client: Client, devices: bool, as_json: bool) -> None:
    answer = client.get("/nodes")
    found = answer["nodes"]
    if as_json:
        write_json(answer)
        return
    if devices:
        rows = [
            (node["name"], str(device["name"]), node["type"], device["jobs"])
            for node in found
            for device in node["devices"]
        ]
        show_table(("node", "device", "type", "jobs"), rows)
    else:
        show_table(HEADINGS, map(_row, found))
    remark("Note", (f"{node['name']}: {line}" for node in found for line in node["remarks"]))


def _row(node: dict[str, Any]) -> tuple[object, ...]:
    devices = node["devices"]
    jobs = list(dict.fromkeys(job for device in devices for job in device["jobs"]))
    free = sum(not device["jobs"] for device in devices)
    memory = f"{node['memory_bytes'] / GIB:.0f} GiB"
    own = (node["name"], node["state"], node["type"], len(devices), free, node["cpus"])
    return (*own, memory, jobs, node["frozen"])
