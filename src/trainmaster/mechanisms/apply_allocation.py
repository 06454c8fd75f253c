"""Place an allocation {job: number of GPUs} with as few moves as possible.

Runs that get nothing are suspended, others shrink to the nodes where they have most GPUs, waiting jobs
start, and runs grow: first on their own nodes, then on the nearest with idle GPUs. Where more GPUs over
more nodes would be slower than fewer on fewer nodes, fewer are taken, and the result says so, so that the
rest can be allocated to another job. A waiting job may start on GPUs that a run has yet to leave, but a
run cannot grow onto them: that growth is pending until they are free.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from trainmaster.core.draft import Draft
from trainmaster.core.state import JobRecord
from trainmaster.mechanisms.resize import (
    by_gpu,
    free_gpus_of,
    fullest_first,
    resized,
    slices_on,
)
from trainmaster.model.placement import Placement, Slice
from trainmaster.placement.gang import bits
from trainmaster.placement.placers import RELAXING, can_thaw

SpeedOf = Callable[[JobRecord, Placement], int]
"""How fast a job would be there, in any unit of its own."""
IsWorth = Callable[[JobRecord, int], bool]
"""Whether a run should be resized to this many GPUs, given what resizing costs."""


def always(record: JobRecord, count: int) -> bool:
    return True


@dataclass(slots=True)
class Shortfall:
    """Where the allocation could not be placed."""

    fewer: dict[int, int] = field(default_factory=dict)
    """By seq: the smaller number of GPUs with which a job is at least as fast as with its allocation."""
    unplaced: list[JobRecord] = field(default_factory=list)
    """Waiting jobs that fit nowhere."""
    is_owed: bool = False
    """Whether growth is pending: it waits for GPUs that other runs are leaving."""

    def __bool__(self) -> bool:
        return bool(self.fewer or self.unplaced)


def carry_out(
    draft: Draft,
    targets: Sequence[tuple[JobRecord, int]],
    speed_of: SpeedOf,
    is_worth: IsWorth = always,
    *,
    shrinks_for_growth: bool = True,
    leaving: Iterable[int] = (),
) -> Shortfall:
    """Give each of these jobs its number of GPUs in the draft; 0 suspends it. Other jobs are left alone.

    Waiting jobs are placed and runs grow in the order given. A run shrinks or is suspended only if its GPUs
    are needed by a waiting job or, with `shrinks_for_growth`, by a run that grows. `leaving`: GPUs that the
    draft has taken from runs before.
    """
    division = _Division(draft, speed_of, is_worth)
    division.freed.update(leaving)
    return division.carry_out(targets, shrinks_for_growth)


class Reallocation:
    """Takes GPUs from some runs in a draft, to give them to others."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.space = draft.space
        self.freed: set[int] = set()
        """GPUs that this takes from a run; runs cannot grow onto them yet."""

    def suspend(self, record: JobRecord) -> None:
        assert record.placement is not None
        self.draft.suspend(record)
        self.freed.update(record.placement.gpus())

    def shrink_to(self, record: JobRecord, kept: Placement) -> None:
        assert record.placement is not None
        self.draft.resize(record, kept)
        self.freed.update(set(record.placement.gpus()).difference(kept.gpus()))

    def is_being_left(self, gpu: int) -> bool:
        """Whether a run has yet to leave this GPU."""
        return gpu in self.freed or gpu in self.draft.view.releasing


