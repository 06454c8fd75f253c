"""Choose victims for a gang: count, run by run, what preemption would free, without booking anything."""

from __future__ import annotations

from trainmaster.core.occupancy import Occupancy
from trainmaster.core.state import JobRecord
from trainmaster.model.job import Demand
from trainmaster.model.placement import Sharing
from trainmaster.model.units import WHOLE


class NodeVictimCount:
    """Counts, victim by victim, what would be free together, without booking anything.

    A gang that fits on one node needs a node with that many GPUs; a larger one needs as many fully free
    nodes as it fills, and one more with room for the rest.
    """

    def __init__(self, space: Occupancy, kinds: tuple[int, ...], need: int, largest: int) -> None:
        self._space = space
        self._kinds = kinds
        self._full, self._rest = (0, need) if need <= largest else divmod(need, largest)
        self._largest = largest
        self._freed: dict[int, int] = {}
        self._clear = 0
        """A bit for each node that would be wholly free."""
        self._partly = 0
        """A bit for each node that would have room for the rest."""
        if self._full:
            self._count_what_is_free()

    def _count_what_is_free(self) -> None:
        """Start from the nodes that have the room already."""
        for kind in self._kinds:
            row = self._space.by_free[kind]
            self._clear |= row[self._largest]
            for free in range(self._rest or len(row), len(row)):
                self._partly |= row[free]

    def _is_usable(self, node: int) -> bool:
        return node not in self._space.closed and self._space.node_type[node] in self._kinds

    def add(self, victim: JobRecord) -> bool:
        """Count this victim's GPUs too; True when there is room together now."""
        assert victim.placement is not None
        freed, whole = self._freed, self._space.whole
        for piece in victim.placement.slices:
            node = piece.node
            if piece.gpu in self._space.aside:
                continue
            count = freed[node] = freed.get(node, 0) + 1
            count += whole[node].bit_count()
            if count >= (self._rest or self._largest) and self._is_usable(node):
                if count >= self._largest:
                    self._clear |= 1 << node
                if self._rest:
                    self._partly |= 1 << node
        if not self._full:
            return self._partly != 0
        clear = self._clear.bit_count()
        if clear < self._full:
            return False
        return not self._rest or (self._partly | self._clear).bit_count() > self._full

    def is_needed(self, victim: JobRecord) -> bool:
        """Whether a victim counted is on one of the nodes that make the room."""
        nodes = self._clear | self._partly if self._full else self._partly
        assert victim.placement is not None
        return any(nodes >> piece.node & 1 for piece in victim.placement.slices)


class GpuVictimCount:
    """Counts, run by run, towards the GPUs that a gang needs; nothing is booked."""

    def __init__(self, space: Occupancy, demand: Demand) -> None:
        self._space = space
        self._kinds = space.kinds_for(demand)
        free = sum(space.free_gpus[kind] for kind in self._kinds)
        self.missing = demand.nominal.count - free
        """GPUs still missing; with none missing there may be room, but need not."""
        self._left: dict[int, int] = {}
        """By GPU: the share that would be free."""

    def add(self, victim: JobRecord) -> None:
        """Count this run as gone too."""
        space, placement = self._space, victim.placement
        assert placement is not None
        is_whole = placement.sharing is Sharing.EXCLUSIVE
        for node, gpu, share, _, _ in placement.slices:
            if not space.is_offered(gpu) or space.node_type[node] not in self._kinds:
                continue
            free = self._left.get(gpu, space.free_share[gpu]) + (WHOLE if is_whole else share)
            self._left[gpu] = free
            if free >= WHOLE:
                self.missing -= 1
