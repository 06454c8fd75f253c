"""Who gives GPUs back so that a waiting job can start: runs that lose least by it.

Jobs that wait are asked in rank order. One that finds no room gets it from elastic runs: first of all
what these have beyond their nominal number, then, where that is allowed and pays, what they have beyond
their minimum. A GPU is worth what it adds to the run's speed, divided by what a completion of such a job
is expected to cost: the hazard of completion that goes with it. Where the newcomer fits on one node, one
node is cleared; else the GPUs that are worth least go, wherever they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from trainmaster.core.draft import Draft
from trainmaster.core.occupancy import Occupancy
from trainmaster.core.rank_index import Key, RankIndex
from trainmaster.core.state import JobRecord
from trainmaster.mechanisms.rank_order import PlacerOf
from trainmaster.mechanisms.resize import fullest_first, resized
from trainmaster.mechanisms.speedup_curves import Curve
from trainmaster.model.placement import Placement, Slice
from trainmaster.model.units import WHOLE

Prices = Callable[[JobRecord], int]
"""The service that a completion of the job is expected to cost, in thousandths of a GPU x ms."""


def worth(curve: Curve, nominal: int, low: int, high: int) -> float:
    """What each GPU between these numbers adds, 1 being what each of the nominal ones does on average."""
    return (curve.speeds[high] - curve.speeds[low]) * nominal / (curve.unit * (high - low))


class Giver:
    """A run that can do with fewer GPUs."""

    __slots__ = ("curve", "floor", "key", "nominal", "price", "record", "slices")

    def __init__(
        self, record: JobRecord, curve: Curve, floor: int, price: int, key: Key | None
    ) -> None:
        assert record.placement is not None
        self.record = record
        self.curve = curve
        self.floor = floor
        self.nominal = record.demand.nominal.count
        self.price = price
        self.key = key
        """Its place in line."""
        self.slices = record.placement.slices
        """What it has left."""

    def loss(self, count: int) -> float:
        """What the last of so many GPUs is worth to it."""
        return worth(self.curve, self.nominal, count - 1, count) / self.price

    def without(self, pieces: Iterable[Slice]) -> tuple[Slice, ...]:
        given = set(pieces)
        return tuple(piece for piece in self.slices if piece not in given)


class Wanted(NamedTuple):
    """The job that wants room: its place in line, and what a GPU is worth to it."""

    key: Key
    worth: float


Gift = tuple[Giver, list[Slice]]


@dataclass(slots=True)
class Giving:
    """Making room before a pass, on its draft."""

    draft: Draft
    givers: list[Giver]
    price: Prices
    margin: float
    """A run goes below its nominal number if the newcomer is worth so many times what it loses."""

    def make_room(self, ranks: RankIndex, placer_of: PlacerOf, now: int) -> list[Giver]:
        """Shrink runs for those who wait and find no room, best rank first; who has shrunk."""
        space, candidates = self.draft.space, ranks.candidates(now)
        booked: list[tuple[Placement, JobRecord]] = []
        for key, group, record in candidates:
            placement = placer_of(record).place(space, record)
            if placement is None:
                placement = self._cleared(key, record, placer_of)
            if placement is None:
                candidates.drop(group)
                continue
            space.book(placement, record.demand)
            booked.append((placement, record))
            if not space.total_free() and not any(self._can_give(each) for each in self.givers):
                break
        for placement, record in reversed(booked):
            space.unbook(placement, record.demand)
        return [each for each in self.givers if self.draft.is_placed(each.record)]

    def _can_give(self, giver: Giver) -> bool:
        return len(giver.slices) > giver.floor

    def _cleared(self, key: Key, record: JobRecord, placer_of: PlacerOf) -> Placement | None:
        """Where the job could start if runs gave way, which they then do."""
        if not record.is_whole:
            return None
        gifts = self._gifts(key, record)
        if not gifts:
            return None
        mark = self.draft.checkpoint()
        before = [(giver, giver.slices) for giver, _ in gifts]
        for giver, pieces in gifts:
            self._shrink(giver, giver.without(pieces))
        placement = placer_of(record).place(self.draft.space, record)
        if placement is None:
            self.draft.roll_back(mark)
            for giver, slices in before:
                giver.slices = slices
        return placement

    def _shrink(self, giver: Giver, slices: tuple[Slice, ...]) -> None:
        draft, record = self.draft, giver.record
        assert record.placement is not None
        smaller = resized(draft.view, record.placement, slices)
        (draft.replace if draft.is_placed(record) else draft.resize)(record, smaller)
        giver.slices = slices

    # -- choosing --------------------------------------------------------------------------------

    def _gifts(self, key: Key, record: JobRecord) -> list[Gift]:
        """The GPUs that are worth least and make room for the job; none where there is no way."""
        space, need = self.draft.space, record.demand.nominal.count
        kinds = space.kinds_for(record.demand)
        dear = 0 if space.allowance is None else need - space.allowance // WHOLE
        wanted = Wanted(key, 1 / self.price(record))
        usable = {
            node
            for giver in self.givers
            if self._can_give(giver)
            for node in {piece.node for piece in giver.slices}
            if space.node_type[node] in kinds
        }
        if need <= max(space.largest[kind] for kind in kinds):
            found = [
                gift
                for node in sorted(usable)
                if (gift := self._from({node}, max(dear, need - free_on(space, node)), wanted))
            ]
            return min(found, key=lambda each: each[0])[1] if found else []
        free = sum(space.free_gpus[kind] for kind in kinds)
        everywhere = self._from(usable, max(dear, need - free), wanted)
        return everywhere[1] if everywhere else []

    def _from(
        self, nodes: set[int], missing: int, wanted: Wanted
    ) -> tuple[float, list[Gift]] | None:
        """So many GPUs of these nodes that are worth least, and what they are worth; None: too few."""
        heap: list[tuple[float, int, int]] = []
        offers: list[list[Slice]] = []
        for index, giver in enumerate(self.givers):
            here = fullest_first([piece for piece in giver.slices if piece.node in nodes])
            offers.append(here)
            if here and self._can_give(giver):
                heap.append((giver.loss(len(giver.slices)), index, 0))
        heapify(heap)
        taken = dict[int, int]()
        total = 0.0
        while missing > 0 and heap:
            loss, index, given = heappop(heap)
            giver = self.givers[index]
            count = len(giver.slices) - given
            if not self._may_give(giver, count, loss, wanted):
                continue
            taken[index], total, missing = given + 1, total + loss, missing - 1
            if given + 1 < len(offers[index]) and count - 1 > giver.floor:
                heappush(heap, (giver.loss(count - 1), index, given + 1))
        if missing > 0 or not taken:
            return None
        return total, [(self.givers[index], offers[index][-n:]) for index, n in taken.items()]

    def _may_give(self, giver: Giver, count: int, loss: float, wanted: Wanted) -> bool:
        """What is beyond its number always; the rest where that pays, or where all would have to go."""
        if count > giver.nominal or loss * self.margin <= wanted.worth:
            return True
        return giver.key is not None and giver.key > wanted.key


def free_on(space: Occupancy, node: int) -> int:
    """Whole idle GPUs of a node."""
    return space.whole[node].bit_count()
