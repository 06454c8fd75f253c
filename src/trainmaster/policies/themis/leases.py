"""Leases: when each ends, which GPUs return next, and when enough of them are free for a gang."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import NamedTuple

from trainmaster.core.draft import Draft
from trainmaster.core.lifecycle import Phase
from trainmaster.core.state import JobRecord
from trainmaster.mechanisms.preemption_guards import PreemptionGuards
from trainmaster.model.codec import stored_as
from trainmaster.model.plan import FrozenMap
from trainmaster.model.units import ceil_div
from trainmaster.policies.themis.apps import sizes_of

GRID = 5
"""Leases end on multiples of lease / GRID, so that many end at the same time."""


@stored_as("themis.Lease")
class Lease(NamedTuple):
    """What a run has been promised."""

    end_ms: int
    training_ms: int
    """Minimum time in training, so that a restart does not use up the lease; 0 while GPUs are collected."""


Leases = FrozenMap[str, Lease]
NO_LEASES: Leases = FrozenMap()


@dataclass(frozen=True, slots=True)
class LeaseTerms:
    """Length of a lease, and how long a run is protected."""

    length_ms: int
    guards: PreemptionGuards

    @property
    def grid_ms(self) -> int:
        return max(1, self.length_ms // GRID)

    @property
    def worth_ms(self) -> int:
        """A run that would end sooner than this is not worth starting."""
        return max(2 * self.grid_ms, self.guards.min_run_ms)

    def lease(self, now: int, collected_at: int | None = None) -> Lease:
        """A full lease, or one that ends when GPUs have to be free for a gang, if that is sooner."""
        end = self._on_grid(now + self.length_ms)
        is_short = collected_at is not None and collected_at < end
        return Lease(collected_at, 0) if collected_at and is_short else Lease(end, self.length_ms)

    def _on_grid(self, time: int) -> int:
        return ceil_div(time, self.grid_ms) * self.grid_ms

    def end_of(self, record: JobRecord, leases: Leases) -> int | None:
        """When its GPUs return to the pool, once it trains."""
        since = record.run_since_ms
        if record.phase is not Phase.RUNNING or since is None:
            return None
        return self._ending(record, leases, since)

    def expected_end_of(self, record: JobRecord, leases: Leases, now: int) -> int:
        """The same for a run that may not train yet: as if it began now, and not at once."""
        end = self.end_of(record, leases)
        if end is not None and end > now:
            return end
        return max(self._ending(record, leases, now), now + self.grid_ms)

    def _ending(self, record: JobRecord, leases: Leases, since: int) -> int:
        end, training = leases.get(record.id, Lease(0, self.length_ms))
        if training:
            end = max(end, self._on_grid(since + training))
        return max(end, since + self.guards.least_run_ms(record.switch_ms))


class LeaseEnds:
    """Lease ends, soonest first; a cache in which the last entry of each job counts."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, JobRecord]] = []
        self._end: dict[int, int] = {}

    def put(self, record: JobRecord, end: int | None) -> None:
        """Set the end of a job's lease; None: it has none."""
        if end is None:
            self._end.pop(record.seq, None)
        elif self._end.get(record.seq) != end:
            self._end[record.seq] = end
            heappush(self._heap, (end, record.seq, record))

    def due(self, now: int) -> list[JobRecord]:
        """Take out the jobs whose lease is over, in order of submission."""
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


def collection_time(
    wanting: JobRecord, draft: Draft, held: Iterable[tuple[int, JobRecord]]
) -> int | None:
    """When GPUs for this job could be in one pool: the last lease end that it takes.

    None where enough are free in the draft, or never will be; `held` are the other runs and their ends.
    """
    need, space, kinds = sizes_of(wanting)[0], draft.space, draft.view.topology.type_of_gpu
    found = sum(space.free_gpus[kind] for kind in space.kinds_for(wanting.demand))
    if found >= need:
        return None
    allows = wanting.demand.allows
    for end, run in sorted(held, key=lambda pair: (pair[0], pair[1].seq)):
        if run.placement is not None:
            found += sum(allows(kinds[piece.gpu].name) for piece in run.placement.slices)
        if found >= need:
            return end
    return None
