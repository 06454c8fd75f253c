"""From numbers of workers to GPUs, by Optimus' placement rule.

Runs that lose workers keep those on the nodes where they have most. Newcomers are placed by ascending
number of workers, evenly over the fewest and emptiest nodes; by arrival where one of them would find no
place. Runs that gain workers take idle GPUs of their own nodes, then of the emptiest; GPUs that others
are still leaving are given to them later (`owed`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from trainmaster.core.draft import Draft
from trainmaster.core.state import JobRecord
from trainmaster.mechanisms.apply_allocation import Reallocation
from trainmaster.mechanisms.resize import (
    by_gpu,
    free_gpus_of,
    fullest_first,
    resized,
    slices_on,
)
from trainmaster.model.placement import Placement, Slice
from trainmaster.model.plan import FrozenMap
from trainmaster.placement.gang import bits
from trainmaster.placement.placers import RELAXING, elsewhere_first
from trainmaster.policies.optimus.even_spread import place_evenly

Targets = Mapping[JobRecord, int]
"""Workers that each job is to have; none: it is suspended."""
NO_TARGETS: FrozenMap[JobRecord, int] = FrozenMap()


class WorkerPlacement(Reallocation):
    """Turns numbers of workers into decisions of one draft."""

    def __init__(self, draft: Draft) -> None:
        super().__init__(draft)
        self.unplaced: list[JobRecord] = []
        self.owed: dict[str, int] = {}
        """By job: number of workers it gets as soon as others have released GPUs."""

    def carry_out(self, targets: Targets, movers: Targets = NO_TARGETS) -> None:
        """Movers, whose target is none, go on elsewhere if they can."""
        by_size = sorted(targets.items(), key=lambda pair: (pair[1], pair[0].seq))
        changes = [(each, count - _held(each), count) for each, count in by_size]
        for record, _, count in changes:
            if not count and record.placement is not None:
                self.suspend(record)
        if sum(max(0, change) for _, change, _ in changes) > self.space.total_free():
            for record, change, count in changes:
                if change < 0 < count:
                    self._shrink(record, count)
        newcomers = [(each, count) for each, count in by_size if each.placement is None and count]
        mark = self.draft.checkpoint()
        self.unplaced = self._unplaced(newcomers)
        if self.unplaced:  # no job goes before an earlier one that then finds no place
            self.draft.roll_back(mark)
            self.unplaced = self._unplaced(sorted(newcomers, key=lambda pair: pair[0].seq))
        for record, count in movers.items():
            if not self.draft.keep(record):
                self.start(record, count)
        for record, change, count in changes:
            if record.placement is not None and change > 0:
                self.grow(record, count)

    def _unplaced(self, newcomers: Iterable[tuple[JobRecord, int]]) -> list[JobRecord]:
        """Start these jobs one after another; returns the ones that fit nowhere."""
        return [record for record, count in newcomers if not self.start(record, count)]

    def start(self, record: JobRecord, count: int) -> bool:
        """Place a waiting job, with fewer workers if it must avoid GPUs that were counted for it."""
        demand, placement = record.demand, self._placed(record, count)
        while placement is None and demand.forbidden and demand.min_count < count:
            count -= 1
            placement = self._placed(record, count)
        if placement is not None:
            self.draft.start(record, placement)
        return placement is not None

    def _placed(self, record: JobRecord, count: int) -> Placement | None:
        """Where it could start; the fewest nodes at all where none hold it evenly."""
        budget = self.draft.budget
        if not record.is_whole or (record.frozen is not None and record.cannot_save):
            return RELAXING.place(self.space, record, budget)
        found = self._thawed(record, count) or self.place(record, count)
        if found is not None:
            return found
        demand, role = record.demand, record.job.role
        return RELAXING.shaped(self.space, demand, demand.sized(count), role, budget)

    def _thawed(self, record: JobRecord, count: int) -> Placement | None:
        """Where a frozen run of it lies, if it had as many workers and may go on there."""
        frozen = record.frozen
        if frozen is None or len(frozen.slices) != count:
            return None
        found = RELAXING.place(self.space, record, self.draft.budget)
        return found if found is frozen else None

    def place(self, record: JobRecord, count: int) -> Placement | None:
        demand = record.demand
        if not self.draft.affords(demand.sized(count).total_share):
            return None
        role = record.job.role
        return elsewhere_first(
            self.space, demand, lambda: place_evenly(self.space, demand, count, role)
        )

    def _shrink(self, record: JobRecord, count: int) -> None:
        """Keep the nodes where it has most."""
        held = record.placement
        assert held is not None
        kept = by_gpu(fullest_first(held.slices)[:count])
        self.shrink_to(record, resized(self.draft.view, held, kept))

    def grow(self, record: JobRecord, count: int) -> int:
        """Grow to at most `count` workers on idle GPUs; returns how many wait for GPUs being released."""
        held = record.placement
        assert held is not None
        extra = list(islice(self._idle(record, held), max(0, count - len(held.slices))))
        missing = count - len(held.slices) - len(extra)
        if missing > 0 and self._is_leaving():
            self.owed[record.id] = count
        while extra:
            grown = resized(self.draft.view, held, by_gpu((*held.slices, *extra)))
            if self.draft.fits_instead(record, grown):
                self.draft.resize(record, grown)
                break
            extra.pop()
        return missing if record.id in self.owed else 0

    def _idle(self, record: JobRecord, held: Placement) -> Iterator[Slice]:
        """GPUs that are really free: of its own nodes, then of the emptiest."""
        space, own = self.space, held.nodes
        kinds = space.kinds_for(record.demand)
        others = (
            node
            for free in range(len(space.by_free[0]) - 1, 0, -1)
            for kind in kinds
            for node in bits(space.by_free[kind][free])
            if node not in own
        )
        for node in (*(node for node in own if node not in space.closed), *others):
            free = free_gpus_of(space, node, record.demand)
            idle = [gpu for gpu in free if not self.is_being_left(gpu)]
            carried = space.room_on(node, len(idle), record.demand)
            yield from slices_on(node, idle[:carried], record)

    def _is_leaving(self) -> bool:
        """Whether free GPUs are still being left by others."""
        free = self.space.whole
        nodes, first = self.space.node_of, self.space.first_gpu
        leaving = (*self.freed, *self.draft.view.releasing)
        return any(free[nodes[gpu]] >> (gpu - first[nodes[gpu]]) & 1 for gpu in leaving)


def _held(record: JobRecord) -> int:
    return len(record.placement.slices) if record.placement is not None else 0
