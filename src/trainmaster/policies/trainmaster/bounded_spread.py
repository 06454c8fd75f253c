"""Close enough: together where possible, else on no more nodes than were said to be bearable."""

from __future__ import annotations

from dataclasses import dataclass, field

from trainmaster.core.occupancy import Occupancy
from trainmaster.model.job import Demand
from trainmaster.placement.gang import Row, Share, in_domains
from trainmaster.placement.placers import Locality, Placer

Limits = tuple[int, ...]
"""For each level above `node`, outermost first: on how many nodes of one domain; 0 = not so far."""


@dataclass(frozen=True, slots=True)
class BoundedSpread(Placer):
    """The innermost level first; there the fewest nodes, if these are few enough."""

    locality: Locality = field(default=Locality.CONSOLIDATED, init=False)
    limits: Limits
    is_strict: bool
    """Whether these are the fewest nodes possible."""

    def _several(
        self, space: Occupancy, row: Row, demand: Demand, count: int, kinds: tuple[int, ...]
    ) -> list[Share] | None:
        for level in range(len(self.limits) - 1, -1, -1):
            limit = self.limits[level]
            if limit:
                found = in_domains(space, row, demand, count, kinds, level, limit)
                if found is not None:
                    return found
        return None
