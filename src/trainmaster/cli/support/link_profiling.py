"""`trainmaster profile links`: between the devices of a node, and between nodes; where the links are kept."""

from __future__ import annotations

import os
from pathlib import Path

from trainmaster.cli.support.console import remark, say, show_table, write_json
from trainmaster.client.address import state_folder
from trainmaster.config.links import GIGA, MeasuredLinks, links_in, links_text
from trainmaster.config.validation import ConfigError
from trainmaster.durable_files import write_whole
from trainmaster.errors import BadInput, Failed, cannot_write, system_reason
from trainmaster.gpu.devices import Machine, detect_machine
from trainmaster.model.topology import INSIDE_NODE, Link, TopologyError
from trainmaster.profiling.links import CannotMeasure, LinkMeter, Meeting, slowest

LINKS = "links.yaml"
"""A file of the data folder: links that were measured, which `up` reads."""
PROCESSES = 2
"""Measured between on a node without GPUs."""
Row = tuple[str, str, Link]
"""Level, between what, and the link."""


def links_file() -> Path:
    """Where they are kept unless somebody says otherwise."""
    return state_folder(None) / LINKS


def read_links(path: Path) -> MeasuredLinks:
    """BadInput where the file is not one of links."""
    try:
        return links_in(path.read_text("utf-8"), str(path))
    except ConfigError as error:
        raise BadInput(str(error)) from None
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {system_reason(error)}.") from None
    except UnicodeDecodeError:
        raise BadInput(f"{path} is not a text file in UTF-8.") from None


def meeting_of(nodes: int | None, rank: int | None, meet: str | None) -> Meeting | None:
    """The nodes that measure together, by options or as of a job; None: this one alone."""
    env = os.environ
    count = int(env.get("WORLD_SIZE", "1")) if nodes is None else nodes
    if count == 1:
        return None
    number = int(env.get("RANK", "-1")) if rank is None else rank
    if not 0 <= number < count:
        raise BadInput(f"--nodes {count}: say which node this is with --rank, 0 to {count - 1}.")
    where = meet or f"{env.get('MASTER_ADDR', '')}:{env.get('MASTER_PORT', '')}"
    host, _, port = where.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise BadInput(f"--nodes {count}: say where they meet with --meet, such as 10.0.0.1:29500.")
    return Meeting(number, count, host, int(port))


def profile_links(
    meter: LinkMeter,
    devices: int | None,
    meeting: Meeting | None,
    level: str,
    out: Path | None,
    as_json: bool,
) -> None:
    try:
        machine = detect_machine()
    except TopologyError as problem:
        raise Failed(f"{problem}.") from None
    gpus = len(machine.devices)
    if gpus and devices is not None and devices > gpus:
        raise BadInput(f"--devices {devices}: this node has {gpus}.")
    count = devices or gpus or PROCESSES
    if count == 1 and meeting is None:
        raise BadInput(
            "there is one device, and nothing to measure: name other nodes with --nodes."
        )
    if not gpus:
        remark("Note", ("there is no GPU here: measured by gloo, between processes",))
    try:
        rows = _measured(meter, machine, count, meeting, level)
    except CannotMeasure as problem:
        raise Failed(f"{problem}.") from None
    if rows is None:
        say("Measured; node 0 has the links.")
        return
    found = {name: link for name, _, link in rows}
    path = out or links_file()
    kept = _with_others(path, found)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, links_text(kept))
    except OSError as error:
        raise cannot_write(str(path), error) from None
    if as_json:
        write_json({"file": str(path), "links": [_as_json(each) for each in rows]})
        return
    show_table(
        ("level", "between", "GB/s", "latency"),
        [
            (name, between, f"{link.bytes_per_s / GIGA:.3g}", f"{link.latency_us} µs")
            for name, between, link in rows
        ],
    )
    say(f"Kept in {path}.")


def _measured(
    meter: LinkMeter, machine: Machine, count: int, meeting: Meeting | None, level: str
) -> list[Row] | None:
    """None: another node has them."""
    on_gpus = bool(machine.devices)
    own = meter.between_devices(count, on_gpus=on_gpus) if count > 1 else None
    between = None
    if meeting is not None:
        between = meter.between_nodes(meeting, own, on_gpus=on_gpus)
        if between is None:
            return None
        own = slowest(between.inside) if between.inside else None
    what = f"{count} {'GPUs' if on_gpus else 'processes'} of a node"
    rows: list[Row] = []
    if own is not None:
        rows = [(name, what, own) for name in _levels_inside(machine, count)]
    if between is not None and meeting is not None:
        rows.append((level, f"{meeting.nodes} nodes", between.between))
    return rows


def _levels_inside(machine: Machine, count: int) -> list[str]:
    """The level that holds these devices, and those around it up to the node."""
    topology = machine.topology
    if count > topology.nodes[0].gpus:
        return ["node"]
    span = topology.span_of_gpus(range(count))
    return [each for each in topology.levels[: span + 1] if each in INSIDE_NODE]


def _with_others(path: Path, found: dict[str, Link]) -> MeasuredLinks:
    """With those of other levels that the file has already."""
    before = dict(read_links(path)) if path.exists() else {}
    return tuple({**before, **found}.items())


def _as_json(row: Row) -> dict[str, object]:
    name, between, link = row
    return {
        "level": name,
        "between": between,
        "gb_s": link.bytes_per_s / GIGA,
        "latency_us": link.latency_us,
    }
