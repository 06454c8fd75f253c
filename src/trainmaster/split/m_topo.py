"""m-TOPO (Baechi, SoCC'20): operators in topological order fill one device after the other."""

from __future__ import annotations

from collections.abc import Sequence

from trainmaster.split.devices import Device, Link, PlacementError
from trainmaster.split.graph import ModelGraph
from trainmaster.split.schedule import Schedule, Timetable


def m_topo(graph: ModelGraph, devices: Sequence[Device], link: Link) -> Schedule:
    """Equal devices are filled to an even part plus the largest operator, others until they are full."""
    timetable = Timetable(graph, devices, link)
    assigned = _assigned(graph, devices)
    for operator in graph.order:
        device = assigned[operator]
        timetable.place(operator, device, timetable.wait_for_room(operator, device))
    return timetable.schedule()


def _assigned(graph: ModelGraph, devices: Sequence[Device]) -> list[int]:
    amounts = [each.memory for each in graph.operators]
    limits = [each.memory for each in devices]
    cap = sum(amounts) // max(1, len(devices)) + max(amounts)
    if len(set(limits)) <= 1:
        limits = [min(cap, limit) for limit in limits]
    found = [0] * len(amounts)
    group_device: dict[str, int] = {}
    device, filled = 0, [0] * len(limits)
    for number in graph.order:
        group = graph.operators[number].group
        if group is not None and group in group_device:
            found[number] = group_device[group]
            continue
        members = (number,) if group is None else graph.groups[group]
        amount = sum(amounts[each] for each in members)
        while device < len(limits) and filled[device] + amount > limits[device]:
            device += 1
        if device == len(limits):
            raise PlacementError(
                f"The devices are full before {graph.operators[number].name} is placed: use more devices,"
                " larger ones, or another placer."
            )
        filled[device] += amount
        found[number] = device
        if group is not None:
            group_device[group] = device
    return found
