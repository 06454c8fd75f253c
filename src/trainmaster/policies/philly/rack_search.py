"""Placements of a locality search (Philly, ATC'19): few servers of the best-ranked rack, one more per step.

Step 0 allows the fewest servers that could ever hold the job, in one rack; every further step one
server more, as far as a rack has servers and the job has GPUs; the last step any GPUs of the cluster.
A job that no rack could ever hold takes the innermost domain around racks that could.

Racks are ranked by how many of their servers could contribute to such a placement now, most first;
ties go to the fuller rack. In the rack it takes the fewest servers, and for what does not fill one
the server with the fewest free GPUs that are enough.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import islice
from operator import or_

from trainmaster.core.occupancy import Occupancy
from trainmaster.core.state import JobRecord
from trainmaster.core.topology_index import most_on
from trainmaster.model.job import Demand, Shape
from trainmaster.model.placement import Placement, Role
from trainmaster.model.topology import Topology
from trainmaster.placement.gang import NodesByFree, Share, bits, by_domain, fewest_nodes
from trainmaster.placement.placers import RELAXING, LocalityRule, Placer


@dataclass(frozen=True, slots=True)
class RelaxationLevels:
    """How far a job's GPUs may be spread at each step of its search."""

    level: int
    """Of the topology: all its servers must be in one domain there, but for the last step."""
    fewest: int
    """Servers that could hold it if they were empty."""
    most: int
    """Servers that it could be spread over in one domain."""

    @property
    def last(self) -> int:
        """The step at which any GPUs are accepted."""
        return self.most - self.fewest + 1

    def servers(self, step: int) -> int | None:
        """How many servers of one domain it may take at a step; None = any GPUs of the cluster."""
        allowed = self.fewest + step
        return allowed if allowed <= self.most else None


class RelaxationLevelsCache:
    """Caches the relaxation levels of each demand; they depend on the topology only."""

    def __init__(self) -> None:
        self._topology: Topology | None = None
        self._known: dict[
            tuple[tuple[int, ...], int | None, int | None, int, int], RelaxationLevels | None
        ] = {}

    def of(
        self, space: Occupancy, kinds: tuple[int, ...], demand: Demand, count: int
    ) -> RelaxationLevels | None:
        """None where nodes of these types could never hold it."""
        if self._topology is not space.topology:
            self._topology = space.topology
            self._known.clear()
        key = (kinds, demand.cpus, demand.host_memory, demand.nominal.share, count)
        if key not in self._known:
            self._known[key] = _levels_of(space, kinds, demand, count)
        return self._known[key]


def _levels_of(
    space: Occupancy, kinds: tuple[int, ...], demand: Demand, count: int
) -> RelaxationLevels | None:
    topology = space.topology
    for level in range(topology.node_level - 1, -1, -1):
        sizes: dict[int, list[int]] = {}
        for node in topology.nodes:
            size = most_on(node, demand)
            if space.node_type[node.index] in kinds and size:
                sizes.setdefault(node.domains[level], []).append(size)
        able = [here for here in sizes.values() if sum(here) >= count]
        if able:
            fewest = min(_servers_for(count, here) for here in able)
            return RelaxationLevels(level, fewest, max(fewest, min(count, max(map(len, able)))))
    return None


def _servers_for(count: int, sizes: list[int]) -> int:
    taken = 0
    for size in sorted(sizes, reverse=True):
        if count <= 0:
            break
        taken, count = taken + 1, count - size
    return taken


@dataclass(frozen=True, slots=True)
class RackPlacer(Placer):
    """The place of a job at one step of its search."""

    step: int = 0
    levels_cache: RelaxationLevelsCache = field(
        default_factory=RelaxationLevelsCache, compare=False
    )

    def _shares(
        self, space: Occupancy, row: NodesByFree, demand: Demand, count: int, kinds: tuple[int, ...]
    ) -> list[Share] | None:
        levels = self.levels_cache.of(space, kinds, demand, count)
        if levels is None:
            return None
        servers = levels.servers(self.step)
        if servers is None:
            return by_domain(space, row, demand, count, kinds, limit=None)
        if servers == 1 and not any(row[count:]):
            return None
        counts = [space.domain_free[kind][levels.level] for kind in kinds]
        frees = counts[0] if len(counts) == 1 else [sum(each) for each in zip(*counts, strict=True)]
        masks = space.topology.domain_masks[levels.level]
        for mask in _best_first(row, count, frees, masks, servers):
            shares = fewest_nodes(space, row, demand, count, mask, servers)
            if shares is not None:
                return shares
        return None


