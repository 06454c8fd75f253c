"""What gangs lose beside other gangs, as far as runs have shown: a reason to grow apart from them."""

from __future__ import annotations

from dataclasses import dataclass

from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.estimators.throughput_calibration import NOTHING_MEASURED
from trainmaster.mechanisms.speedup_curves import Curves
from trainmaster.model.codec import stored_as
from trainmaster.model.placement import Placement, Sharing
from trainmaster.model.units import NOMINAL

SUPPOSED, SUPPOSED_PPM = 4, 850_000
"""Before any was seen: what a model nobody measured keeps beside one other (Gandiva, OSDI'18), as if
so many had shown it."""
MOST = 64
"""Older ones fade beyond so many."""


@stored_as("interference.Gangs")
@dataclass(frozen=True, slots=True)
class Company:
    """How many gangs on one node were seen beside others, and the sum of what they kept."""

    seen: int = 0
    kept_ppm: int = 0

    @property
    def kept(self) -> float:
        """The part of its speed that a gang keeps beside others."""
        supposed = SUPPOSED * SUPPOSED_PPM + self.kept_ppm
        return supposed / ((SUPPOSED + self.seen) * NOMINAL)

    def saw(self, record: JobRecord, curves: Curves, view: View) -> Company:
        """With this run, if it is a gang on one node beside another gang."""
        placement = record.placement
        if placement is None or not is_gang(placement) or len(placement.nodes) > 1:
            return self
        if record.since_ms is None or placement.sharing is not Sharing.EXCLUSIVE:
            return self
        node = placement.nodes[0]
        if not any(
            other is not record and is_gang(other.placement) for other in view.residents(node)
        ):
            return self
        foretold = curves.speed(record, placement, NOTHING_MEASURED)
        kept = min(NOMINAL, record.speed_ppm * NOMINAL // foretold)
        fades = self.seen >= MOST
        seen, before = (self.seen // 2, self.kept_ppm // 2) if fades else (self.seen, self.kept_ppm)
        return Company(seen + 1, before + kept)


def is_gang(placement: Placement | None) -> bool:
    return placement is not None and len(placement.slices) > 1
