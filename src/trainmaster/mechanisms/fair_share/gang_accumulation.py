"""Whom free GPUs collect for: gangs that have waited `starve_after_s` and do not fit yet.

To go first in line is no help to a gang that does not fit while others pass it. So nobody behind it in
its queue starts on GPUs that it could use, and no other queue borrows such GPUs, until enough of them
are free. Other queues keep what is theirs: a gang larger than its queue's part of the cluster collects
nothing, nor does one that the nodes still in use cannot hold.
"""

from __future__ import annotations

from collections.abc import Callable

from trainmaster.core.occupancy import Occupancy
from trainmaster.core.state import JobRecord
from trainmaster.mechanisms.fair_share.queue_tree import Node
from trainmaster.model.units import WHOLE
from trainmaster.placement.placers import Placer


def may_collect(
    record: JobRecord,
    least: int,
    tip: Node,
    space: Occupancy,
    placer_of: Callable[[JobRecord], Placer],
) -> bool:
    """Whether it could run on its queue's part of the nodes that there are."""
    if least > tip.budget or tip.never_holds(least):
        return False
    if not space.closed:
        return True
    kinds, nodes = space.kinds_for(record.demand), space.topology.nodes
    if placer_of(record).insists and any(space.node_type[node] in kinds for node in space.closed):
        return False
    usable = [
        nodes[node].gpus
        for node in range(len(nodes))
        if node not in space.closed and space.node_type[node] in kinds
    ]
    return sum(usable) * WHOLE >= least
