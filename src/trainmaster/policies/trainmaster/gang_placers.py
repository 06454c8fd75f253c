"""Placers of gangs: on no more nodes than a limit allows, and away from gangs that slow them down."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from trainmaster.core.occupancy import Occupancy
from trainmaster.core.state import JobRecord
from trainmaster.model.job import Demand
from trainmaster.model.placement import Placement
from trainmaster.model.units import WHOLE
from trainmaster.placement.gang import NodesByFree, Share, bits, in_domains, placement_of
from trainmaster.placement.placers import LocalityRule, Placer

NodeLimits = tuple[int, ...]
"""For each level above `node`, outermost first: most nodes in one domain; 0: not at this level."""


@dataclass(frozen=True, slots=True)
class BoundedSpread(Placer):
    """Tries the innermost level first, and there the fewest nodes within the limit."""

    locality: LocalityRule = field(default=LocalityRule.CONSOLIDATED, init=False)
    limits: NodeLimits
    is_strict: bool
    """Whether these are the fewest nodes possible."""

    def _several(
        self, space: Occupancy, row: NodesByFree, demand: Demand, count: int, kinds: tuple[int, ...]
    ) -> list[Share] | None:
        for level in range(len(self.limits) - 1, -1, -1):
            limit = self.limits[level]
            if limit:
                found = in_domains(space, row, demand, count, kinds, level, limit)
                if found is not None:
                    return found
        return None


Harm = Callable[[JobRecord, int], int]
"""Loss to the job and to the gangs already on a node if it ran there."""


@dataclass(frozen=True, slots=True)
class ContentionAware(Placer):
    """Wraps a placer; a gang on one node goes to the node with the least harm, then the fewest free GPUs."""

    locality: LocalityRule = field(init=False)
    inner: Placer
    harm: Harm
    empty_node_harm: int
    """Harm assigned to using an empty node."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "locality", self.inner.locality)
        object.__setattr__(self, "insists", self.inner.insists)

    def place(
        self, space: Occupancy, record: JobRecord, budget: int | None = None
    ) -> Placement | None:
        found = self.inner.place(space, record, budget)
        if (
            found is None
            or found == record.frozen
            or record.loses_work_elsewhere
            or not record.is_whole
            or record.demand.avoid
            or record.demand.barred
        ):
            return found
        count, node = len(found.slices), found.slices[0].node
        if count < 2 or count == space.topology.nodes[node].gpus or len(found.nodes) > 1:
            return found
        best_node = self._least_harm(space, record, count, space.node_type[node])
        if best_node == node:
            return found
        return placement_of(space, [(best_node, count)], record.demand.nominal, record.job.role)

    def _least_harm(self, space: Occupancy, record: JobRecord, count: int, kind: int) -> int:
        best: tuple[int, int, int] | None = None
        row = space.by_free[kind]
        for free in range(count, len(row)):
            for node in bits(row[free]):
                is_empty = free == space.topology.nodes[node].gpus
                harm = self.empty_node_harm if is_empty else self.harm(record, node)
                is_better = best is None or (harm, free) < best[:2]
                if is_better and space.has_host_room(node, count * WHOLE, record.demand):
                    best = (harm, free, node)
            if best is not None and not best[0]:
                break
        assert best is not None
        return best[2]
