"""How many whole GPUs are free once some runs have gone, where several may be on one: only counted."""

from __future__ import annotations

from trainmaster.core.occupancy import Occupancy
from trainmaster.core.state import JobRecord
from trainmaster.model.job import Demand
from trainmaster.model.placement import Sharing
from trainmaster.model.units import WHOLE


class Vacating:
    """Counts, run by run, towards the GPUs that a gang needs; nothing is booked."""

    def __init__(self, space: Occupancy, demand: Demand) -> None:
        self._space = space
        self._kinds = space.kinds_for(demand)
        free = sum(space.free_gpus[kind] for kind in self._kinds)
        self.missing = demand.nominal.count - free
        """GPUs that are still not enough; with none missing there may be room, or not yet."""
        self._left: dict[int, int] = {}
        """By GPU: the share that would be free."""

    def add(self, victim: JobRecord) -> None:
        """Count this run as gone too."""
        space, placement = self._space, victim.placement
        assert placement is not None
        is_whole = placement.sharing is Sharing.EXCLUSIVE
        for node, gpu, share, _, _ in placement.slices:
            if node in space.closed or space.node_type[node] not in self._kinds:
                continue
            free = self._left.get(gpu, space.free_share[gpu]) + (WHOLE if is_whole else share)
            self._left[gpu] = free
            if free >= WHOLE:
                self.missing -= 1
