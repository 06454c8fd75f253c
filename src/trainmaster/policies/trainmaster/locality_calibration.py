"""What a gang loses when its GPUs lie apart, or beside another gang: as published, put right by facts.

Published is a table of speeds by span and number of nodes (perf/locality.py). Seen are runs of the same
model, near and apart. Their losses in relation to those predicted correct the table for the model; until
enough of its runs were seen, those of all models do. A model of which a loss was never published, or
which nobody knows, is learned in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainmaster.model.codec import stored_as
from trainmaster.model.job import Demand
from trainmaster.model.topology import Topology
from trainmaster.model.units import NOMINAL
from trainmaster.perf.default_parameters import LOCALITY, NEIGHBOURS
from trainmaster.perf.network_contention import Wire
from trainmaster.perf.perf_model import Speeds, World

FAITH = 1
"""Runs that what is believed without them counts for."""
FORGOTTEN = 64
"""Runs after which older ones count half."""
LEAST = 15_000
"""A model that is said to lose nothing is predicted this much wherever unknown models lose anything."""
FARTHEST = 950_000
"""No loss is predicted beyond this."""


def upgraded(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Older stores call predicted losses foretold."""
    return {("predicted" if name == "foretold" else name): held for name, held in body.items()}


@stored_as("locality.Penalty", upgraded)
@dataclass(frozen=True, slots=True)
class Penalty:
    """What was seen of some runs, summed up; speeds and losses in parts per million."""

    near: int = 0
    """Runs that lay as near as can be ..."""
    near_speed: int = 0
    apart: int = 0
    """... and those that did not."""
    predicted: int = 0
    lost: int = 0

    def with_near(self, speed: int) -> Penalty:
        kept = self._thinned()
        return Penalty(
            kept.near + 1, kept.near_speed + speed, kept.apart, kept.predicted, kept.lost
        )

    def with_apart(self, predicted: int, lost: int) -> Penalty:
        kept = self._thinned()
        return Penalty(
            kept.near, kept.near_speed, kept.apart + 1, kept.predicted + predicted, kept.lost + lost
        )

    def _thinned(self) -> Penalty:
        near, apart = self.near >= FORGOTTEN, self.apart >= FORGOTTEN
        if not near and not apart:
            return self
        return Penalty(
            self.near // 2 if near else self.near,
            self.near_speed // 2 if near else self.near_speed,
            self.apart // 2 if apart else self.apart,
            self.predicted // 2 if apart else self.predicted,
            self.lost // 2 if apart else self.lost,
        )

    def near_ppm(self) -> int:
        """Speed of runs that lie near: nominal until some were seen."""
        return (self.near_speed + FAITH * NOMINAL) // (self.near + FAITH)

    def correction_ppm(self, believed_ppm: int = NOMINAL) -> int:
        """What a predicted loss is to be multiplied with."""
        if not self.predicted:
            return believed_ppm
        seen = self.lost * self.apart * NOMINAL // self.predicted
        return (seen + FAITH * believed_ppm) // (self.apart + FAITH)


class PublishedLosses:
    """Published losses on one topology; caches only pure results."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self._speeds = Speeds(World("published", locality=LOCALITY), topology)

    def loss(self, model: str, demand: Demand, count: int, span: int, nodes: int) -> int:
        """Part of its speed that a gang is said to lose there, at its nearest nothing."""
        unknown = NOMINAL - self._speeds.placed("", demand, count, span, nodes)
        own = NOMINAL - self._speeds.placed(model, demand, count, span, nodes)
        return max(own, LEAST) if unknown or own else 0

    def beside(self, model: str) -> int:
        """Part of its speed that a gang is said to lose to another one on its node."""
        return max(LEAST, NOMINAL - NEIGHBOURS.left(model, Wire.SERVER, 2))

    def fewest_nodes(self, demand: Demand, count: int) -> int:
        return self._speeds.nearest(demand, count)[1]
