"""What never changes about a cluster, in the form that bookings need: flat lists over dense indices."""

from __future__ import annotations

from trainmaster.model.job import Demand
from trainmaster.model.placement import Slice
from trainmaster.model.topology import SLOT_TYPE, Node, Topology
from trainmaster.model.units import WHOLE

FROZEN_PER_GPU = 3
"""Runs as large as a GPU that can be frozen beside the one that has it, if the host has the memory."""


class TopologyIndex:
    """Which GPU is on which node, its CPUs and host memory, and what the empty cluster could hold."""

    def __init__(self, topology: Topology, *, can_freeze: bool = False) -> None:
        self.topology = topology
        nodes = topology.nodes
        self.cpus_per_gpu = [node.cpus // node.gpus if node.gpus else 0 for node in nodes]
        self.host_per_gpu = [_host_per_gpu(node, can_freeze=can_freeze) for node in nodes]
        self.type_index = {kind.name: index for index, kind in enumerate(topology.types)}
        self.node_type = [self.type_index[node.type.name] for node in nodes]
        self.node_of = topology.node_of_gpu
        self.first_gpu = [node.first_gpu for node in nodes]
        self.largest = [
            max(node.gpus for node in nodes if node.type.name == kind.name)
            for kind in topology.types
        ]
        """GPUs of the biggest node of each type, whether free or not."""
        self.is_even = [
            all(node.gpus == most for node in nodes if node.type.name == kind.name)
            for kind, most in zip(topology.types, self.largest, strict=True)
        ]
        """Per type: whether all its nodes have equally many GPUs."""
        self.island_masks = [
            [
                [sum(1 << local for local in island) for island in islands]
                for islands in reversed(node.island_levels)
            ]
            for node in nodes
        ]
        """Per node, per level inside it, innermost first: a bit for each GPU of each island."""
        self.whole_slices = [Slice(node, gpu) for gpu, node in enumerate(topology.node_of_gpu)]
        """One shared value per whole GPU: big gangs need not make them again."""
        self.usable = [node.gpus for node in nodes]
        """Per node: GPUs that are not set aside."""
        self._fewest: dict[tuple[tuple[int, ...], int | None, int | None, int, int], int] = {}
        self._kinds: dict[tuple[str | None, int], tuple[int, ...]] = {}

    def fewest_nodes(self, kinds: tuple[int, ...], demand: Demand, count: int) -> int:
        """The fewest nodes of these types that could hold this many GPUs of the job, were they empty."""
        key = (kinds, demand.cpus, demand.host_memory, demand.nominal.share, count)
        known = self._fewest.get(key)
        if known is None:
            nodes = [node for node in self.topology.nodes if self.node_type[node.index] in kinds]
            known, left = 0, count
            for size in sorted((self.most_on(node, demand) for node in nodes), reverse=True):
                if left <= 0:
                    break
                known, left = known + 1, left - size
            self._fewest[key] = known
        return known

    def most_on(self, node: Node, demand: Demand) -> int:
        """GPUs of a job that this node could carry if it were empty, without those that are set aside."""
        return min(most_on(node, demand), self.usable[node.index])

    def kinds_for(self, demand: Demand) -> tuple[int, ...]:
        """The device types a job may use, fastest first: indices into `topology.types`."""
        key = (demand.gpu_type, demand.nominal.memory)
        kinds = self._kinds.get(key)
        if kinds is None:
            kinds = self._kinds[key] = tuple(
                index
                for index, kind in enumerate(self.topology.types)
                if kind.memory >= demand.nominal.memory and demand.allows(kind.name)
            )
        return kinds


def _host_per_gpu(node: Node, *, can_freeze: bool) -> int:
    """Host memory per GPU; where runs can be frozen, less, so that frozen runs of each GPU fit besides.

    Otherwise a full node would have no memory left for a run to be frozen. On slots that is one, on GPUs
    as many as take turns with another.
    """
    if not node.gpus:
        return 0
    each = node.memory // node.gpus
    if not can_freeze:
        return each
    beside = 1 if node.type.name == SLOT_TYPE else FROZEN_PER_GPU
    return max(each // (beside + 1), each - beside * node.type.memory)


def most_on(node: Node, demand: Demand) -> int:
    """GPUs of a job that this node could carry if it were empty."""
    most, share = node.gpus, demand.nominal.share
    if demand.cpus:
        most = min(most, node.cpus * WHOLE // (demand.cpus * share))
    if demand.host_memory:
        most = min(most, node.memory * WHOLE // (demand.host_memory * share))
    return most
