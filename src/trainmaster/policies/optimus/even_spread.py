"""Evenly over the fewest servers: Optimus' placement (EuroSys'18, section 4.2).

Its theorem: with equally many servers and workers of a job on each of the fewest machines, the least is
sent between machines. Machines with most room come first; task i goes to machine i mod k, with the
smallest k that holds all.
"""

from __future__ import annotations

from collections.abc import Sequence

from trainmaster.core.occupancy import Occupancy
from trainmaster.model.job import Demand
from trainmaster.model.placement import Placement, Role
from trainmaster.placement.gang import NodesByFree, Share, bits, placement_of, rows_for


def evenly(capacities: Sequence[int], servers: int, workers: int) -> list[tuple[int, int]] | None:
    """(servers, workers) for each of the fewest machines, by the room they have, roomiest first.

    None where no number of machines holds them evenly.
    """
    for k in range(1, min(len(capacities), servers + workers) + 1):
        dealt = [(_dealt(servers, i, k), _dealt(workers, i, k)) for i in range(k)]
        if all(sum(tasks) <= room for tasks, room in zip(dealt, capacities, strict=False)):
            return dealt
    return None


def _dealt(tasks: int, machine: int, machines: int) -> int:
    """How many of the tasks 0, 1, 2 … are the machine's, dealt out in turn."""
    return (tasks - machine + machines - 1) // machines


def place_evenly(space: Occupancy, demand: Demand, count: int, role: Role) -> Placement | None:
    """`count` whole GPUs in equal parts on the fewest, emptiest nodes; None if that is not possible."""
    for row, _ in rows_for(space, space.kinds_for(demand), count):
        placement = _on_row(space, row, demand, count, role)
        if placement is not None:
            return placement
    return None


def _on_row(
    space: Occupancy, row: NodesByFree, demand: Demand, count: int, role: Role
) -> Placement | None:
    nodes: list[Share] = []
    for free in range(len(row) - 1, 0, -1):
        for node in bits(row[free]):
            room = space.room_on(node, free, demand)
            if room >= count:
                return _placed(space, demand, [(node, count)], role)
            if room:
                nodes.append((node, room))
            if len(nodes) >= count:
                return _spread(space, demand, nodes, count, role)
    return _spread(space, demand, nodes, count, role)


def _spread(
    space: Occupancy, demand: Demand, nodes: list[Share], count: int, role: Role
) -> Placement | None:
    nodes.sort(key=lambda share: -share[1])
    parts = evenly([room for _, room in nodes], 0, count)
    if parts is None:
        return None
    shares = [(node, workers) for (node, _), (_, workers) in zip(nodes, parts, strict=False)]
    return _placed(space, demand, shares, role)


def _placed(space: Occupancy, demand: Demand, shares: list[Share], role: Role) -> Placement | None:
    found = placement_of(space, shares, demand.sized(sum(n for _, n in shares)), role)
    return found if space.refusal(found, demand) is None else None