class _Division(Reallocation):
    def __init__(self, draft: Draft, speed_of: SpeedOf, is_worth: IsWorth) -> None:
        super().__init__(draft)
        self.topology = draft.view.topology
        self.speed_of = speed_of
        self.is_worth = is_worth
        self.short = Shortfall()

    def carry_out(
        self, targets: Sequence[tuple[JobRecord, int]], shrinks_for_growth: bool
    ) -> Shortfall:
        starts: list[tuple[JobRecord, int]] = []
        leaves: list[JobRecord] = []
        shrinks: list[tuple[JobRecord, int]] = []
        grows: list[tuple[JobRecord, int]] = []
        for record, count in targets:
            held = record.placement
            if held is not None and (record.is_protected or (record.cannot_save and count)):
                continue
            if held is None:
                if count:
                    starts.append((record, count))
            elif not count:
                leaves.append(record)
            elif count < len(held.slices):
                shrinks.append((record, count))
            elif count > len(held.slices):
                grows.append((record, count))
        if starts or shrinks_for_growth:
            for record in leaves:
                self.suspend(record)
        grows = [each for each in grows if self._accepts(*each)]
        if self._is_short(starts, grows if shrinks_for_growth else ()):
            for record, count in shrinks:
                self._shrink(record, count)
        for record, count in starts:
            self._start(record, count)
        for record, count in grows:
            self._grow(record, count)
        return self.short

    def _accepts(self, record: JobRecord, count: int) -> bool:
        if self.is_worth(record, count):
            return True
        assert record.placement is not None
        self.short.fewer[record.seq] = len(record.placement.slices)
        return False

    def _is_short(
        self, starts: Iterable[tuple[JobRecord, int]], grows: Iterable[tuple[JobRecord, int]]
    ) -> bool:
        """Whether more GPUs are wanted than are free."""
        wanted = sum(count for _, count in starts)
        for record, count in grows:
            assert record.placement is not None
            wanted += count - len(record.placement.slices)
        return wanted > sum(self.space.free_gpus)

    # -- taking --------------------------------------------------------------------------------

    def _shrink(self, record: JobRecord, count: int) -> None:
        """Keep the nodes where it has most; even fewer where the last node only slows it down."""
        held = record.placement
        assert held is not None
        kept = self._fastest(record, self._by_nodes(held, fullest_first(held.slices)[:count]))
        if len(kept.slices) < count:
            self.short.fewer[record.seq] = len(kept.slices)
        self.shrink_to(record, kept)

    # -- giving --------------------------------------------------------------------------------

    def _start(self, record: JobRecord, count: int) -> None:
        space, demand, budget = self.space, record.demand, self.draft.budget
        placement = self._thawed(record, count)
        if placement is None and record.frozen is not None and record.cannot_save:
            self.short.unplaced.append(record)
            return
        if placement is None and not record.is_whole:
            placement = RELAXING.place(space, record, budget)
        elif placement is None:
            for size in range(count, demand.min_count - 1, -1):
                shape = demand.sized(size)
                placement = RELAXING.shaped(space, demand, shape, record.job.role, budget)
                if placement is not None:
                    break
        if placement is None:
            self.short.unplaced.append(record)
            return
        if demand.is_elastic and record.is_whole and record.frozen is not placement:
            nodes = self._by_nodes(placement, fullest_first(placement.slices))
            placement = self._fastest(record, nodes)
            if len(placement.slices) < count:
                self.short.fewer[record.seq] = len(placement.slices)
        self.draft.start(record, placement)

    def _thawed(self, record: JobRecord, count: int) -> Placement | None:
        """Where a frozen run of it lies, if it may go on there."""
        frozen = record.frozen
        if frozen is None or len(frozen.slices) > count:
            return None
        is_clear = can_thaw(self.space, record, frozen)
        return frozen if is_clear and self.draft.affords(frozen.total_share) else None

    def _grow(self, record: JobRecord, count: int) -> None:
        """Take near GPUs that make it faster; growth onto GPUs that runs have yet to leave is pending."""
        held = record.placement
        assert held is not None
        room = count - len(held.slices)
        extra = list(self._free(record, held, room))
        wider = self._by_nodes(held, (*held.slices, *extra), beyond=len(held.slices))
        grown = self._fastest(record, [held, *wider])
        took = len(grown.slices) - len(held.slices)
        if took < len(extra) or (len(extra) < room and sum(self.space.free_gpus) > len(extra)):
            self.short.fewer[record.seq] = len(grown.slices)
        if grown is held:
            return
        if not self.draft.fits_instead(record, grown):
            self.short.fewer[record.seq] = len(held.slices)
        elif any(map(self.is_being_left, grown.gpus())):
            self.short.is_owed = True
        else:
            self.draft.resize(record, grown)

    def _free(self, record: JobRecord, held: Placement, room: int) -> Iterator[Slice]:
        """Up to `room` GPUs that no job is entitled to: on its own nodes, then on the nearest."""
        for node in self._nearest(record, held, room):
            gpus = free_gpus_of(self.space, node, record.demand)
            carried = self.space.room_on(node, min(room, len(gpus)), record.demand)
            yield from slices_on(node, gpus[:carried], record)
            room -= carried
            if not room:
                return

    def _nearest(self, record: JobRecord, held: Placement, room: int) -> Iterator[int]:
        """Its own nodes, then those with free GPUs of ever wider domains, best fit first."""
        space, topology = self.space, self.topology
        own = held.nodes
        yield from own
        seen = sum(1 << node for node in own)
        kinds = space.kinds_for(record.demand)
        rows = [space.by_free[kind] for kind in kinds]
        domains = topology.nodes[own[0]].domains
        for level in range(topology.node_level - 1, -1, -1):
            within = topology.domain_masks[level][domains[level]] & ~seen
            seen |= within
            sizes = len(rows[0])
            for free in (*range(min(room, sizes), sizes), *range(min(room, sizes) - 1, 0, -1)):
                for row in rows:
                    yield from bits(row[free] & within)

    # -- choosing ------------------------------------------------------------------------------

    def _fastest(self, record: JobRecord, choices: Sequence[Placement]) -> Placement:
        """The fastest; among equals the smallest."""
        low = record.demand.min_count
        fitting = [each for each in choices if len(each.slices) >= low] or choices[-1:]
        if len(fitting) == 1:
            return fitting[0]
        return max(fitting, key=lambda each: (self.speed_of(record, each), -len(each.slices)))

    def _by_nodes(
        self, like: Placement, slices: Sequence[Slice], beyond: int = 0
    ) -> list[Placement]:
        """Placements on all of these slices, on all but the last node's, and on the first node's only.

        Only placements of more than `beyond` slices. The ones in between are hardly ever the fastest.
        """
        ends = [i for i in range(1, len(slices)) if slices[i].node != slices[i - 1].node]
        ends = [end for end in ends if end > beyond]
        found = [*ends[:1], *ends[1:][-1:], len(slices)]
        return [
            resized(self.draft.view, like, by_gpu(slices[:end])) for end in found if end > beyond
        ]
