"""Server affinity (Gandiva, OSDI'18): servers host jobs of one size; loads, and where the next job goes.

A server's affinity is the size (GPUs) of the jobs that it hosts; of several sizes, the one with most
GPUs there, the smaller at a tie; 0 while it hosts none. Hosted are the jobs that run there and those
that wait there for their turn, so that more GPUs can be allocated than are present.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heapreplace

from trainmaster.core.occupancy import Occupancy
from trainmaster.model.job import Demand
from trainmaster.model.placement import Placement
from trainmaster.model.topology import Topology
from trainmaster.model.units import NOMINAL, WHOLE
from trainmaster.placement.gang import bits, could_carry

Home = tuple[tuple[int, int], ...]
"""Where a job belongs: (node, GPUs there) for each of its nodes."""

EVERYWHERE = -1
"""The mask of all nodes."""


def home_of(placement: Placement) -> Home:
    counts: dict[int, int] = {}
    for piece in placement.slices:
        counts[piece.node] = counts.get(piece.node, 0) + 1
    return tuple(counts.items())


class Servers:
    """GPUs allocated per node, by size of job, and the affinity that follows from it."""

    def __init__(self, topology: Topology) -> None:
        self.present = [node.gpus for node in topology.nodes]
        self.allocated = [0] * len(self.present)
        self._by_size: list[dict[int, int]] = [{} for _ in self.present]
        self._affinity = [0] * len(self.present)
        self._of_affinity = {0: (1 << len(self.present)) - 1}
        self._hosting: dict[int, int] = {}

    def add(self, home: Home, size: int) -> None:
        self._count(home, size, 1)

    def remove(self, home: Home, size: int) -> None:
        self._count(home, size, -1)

    def _count(self, home: Home, size: int, sign: int) -> None:
        for node, gpus in home:
            self.allocated[node] += sign * gpus
            there, bit = self._by_size[node], 1 << node
            left = there.get(size, 0) + sign * gpus
            if left:
                there[size] = left
                self._hosting[size] = self._hosting.get(size, 0) | bit
            else:
                del there[size]
                self._hosting[size] &= ~bit
            self._turn_to(node, max(there, key=lambda each: (there[each], -each), default=0))

    def _turn_to(self, node: int, size: int) -> None:
        old, bit = self._affinity[node], 1 << node
        if size != old:
            self._of_affinity[old] &= ~bit
            self._of_affinity[size] = self._of_affinity.get(size, 0) | bit
            self._affinity[node] = size

    def affinity(self, node: int) -> int:
        return self._affinity[node]

    def with_affinity(self, size: int) -> int:
        """A bit for each node of that affinity."""
        return self._of_affinity.get(size, 0)

    def off_affinity(self) -> Iterator[tuple[int, int]]:
        """(size, a bit for each node of another affinity that hosts jobs of that size)."""
        for size in sorted(self._hosting):
            nodes = self._hosting[size] & ~self.with_affinity(size)
            if nodes:
                yield size, nodes

    def load(self, node: int) -> int:
        """GPUs allocated of those present, in parts per million."""
        return self.allocated[node] * NOMINAL // self.present[node]


def free_server(
    space: Occupancy, servers: Servers, demand: Demand, count: int, among: int = EVERYWHERE
) -> int | None:
    """A server with that many free GPUs: of the job's affinity, else of none, else of another."""
    own, none = servers.with_affinity(count), servers.with_affinity(0)
    for nodes in (own, none, ~(own | none)):
        found = least_loaded_free(space, servers, demand, count, nodes & among)
        if found is not None:
            return found
    return None


def least_loaded_free(
    space: Occupancy, servers: Servers, demand: Demand, count: int, among: int
) -> int | None:
    """Of these, the least loaded server with that many free GPUs; the fastest type first."""
    for kind in space.kinds_for(demand):
        row, best = space.by_free[kind], None
        for free in range(len(row) - 1, count - 1, -1):
            for node in bits(row[free] & among):
                if not space.has_host_room(node, count * WHOLE, demand):
                    continue
                if space.is_even[kind]:
                    return node
                found = (servers.load(node), -free, node)
                best = found if best is None or found < best else best
        if best is not None:
            return best[2]
    return None


class LoadHeap:
    """Servers to over-subscribe for one demand (they could hold the job if empty), by load."""

    def __init__(
        self, space: Occupancy, servers: Servers, demand: Demand, count: int, among: int
    ) -> None:
        self._servers = servers
        kinds, nodes = space.kinds_for(demand), (1 << len(space.topology.nodes)) - 1
        self._heap = [
            (servers.load(node), node)
            for node in bits(among & nodes)
            if space.node_type[node] in kinds
            and node not in space.closed
            and could_carry(space, node, demand, count)
        ]
        heapify(self._heap)

    def least_loaded(self) -> int | None:
        """As loads are now: they only grow while jobs are being placed."""
        heap = self._heap
        while heap:
            load, node = heap[0]
            now = self._servers.load(node)
            if now == load:
                return node
            heapreplace(heap, (now, node))
        return None
