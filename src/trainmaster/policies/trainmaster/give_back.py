"""Giving back grown GPUs, so that a waiting job can start: runs that lose least by it give first.

Jobs that wait are looked at in rank order. One that finds no room gets it from elastic runs that have
grown beyond their nominal number. A GPU is worth what it adds to the run's speed, divided by what a
completion of such a job is expected to cost: the hazard of completion that goes with it. Where the
waiting job fits on one node, one node is cleared; else the GPUs that are worth least go, wherever they
are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from trainmaster.core.draft import Draft
from trainmaster.core.occupancy import Occupancy
from trainmaster.core.rank_index import RankIndex
from trainmaster.core.state import JobRecord
from trainmaster.mechanisms.preemptive_scheduling import PlacerOf
from trainmaster.mechanisms.resize import fullest_first, resized
from trainmaster.mechanisms.speedup_curves import Curve
from trainmaster.model.placement import Placement, Slice

if TYPE_CHECKING:
    from trainmaster.policies.trainmaster.queues import QueueRanks


def worth(curve: Curve, nominal: int, low: int, high: int) -> float:
    """What each GPU between these numbers adds, 1 being what each of the nominal ones does on average."""
    return (curve.speeds[high] - curve.speeds[low]) * nominal / (curve.unit * (high - low))


class Giver:
    """A run that has more GPUs than it asked for."""

    __slots__ = ("curve", "nominal", "price", "record", "slices")

    def __init__(self, record: JobRecord, curve: Curve, price: int) -> None:
        assert record.placement is not None
        self.record = record
        self.curve = curve
        self.nominal = record.demand.nominal.count
        self.price = price
        self.slices = record.placement.slices
        """What it has left."""

    def loss(self, count: int) -> float:
        """What the last of so many GPUs is worth to it."""
        return worth(self.curve, self.nominal, count - 1, count) / self.price

    def without(self, pieces: Iterable[Slice]) -> tuple[Slice, ...]:
        given = set(pieces)
        return tuple(piece for piece in self.slices if piece not in given)

    @property
    def has_grown(self) -> bool:
        return len(self.slices) > self.nominal


Gift = tuple[Giver, list[Slice]]


@dataclass(slots=True)
class Giving:
    """Making room before a pass, on its draft."""

    draft: Draft
    givers: list[Giver]

    def make_room(
        self, ranks: RankIndex | QueueRanks, placer_of: PlacerOf, now: int
    ) -> list[Giver]:
        """Shrink runs for those who wait and find no room, best rank first; who has shrunk."""
        space, candidates = self.draft.space, ranks.candidates(now)
        started: list[JobRecord] = []
        for _, group, record in candidates:
            placement = placer_of(record).place(space, record)
            if placement is None:
                placement = self._cleared(record, placer_of)
            if placement is None:
                candidates.drop(group)
                continue
            self.draft.start(record, placement)
            started.append(record)
            if not space.total_free() and not any(each.has_grown for each in self.givers):
                break
        for record in reversed(started):
            self.draft.cancel_start(record)
        return [each for each in self.givers if self.draft.is_placed(each.record)]

    def _cleared(self, record: JobRecord, placer_of: PlacerOf) -> Placement | None:
        """Where the job could start if runs gave way, which they then do."""
        if not record.is_whole:
            return None
        gifts = self._gifts(record)
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

    def _gifts(self, record: JobRecord) -> list[Gift]:
        """The GPUs that are worth least and make room for the job; an empty list where nothing helps."""
        space, need = self.draft.space, record.demand.nominal.count
        kinds = space.kinds_for(record.demand)
        usable = {
            node
            for giver in self.givers
            if giver.has_grown
            for node in {piece.node for piece in giver.slices}
            if space.node_type[node] in kinds
        }
        if need <= max(space.largest[kind] for kind in kinds):
            found = [
                gift
                for node in sorted(usable)
                if (gift := self._from({node}, need - free_on(space, node)))
            ]
            return min(found, key=lambda each: each[0])[1] if found else []
        free = sum(space.free_gpus[kind] for kind in kinds)
        everywhere = self._from(usable, need - free)
        return everywhere[1] if everywhere else []

    def _from(self, nodes: set[int], missing: int) -> tuple[float, list[Gift]] | None:
        """So many GPUs of these nodes that are worth least, and what they are worth; None: too few."""
        heap: list[tuple[float, int, int]] = []
        offers: list[list[Slice]] = []
        for index, giver in enumerate(self.givers):
            here = fullest_first([piece for piece in giver.slices if piece.node in nodes])
            offers.append(here)
            if here and giver.has_grown:
                heap.append((giver.loss(len(giver.slices)), index, 0))
        heapify(heap)
        taken = dict[int, int]()
        total = 0.0
        while missing > 0 and heap:
            loss, index, given = heappop(heap)
            giver = self.givers[index]
            count = len(giver.slices) - given
            taken[index], total, missing = given + 1, total + loss, missing - 1
            if given + 1 < len(offers[index]) and count - 1 > giver.nominal:
                heappush(heap, (giver.loss(count - 1), index, given + 1))
        if missing > 0 or not taken:
            return None
        return total, [(self.givers[index], offers[index][-n:]) for index, n in taken.items()]


def free_on(space: Occupancy, node: int) -> int:
    """Whole idle GPUs of a node."""
    return space.whole[node].bit_count()
