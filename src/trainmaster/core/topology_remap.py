"""Map the indices of nodes and GPUs of an old topology to a new one, when nodes were added or removed.

A GPU whose UUID is known is the same one wherever it is found: the order of the PCI bus may change. A CPU
slot is only a number: a run whose slots are gone gets free ones of its node, where there are as many.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from trainmaster.model.placement import Placement, Slice
from trainmaster.model.topology import SLOT_TYPE, Topology

Layout = tuple[tuple[str, ...], tuple[tuple[str, int, tuple[int, ...]], ...]]
"""Levels, and of each node its name, how many devices it has, and the domains around it."""


def layout_of(topology: Topology) -> Layout:
    """Everything that the indices of nodes and devices depend on."""
    nodes = tuple((node.name, node.gpus, node.domains) for node in topology.nodes)
    return topology.levels, nodes


def kinds_of(topology: Topology) -> tuple[str, ...]:
    """Of each node the type of its devices."""
    return tuple(node.type.name for node in topology.nodes)


@dataclass(frozen=True, slots=True)
class IndexMapping:
    """Old indices to new ones, for the nodes and GPUs that still exist."""

    topology: Topology
    nodes: Mapping[int, int]
    gpus: Mapping[int, int]

    @classmethod
    def between(
        cls,
        layout: Layout,
        topology: Topology,
        kinds: Sequence[str] | None = None,
        uuids: Sequence[str] = (),
    ) -> IndexMapping:
        """Matches GPUs by UUID, and their nodes with them, where old and new UUIDs are known.

        Else nodes by name and kind, if that is known, and devices by their index on the node.
        """
        nodes: dict[int, int] = {}
        gpus: dict[int, int] = {}
        now = {uuid: gpu for gpu, uuid in enumerate(topology.uuids)} if uuids else {}
        first = 0
        for index, (name, count, _) in enumerate(layout[1]):
            own, node = range(first, first + count), topology.node_by_name.get(name)
            found = {gpu: now[uuids[gpu]] for gpu in own if now and uuids[gpu] in now}
            if found:
                nodes[index] = topology.node_of_gpu[min(found.values())]
            elif node is not None and (kinds is None or kinds[index] == node.type.name):
                nodes[index] = node.index
                if not now:
                    there = range(node.first_gpu, node.first_gpu + node.gpus)
                    found = dict(zip(own, there, strict=False))
            gpus |= found
            first += count
        return cls(topology, nodes, gpus)

    def exchanging_slots(
        self, held: Iterable[Collection[Slice]], aside: Iterable[int] = ()
    ) -> IndexMapping:
        """The same, with free slots of their nodes for those that are gone and held.

        `held` are the slots of each run, the most important first: a run gets all that it lacks, or none.
        Slots that are set aside are not given to others.
        """
        runs = [tuple(each) for each in held]
        taken = {self.gpus[piece.gpu] for run in runs for piece in run if self.has((piece,))}
        taken |= {self.gpus[gpu] for gpu in aside if gpu in self.gpus}
        exchanged: dict[int, int] = {}
        for run in runs:
            gone = [piece for piece in run if not (self.has((piece,)) or piece.gpu in exchanged)]
            found = self._free_slots(gone, taken)
            if found is not None:
                exchanged |= found
                taken |= set(found.values())
        given = set(exchanged.values())
        kept = {old: new for old, new in self.gpus.items() if new not in given}
        return replace(self, gpus=kept | exchanged)

    def _free_slots(
        self, gone: Iterable[Slice], taken: Collection[int]
    ) -> Mapping[int, int] | None:
        """A slot of its node for each of these; None where there are too few."""
        found: dict[int, int] = {}
        for piece in gone:
            free = (slot for slot in self._slots_at(piece.node) if slot not in taken)
            slot = next((slot for slot in free if slot not in found.values()), None)
            if slot is None:
                return None
            found[piece.gpu] = slot
        return found

    def _slots_at(self, old_node: int) -> range:
        """The slots that this node has now."""
        if old_node not in self.nodes:
            return range(0)
        node = self.topology.nodes[self.nodes[old_node]]
        return range(node.first_gpu, node.first_gpu + node.gpus * (node.type.name == SLOT_TYPE))

    def has(self, slices: Iterable[Slice]) -> bool:
        """Whether all these devices still exist."""
        return all(piece.gpu in self.gpus for piece in slices)

    def slice(self, piece: Slice) -> Slice:
        """The slice under the new indices; its device must still exist."""
        return piece._replace(node=self.nodes[piece.node], gpu=self.gpus[piece.gpu])

    def placement(self, old: Placement | None) -> Placement | None:
        """The placement under the new indices; None if any of its devices is gone."""
        if old is None or not self.has(old.slices):
            return None
        return self._on(old, tuple(self.slice(piece) for piece in old.slices))

    def frozen(self, old: Placement | None) -> Placement | None:
        """Where a frozen run is bound now: on any slots of its nodes, which it leaves to others meanwhile."""
        if old is None or self.has(old.slices):
            return self.placement(old)
        stays = {piece.gpu: self.gpus[piece.gpu] for piece in old.slices if self.has((piece,))}
        gone = [piece for piece in old.slices if piece.gpu not in stays]
        found = self._free_slots(gone, stays.values())
        if found is None:
            return None
        slots = {**stays, **found}
        moved = (
            piece._replace(node=self.nodes[piece.node], gpu=slots[piece.gpu])
            for piece in old.slices
        )
        return self._on(old, tuple(moved))

    def _on(self, old: Placement, slices: tuple[Slice, ...]) -> Placement:
        span = self.topology.span_of_gpus([piece.gpu for piece in slices])
        return replace(old, slices=slices, span=span)
