"""From numbers to GPUs: carry out a division {job: GPUs} with as few moves as possible.

Runs that get nothing are suspended, others shrink to the nodes where they have most, newcomers start,
and runs grow: first on their own nodes, then on the nearest with idle GPUs. Where more GPUs over more
nodes would be slower than fewer on fewer nodes, fewer are taken, and the division is told, so that it
can give the rest to somebody else. GPUs that a run has yet to leave may be promised to newcomers, but
not given to a run that grows: that growth is owed until they are free.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from trainmaster.core.draft import Draft
from trainmaster.core.lifecycle import Phase
from trainmaster.core.occupancy import Occupancy
from trainmaster.core.state import JobRecord
from trainmaster.model.placement import Placement, Sharing, Slice
from trainmaster.placement.gang import bits
from trainmaster.placement.placers import RELAXING, Locality, Placer, can_thaw

SpeedOf = Callable[[JobRecord, Placement], int]
"""How fast a job would be there, in any unit of its own."""
IsWorth = Callable[[JobRecord, int], bool]
"""Whether a run should be resized to so many GPUs, given what resizing costs."""


def always(record: JobRecord, count: int) -> bool:
    return True


@dataclass(slots=True)
class Shortfall:
    """Where the cluster did not follow the numbers."""

    fewer: dict[int, int] = field(default_factory=dict)
    """By seq: jobs that are better off with so many GPUs than with as many as they were given."""
    unplaced: list[JobRecord] = field(default_factory=list)
    """Waiting jobs that fit nowhere, whatever the numbers say."""
    is_owed: bool = False
    """Whether growth waits for GPUs that others are leaving."""

    def __bool__(self) -> bool:
        return bool(self.fewer or self.unplaced)


class Resident(Placer):
    """Places a running job anew with as many GPUs as it has."""

    def place(self, space: Occupancy, record: JobRecord) -> Placement | None:
        held, demand = record.placement, record.demand
        if held is None or not record.is_whole:
            return Placer.place(self, space, record)
        return self.shaped(space, demand, demand.sized(len(held.slices)), held.role)


RESIDENT = Resident(Locality.RELAXING)


def can_resize(record: JobRecord, space: Occupancy) -> bool:
    """Whether a run may be given another number of GPUs now."""
    placement = record.placement
    return (
        placement is not None
        and record.phase is Phase.RUNNING
        and record.is_whole
        and placement.sharing is Sharing.EXCLUSIVE
        and (not space.closed or space.closed.isdisjoint(placement.nodes))
    )


def carry_out(
    draft: Draft,
    targets: Sequence[tuple[JobRecord, int]],
    speed_of: SpeedOf,
    is_worth: IsWorth = always,
    *,
    shrinks_for_growth: bool = True,
) -> Shortfall:
    """Draft what makes each of these jobs have its number of GPUs; 0 suspends, others stay as they are.

    Waiting jobs are placed and runs grow in the order given. Nobody shrinks or leaves unless somebody
    needs it: a newcomer, or, where that is wanted, a run that grows.
    """
    return _Division(draft, speed_of, is_worth).carry_out(targets, shrinks_for_growth)


class _Division:
    def __init__(self, draft: Draft, speed_of: SpeedOf, is_worth: IsWorth) -> None:
        self.draft = draft
        self.space = draft.space
        self.topology = draft.view.topology
        self.speed_of = speed_of
        self.is_worth = is_worth
        self.short = Shortfall()
        self.freed: set[int] = set()
        """GPUs that this draft takes from somebody: not yet there for those who grow."""

    def carry_out(
        self, targets: Sequence[tuple[JobRecord, int]], shrinks_for_growth: bool
    ) -> Shortfall:
        starts: list[tuple[JobRecord, int]] = []
        leaves: list[tuple[JobRecord, Placement]] = []
        shrinks: list[tuple[JobRecord, int]] = []
        grows: list[tuple[JobRecord, int]] = []
        for record, count in targets:
            held = record.placement
            if held is None:
                if count:
                    starts.append((record, count))
            elif not count:
                leaves.append((record, held))
            elif count < len(held.slices):
                shrinks.append((record, count))
            elif count > len(held.slices):
                grows.append((record, count))
        if starts or shrinks_for_growth:
            for record, held in leaves:
                self._suspend(record, held)
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

    def _suspend(self, record: JobRecord, held: Placement) -> None:
        self.draft.suspend(record)
        self.freed.update(held.gpus())

    def _shrink(self, record: JobRecord, count: int) -> None:
        """Keep the nodes where it has most; even fewer where the last node only slows it down."""
        held = record.placement
        assert held is not None
        kept = self._fastest(record, self._by_nodes(held, most_together(held.slices)[:count]))
        if len(kept.slices) < count:
            self.short.fewer[record.seq] = len(kept.slices)
        self.draft.resize(record, kept)
        staying = set(kept.gpus())
        self.freed.update(gpu for gpu in held.gpus() if gpu not in staying)

    # -- giving --------------------------------------------------------------------------------

    def _start(self, record: JobRecord, count: int) -> None:
        space, demand = self.space, record.demand
        placement = self._thawed(record, count)
        if placement is None and not record.is_whole:
            placement = RELAXING.place(space, record)
        elif placement is None:
            for size in range(count, demand.min_count - 1, -1):
                shape = demand.sized(size)
                placement = RELAXING.shaped(space, demand, shape, record.job.role)
                if placement is not None:
                    break
        if placement is None:
            self.short.unplaced.append(record)
            return
        if demand.is_elastic and record.is_whole and record.frozen is not placement:
            nodes = self._by_nodes(placement, most_together(placement.slices))
            placement = self._fastest(record, nodes)
            if len(placement.slices) < count:
                self.short.fewer[record.seq] = len(placement.slices)
        self.draft.start(record, placement)

    def _thawed(self, record: JobRecord, count: int) -> Placement | None:
        """Where a frozen run of it lies, if it may go on there."""
        frozen, space = record.frozen, self.space
        if frozen is None or len(frozen.slices) > count:
            return None
        is_clear = can_thaw(space, record, frozen)
        return frozen if is_clear and space.affords(frozen.total_share) else None

    def _grow(self, record: JobRecord, count: int) -> None:
        """Take what is near and makes it faster; where others have yet to leave it, that is owed."""
        held = record.placement
        assert held is not None
        room = count - len(held.slices)
        extra = list(self._free(record, held, room))
        wider = self._by_nodes(held, (*held.slices, *extra), beyond=len(held.slices))
        grown = self._fastest(record, [held, *wider])
        took = len(grown.slices) - len(held.slices)
        if took < len(extra) or (len(extra) < room and sum(self.space.free_gpus) > len(extra)):
            self.short.fewer[record.seq] = len(grown.slices)
        if grown is held or not self._holds(record, held, grown):
            return
        if self._is_being_left(grown):
            self.short.is_owed = True
        else:
            self.draft.resize(record, grown)

    def _holds(self, record: JobRecord, held: Placement, grown: Placement) -> bool:
        """Whether memory, hosts and allowance carry the larger placement too."""
        space, demand = self.space, record.demand
        space.unbook(held, demand)
        fits = space.refusal(grown, demand) is None and space.affords(grown.total_share)
        space.book(held, demand)
        if not fits:
            self.short.fewer[record.seq] = len(held.slices)
        return fits

    def _is_being_left(self, placement: Placement) -> bool:
        """Whether somebody has yet to leave one of these GPUs."""
        releasing = self.draft.view.releasing
        return any(gpu in self.freed or gpu in releasing for gpu in placement.gpus())

    def _free(self, record: JobRecord, held: Placement, room: int) -> Iterator[Slice]:
        """Up to `room` GPUs that nobody is entitled to: on its own nodes, then on the nearest."""
        space, memory = self.space, record.demand.nominal.memory
        for node in self._nearest(record, held, room):
            first = space.first_gpu[node]
            gpus = [first + local for local in bits(space.whole[node])]
            carried = space.room_on(node, min(room, len(gpus)), record.demand)
            yield from (Slice(node, gpu, memory=memory) for gpu in gpus[:carried])
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
        """All of these slices; all but those of the last node; those up to the end of the first node.

        Only choices of more than `beyond` slices. What lies between is hardly ever the fastest.
        """
        ends = [i for i in range(1, len(slices)) if slices[i].node != slices[i - 1].node]
        ends = [end for end in ends if end > beyond]
        found = [*ends[:1], *ends[1:][-1:], len(slices)]
        return [self._placed(like, slices[:end]) for end in found if end > beyond]

    def _placed(self, like: Placement, slices: Sequence[Slice]) -> Placement:
        span = self.topology.span_of_gpus([piece.gpu for piece in slices])
        ordered = tuple(sorted(slices, key=lambda piece: piece.gpu))
        return Placement(ordered, span, like.sharing, like.role)


def most_together(slices: Sequence[Slice]) -> list[Slice]:
    """The same slices, those on the nodes that hold most of them first."""
    per_node: dict[int, int] = {}
    for piece in slices:
        per_node[piece.node] = per_node.get(piece.node, 0) + 1
    return sorted(slices, key=lambda piece: (-per_node[piece.node], piece.node, piece.gpu))