def rack_placer(
    space: Occupancy, levels_cache: RelaxationLevelsCache, demand: Demand, step: int
) -> Placer:
    """The placer of a step; the last step accepts any GPUs."""
    levels = levels_cache.of(space, space.kinds_for(demand), demand, demand.nominal.count)
    if levels is not None and step >= levels.last:
        return RELAXING
    return RackPlacer(LocalityRule.CONSOLIDATED, step, levels_cache)


@dataclass(frozen=True, slots=True)
class NoPlacement(Placer):
    """Places nothing: for jobs that are backing off."""

    def place(
        self, space: Occupancy, record: JobRecord, budget: int | None = None
    ) -> Placement | None:
        return None

    def shaped(
        self,
        space: Occupancy,
        demand: Demand,
        shape: Shape,
        role: Role = Role.GUARANTEED,
        budget: int | None = None,
    ) -> Placement | None:
        return None


NO_PLACEMENT = NoPlacement(LocalityRule.CONSOLIDATED)


def _best_first(
    row: NodesByFree, count: int, frees: Sequence[int], masks: Sequence[int], servers: int
) -> Iterator[int]:
    """Domains with room for `count` GPUs on `servers` servers, best-ranked first."""
    if servers == 1:
        enough = reduce(or_, row[count:])
        able = [(enough & mask).bit_count() for mask in masks]
    else:
        able = [
            contributors(row, mask, count, servers) if free >= count else 0
            for free, mask in zip(frees, masks, strict=True)
        ]
    while (most := max(able)) > 0:
        best = min([domain for domain, n in enumerate(able) if n == most], key=frees.__getitem__)
        yield masks[best]
        able[best] = 0


def contributors(row: NodesByFree, mask: int, count: int, servers: int) -> int:
    """How many servers of a domain could contribute to a placement on `servers` servers; 0: none.

    A server can if its free GPUs and those of the emptiest other servers are enough.
    """
    left, together, last = servers, 0, 0
    for free in range(len(row) - 1, 0, -1):
        there = (row[free] & mask).bit_count()
        if there:
            taken = min(there, left)
            together, left, last = together + taken * free, left - taken, free
            if not left:
                break
    if together < count:
        return 0
    least = max(1, count - (together - last)) if not left else 1
    return sum([(row[free] & mask).bit_count() for free in range(least, len(row))])


def servers_to_acquire(
    space: Occupancy, levels_cache: RelaxationLevelsCache, demand: Demand, step: int
) -> tuple[int, ...]:
    """The servers on which a job without a placement acquires GPUs.

    In the rack with the most servers that have free GPUs, those with the most free GPUs; empty if the step
    allows any GPUs.
    """
    count = demand.nominal.count
    best: tuple[tuple[int, int], tuple[int, ...]] | None = None
    for kind in space.kinds_for(demand):
        levels = levels_cache.of(space, (kind,), demand, count)
        servers = levels.servers(step) if levels is not None else None
        if levels is None or servers is None:
            continue
        row = space.by_free[kind]
        for mask in space.topology.domain_masks[levels.level]:
            some = sum([(row[free] & mask).bit_count() for free in range(1, len(row))])
            chosen = _emptiest(row, mask, servers)
            free = sum([space.whole[node].bit_count() for node in chosen])
            if best is not None and (some, free) <= best[0]:
                continue
            nodes = space.topology.nodes
            if sum([space.most_on(nodes[node], demand) for node in chosen]) >= count:
                best = ((some, free), chosen)
        if best is not None:
            break
    return () if best is None else best[1]


def _emptiest(row: NodesByFree, mask: int, servers: int) -> tuple[int, ...]:
    by_free = (node for here in reversed(row) for node in bits(here & mask))
    return tuple(islice(by_free, servers))
