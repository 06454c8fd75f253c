"""From numbers of workers to GPUs, by Optimus' placement rule.

Runs that lose workers keep those on the nodes where they have most. Newcomers are placed by ascending
number of workers, evenly over the fewest and emptiest nodes; by arrival where one of them would find no
place. Runs that gain workers take idle GPUs of
their own nodes, then of the emptiest; GPUs that others are still leaving are owed to them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from trainmaster.core.draft import Draft
from trainmaster.core.state import JobRecord
from trainmaster.mechanisms.malleable import resized
from trainmaster.model.placement import Placement, Slice
from trainmaster.model.plan import FrozenMap
from trainmaster.placement.gang import bits
from trainmaster.placement.placers import RELAXING
from trainmaster.policies.optimus.even_spread import place_evenly

Targets = Mapping[JobRecord, int]
"""Workers that each job is to have; none: it is suspended."""
NOBODY: FrozenMap[JobRecord, int] = FrozenMap()


class Staffing:
    """Turns targets into decisions of one draft."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.space = draft.space
        self._freed: set[int] = set()
        """GPUs that this draft takes from somebody: not there yet for those who grow."""
        self.unplaced: list[JobRecord] = []
        self.owed: dict[str, int] = {}
        """By job: workers it is to have as soon as others have left."""

    def carry_out(self, targets: Targets, movers: Targets = NOBODY) -> None:
        """Movers, whose target is none, go on elsewhere if they can."""
        by_size = sorted(targets.items(), key=lambda pair: (pair[1], pair[0].seq))
        changes = [(each, count - _held(each), count) for each, count in by_size]
        for record, _, count in changes:
            if not count and record.placement is not None:
                self.draft.suspend(record)
                self._freed.update(record.placement.gpus())
        if sum(max(0, change) for _, change, _ in changes) > self.space.total_free():
            for record, change, count in changes:
                if change < 0 < count:
                    self._shrink(record, count)
        newcomers = [(each, count) for each, count in by_size if each.placement is None and count]
        mark = self.draft.checkpoint()
        self.unplaced = self._unplaced(newcomers)
        if self.unplaced:  # nobody goes before an earlier job that then finds no place
            self.draft.roll_back(mark)
            self.unplaced = self._unplaced(sorted(newcomers, key=lambda pair: pair[0].seq))
        for record, count in movers.items():
            if not self.draft.keep(record):
                self.start(record, count)
        for record, change, count in changes:
            if record.placement is not None and change > 0:
                self.grow(record, count)

    def _unplaced(self, newcomers: Iterable[tuple[JobRecord, int]]) -> list[JobRecord]:
        """Start them one after another; those who find no place."""
        return [record for record, count in newcomers if not self.start(record, count)]

    def start(self, record: JobRecord, count: int) -> bool:
        """Place a waiting job; the fewest nodes at all where none hold it evenly."""
        demand = record.demand
        if record.is_whole:
            placement = self._thawed(record, count) or self._place(record, count)
            if placement is None:
                shape = demand.sized(count)
                placement = RELAXING.shaped(self.space, demand, shape, record.job.role)
        else:
            placement = RELAXING.place(self.space, record)
        if placement is not None:
            self.draft.start(record, placement)
        return placement is not None

    def _thawed(self, record: JobRecord, count: int) -> Placement | None:
        """Where a frozen run of it lies, if it had as many workers and may go on there."""
        frozen = record.frozen
        if frozen is None or len(frozen.slices) != count:
            return None
        found = RELAXING.place(self.space, record)
        return found if found is frozen else None

    def _place(self, record: JobRecord, count: int) -> Placement | None:
        return place_evenly(self.space, record.demand, count, record.job.role)

    def _shrink(self, record: JobRecord, count: int) -> None:
        held = record.placement
        assert held is not None
        per_node: dict[int, int] = {}
        for piece in held.slices:
            per_node[piece.node] = per_node.get(piece.node, 0) + 1
        together = sorted(held.slices, key=lambda each: (-per_node[each.node], each.gpu))
        kept = tuple(sorted(together[:count], key=lambda each: each.gpu))
        self.draft.resize(record, resized(self.draft.view, held, kept))
        self._freed.update(piece.gpu for piece in together[count:])

    def grow(self, record: JobRecord, count: int) -> int:
        """Up to so many workers, as far as GPUs are idle; how many are owed that others are leaving."""
        held = record.placement
        assert held is not None
        extra: list[Slice] = []
        for piece in self._idle(record, held):
            if len(held.slices) + len(extra) >= count:
                break
            extra.append(piece)
        missing = count - len(held.slices) - len(extra)
        if missing > 0 and self._is_leaving():
            self.owed[record.id] = count
        while extra:
            slices = tuple(sorted((*held.slices, *extra), key=lambda each: each.gpu))
            grown = resized(self.draft.view, held, slices)
            if self._holds(record, held, grown):
                self.draft.resize(record, grown)
                break
            extra.pop()
        return missing if record.id in self.owed else 0

    def _idle(self, record: JobRecord, held: Placement) -> Iterator[Slice]:
        """GPUs that are really free: of its own nodes, then of the emptiest."""
        space, memory = self.space, record.demand.nominal.memory
        releasing, own = self.draft.view.releasing, held.nodes
        kinds = space.kinds_for(record.demand)
        others = (
            node
            for free in range(len(space.by_free[0]) - 1, 0, -1)
            for kind in kinds
            for node in bits(space.by_free[kind][free])
            if node not in own
        )
        for node in (*(node for node in own if node not in space.closed), *others):
            first = space.first_gpu[node]
            gpus = [first + local for local in bits(space.whole[node])]
            idle = [gpu for gpu in gpus if gpu not in releasing and gpu not in self._freed]
            carried = space.room_on(node, len(idle), record.demand)
            yield from (Slice(node, gpu, memory=memory) for gpu in idle[:carried])

    def _is_leaving(self) -> bool:
        """Whether free GPUs are still being left by others."""
        free = self.space.whole
        nodes, first = self.space.node_of, self.space.first_gpu
        leaving = (*self._freed, *self.draft.view.releasing)
        return any(free[nodes[gpu]] >> (gpu - first[nodes[gpu]]) & 1 for gpu in leaving)

    def _holds(self, record: JobRecord, held: Placement, grown: Placement) -> bool:
        """Whether memory, hosts and allowance carry the larger placement."""
        space, demand = self.space, record.demand
        space.unbook(held, demand)
        fits = space.refusal(grown, demand) is None and space.affords(grown.total_share)
        space.book(held, demand)
        return fits


def _held(record: JobRecord) -> int:
    return len(record.placement.slices) if record.placement is not None else 0
