"""`trainmaster split`: the placement of a model, as a table, as JSON and as a drawing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from trainmaster.cli.support.console import remark, say, show_table, write_json
from trainmaster.client.manager_api import Json
from trainmaster.config.units import size_bytes
from trainmaster.errors import BadInput, Failed
from trainmaster.profiling.graph_trace import CapturedModel, CaptureSetup, captured_model
from trainmaster.profiling.tracer import CannotTrace
from trainmaster.report.atomic_write import write_file
from trainmaster.split.colocation import colocated
from trainmaster.split.devices import Device, Link, PlacementError
from trainmaster.split.fusion import fused
from trainmaster.split.graph import GraphError, ModelGraph
from trainmaster.split.placers import PLACERS
from trainmaster.split.ralp import NotWorthIt, partition_point
from trainmaster.split.schedule import Schedule
from trainmaster.text.formatting import plural, size

MS = 1e6
"""Nanoseconds."""


def captured(setup: CaptureSetup, python: str) -> CapturedModel:
    try:
        return captured_model(setup, python)
    except (CannotTrace, GraphError) as why:
        raise BadInput(f"cannot capture {setup.factory}: {str(why).rstrip('.')}.") from None


def reduced(captured: CapturedModel, colocate: str | None) -> CapturedModel:
    """With operators together that have one reader, and neighbours in a group as one operator."""
    if colocate is None:
        return captured
    try:
        most = size_bytes(colocate)
    except ValueError:
        raise BadInput(f"`{colocate}` is not an amount of memory: write 500MiB.") from None
    graph, members = fused(colocated(captured.graph, most))
    layers = {name: captured.layer_of[inside[-1]] for name, inside in members.items()}
    return replace(captured, graph=graph, layer_of=layers)


def placed(graph: ModelGraph, devices: Sequence[Device], link: Link, placer: str) -> Schedule:
    try:
        return PLACERS[placer](graph, devices, link)
    except GraphError as why:
        raise BadInput(str(why)) from None
    except PlacementError as why:
        raise Failed(str(why)) from None


def show_partition_point(
    captured: CapturedModel, batch: int, workers: int, device: Device, as_json: bool
) -> None:
    layers = captured.layers
    try:
        found = partition_point(layers, batch, workers, device.memory)
    except GraphError as why:
        raise BadInput(str(why)) from None
    if isinstance(found, NotWorthIt):
        if as_json:
            write_json({"partition_point": None, "why": found.why})
        else:
            say(found.why)
        return
    if as_json:
        write_json({**asdict(found), "last_layer": layers[found.layers - 1].name})
        return
    say(
        f"Cut behind {layers[found.layers - 1].name}, after {plural(found.layers, 'layer')} of {len(layers)}:"
        f" each of {workers} workers sends {size(found.traffic)} a step instead of"
        f" {size(found.data_parallel)}."
    )


def show_split(
    setup: CaptureSetup,
    captured: CapturedModel,
    graph: ModelGraph,
    made: Schedule,
    devices: Sequence[Device],
    as_json: bool,
) -> None:
    if as_json:
        write_json(_row(setup, captured, graph, made, devices))
        return
    if captured.why:
        remark(
            "Note", [f"it has no graph of operators, so that layers are placed ({captured.why})"]
        )
    remark("Note", too_much_received(made, devices))
    rows = []
    for number, device in enumerate(devices):
        mine = [each for each in made.steps if each.device == number]
        busy = sum(each.end - each.start for each in mine)
        rows.append(
            (
                device.name,
                size(device.memory),
                size(made.peaks[number]),
                f"{len(mine):,}",
                f"{busy / MS:.2f} ms",
                ", ".join(_layers(captured, [each.operator for each in mine])) or "-",
            )
        )
    show_table(("device", "memory", "used", "operators", "busy", "layers"), rows)
    alone = sum(graph.times())
    sent = sum(each.size for each in made.transfers)
    say(
        f"{setup.factory}, batch {setup.batch}: {plural(len(graph.operators), 'operator')} by {captured.by},"
        f" measured on {setup.device}. A step is predicted to take {made.makespan / MS:.2f} ms, and"
        f" {alone / MS:.2f} ms on one device that holds all of it."
    )
    if made.transfers:
        say(f"{plural(len(made.transfers), 'transfer')} of {size(sent)} in all, forward.")


def too_much_received(made: Schedule, devices: Sequence[Device]) -> list[str]:
    """A sentence for each device that has no room for all that it is sent."""
    return [
        f"{device.name} is sent {size(received)} a step, which is not counted as used, and has room for"
        f" {size(device.memory - used)} of it"
        for device, used, received in zip(devices, made.peaks, made.received, strict=True)
        if used + received > device.memory
    ]


def _layers(captured: CapturedModel, operators: Sequence[str]) -> list[str]:
    """The modules of these, in order, by the first two parts of their names."""
    named = (captured.layer_of.get(each, "") for each in operators)
    return list(dict.fromkeys(".".join(each.split(".")[:2]) for each in named if each))


def _row(
    setup: CaptureSetup,
    captured: CapturedModel,
    graph: ModelGraph,
    made: Schedule,
    devices: Sequence[Device],
) -> Json:
    return {
        "factory": setup.factory,
        "batch": setup.batch,
        "optimizer": setup.optimizer,
        "captured_by": captured.by,
        "why_layers": captured.why or None,
        "measured_on": setup.device,
        "step_ms": made.makespan / MS,
        "one_device_ms": sum(graph.times()) / MS,
        "devices": [
            {
                "name": each.name,
                "memory": each.memory,
                "used": made.peaks[number],
                "received": made.received[number],
            }
            for number, each in enumerate(devices)
        ],
        "operators": [
            {
                "name": each.operator,
                "layer": captured.layer_of.get(each.operator) or None,
                "device": devices[each.device].name,
                "start_ms": each.start / MS,
                "end_ms": each.end / MS,
            }
            for each in made.steps
        ],
        "transfers": [
            {
                "operator": each.operator,
                "from": devices[each.source].name,
                "to": devices[each.target].name,
                "bytes": each.size,
                "start_ms": each.start / MS,
                "end_ms": each.end / MS,
            }
            for each in made.transfers
        ],
    }


def draw(graph: ModelGraph, made: Schedule, devices: Sequence[Device], file: Path) -> None:
    from trainmaster.cli.support.split_plot import drawn

    try:
        write_file(file, drawn(graph, made, devices, file.suffix[1:]))
    except OSError as why:
        raise BadInput(f"{file} cannot be written: {why.strerror}.") from None
    remark("Note", [f"drawn into {file}"])
