"""Leases: until when GPUs are lent, who returns them next, and when enough of them come together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import NamedTuple

from trainmaster.core.lifecycle import Phase
from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.model.plan import FrozenMap
from trainmaster.model.topology import Topology
from trainmaster.model.units import ceil_div

GRID = 5
"""Leases end on multiples of a lease / GRID: rounds come together."""


class Lease(NamedTuple):
    """What a run has been promised."""

    end_ms: int
    training_ms: int
    """At least so long in training, so that a restart cannot eat it; 0 while GPUs are collected."""


Leases = FrozenMap[str, Lease]
NO_LEASES: Leases = FrozenMap()


@dataclass(frozen=True, slots=True)
class Terms:
    """How long GPUs are lent, and how long no run is disturbed."""

    length_ms: int
    min_run_ms: int

    @property
    def grid_ms(self) -> int:
        return max(1, self.length_ms // GRID)

    @property
    def worth_ms(self) -> int:
        """A run that would have to leave sooner than this is not worth a start."""
        return max(2 * self.grid_ms, self.min_run_ms)

    def full(self, now: int) -> Lease:
        return Lease(self._on_grid(now + self.length_ms), self.length_ms)

    def _on_grid(self, time: int) -> int:
        return ceil_div(time, self.grid_ms) * self.grid_ms

    def end_of(self, record: JobRecord, leases: Leases) -> int | None:
        """When its GPUs return to the pool, once it trains."""
        since = record.run_since_ms
        if record.phase is not Phase.RUNNING or since is None:
            return None
        return self._ending(record, leases, since)

    def foreseen_end_of(self, record: JobRecord, leases: Leases, now: int) -> int:
        """The same for a run that may not have begun to train: it might at any moment."""
        end = self.end_of(record, leases)
        return self._ending(record, leases, now) if end is None else end

    def _ending(self, record: JobRecord, leases: Leases, since: int) -> int:
        end, training = leases.get(record.id, Lease(0, self.length_ms))
        if training:
            end = max(end, self._on_grid(since + training))
        return max(end, since + self.min_run_ms)


class Ends:
    """When leases run out, soonest first; a cache: each job's last word counts."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, JobRecord]] = []
        self._end: dict[int, int] = {}

    def put(self, record: JobRecord, end: int | None) -> None:
        """This is when, or never: it holds nothing that could run out."""
        if end is None:
            self._end.pop(record.seq, None)
        elif self._end.get(record.seq) != end:
            self._end[record.seq] = end
            heappush(self._heap, (end, record.seq, record))

    def due(self, now: int) -> list[JobRecord]:
        """Take out whose lease is over, in order of submission."""
        found = []
        while self._heap and self._heap[0][0] <= now:
            end, seq, record = heappop(self._heap)
            if self._end.get(seq) == end:
                del self._end[seq]
                found.append(record)
        return sorted(found, key=lambda record: record.seq)

    def next(self) -> int | None:
        while self._heap:
            end, seq, _ = self._heap[0]
            if self._end.get(seq) == end:
                return end
            heappop(self._heap)
        return None


def together_at(
    wanting: JobRecord, need: int, at_hand: int, held: Iterable[tuple[int, JobRecord]], on: Topology
) -> int | None:
    """When so many GPUs that this job can use could be in one pool: the last lease end it takes.

    None where enough are at hand now, or never will be.
    """
    if at_hand >= need:
        return None
    for end, record in sorted(held, key=lambda pair: (pair[0], pair[1].seq)):
        at_hand += usable_by(wanting, record, on)
        if at_hand >= need:
            return end
    return None


def usable_by(wanting: JobRecord, run: JobRecord, on: Topology) -> int:
    """GPUs of a run that another job could use."""
    if run.placement is None:
        return 0
    allows, kinds = wanting.demand.allows, on.type_of_gpu
    return sum(allows(kinds[piece.gpu].name) for piece in run.placement.slices)


def free_for(view: View, wanting: JobRecord) -> int:
    """Whole free GPUs of types that it can use."""
    space = view.occupancy
    return sum(space.free_gpus[kind] for kind in space.kinds_for(wanting.demand))
