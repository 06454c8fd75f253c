"""Defragmentation by migration: small runs make room for a waiting gang, and spread gangs are consolidated.

Before jobs are started, `make_room` helps the best-ranked gangs that find no placement although enough GPUs
are free: it migrates smaller runs off one node. A migration costs one suspend and start; a preemption costs
that plus waiting time. After jobs are started, `consolidate` migrates spread gangs to closer GPUs, if that
saves more of their remaining time than the migration costs. A run that has just started or moved is left
alone, so that it does not move back and forth, and a pass makes only a few moves.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainmaster.core.lifecycle import Phase
from trainmaster.core.rank_index import RankIndex
from trainmaster.core.state import JobRecord
from trainmaster.model.placement import Placement, Sharing
from trainmaster.model.units import NOMINAL
from trainmaster.placement.gang import bits, could_carry
from trainmaster.placement.placers import RELAXING
from trainmaster.policies.trainmaster.delay_scheduling import DelayScheduling
from trainmaster.policies.trainmaster.scheduling_pass import Pass

MIN_SAVING_FACTOR = 2
"""A move must save this many times the cost of a preemption, and a run stays that long before it moves."""
LEAST_GAIN = 20_000
"""A gang is not moved for a smaller gain in speed, in parts per million."""
MOST_MOVES = 2
"""Gangs consolidated in one pass."""
MOST_TRIED = 6
"""Gangs tried in one pass."""
MOST_HELPED = 2
"""Waiting gangs helped in one pass."""
MOST_NODES = 4
"""Nodes tried for one waiting gang."""
MOST_MOVERS = 4
"""Runs moved for one waiting gang."""


def make_room_for_gangs(p: Pass) -> None:
    """Migrate small runs to make room for the best-ranked gangs that only find spread GPUs."""
    if p.locality is not None:
        Defragmentation(p, p.locality).make_room()


def consolidate_gangs(p: Pass) -> None:
    """Consolidate spread gangs, in passes in which speeds are observed."""
    if p.locality is not None and p.is_observation_due:
        Defragmentation(p, p.locality).consolidate()


class Defragmentation:
    """The migrations of one pass."""

    def __init__(self, p: Pass, locality: DelayScheduling) -> None:
        self.locality = locality
        self._pass = p
        self.view = p.view
        self.draft = p.draft
        self.now = p.now

    # -- room for gangs ----------------------------------------------------------------------------

    def make_room(self) -> None:
        """Migrate small runs to make room for the best-ranked gangs that only find spread GPUs."""
        space, ranks = self.draft.space, self._pass.ranks
        if space.total_free() < 2 or not ranks.has_waiting():
            return
        candidates = (
            ranks.candidates(self.now)
            if isinstance(ranks, RankIndex)
            else ranks.candidates_within_budgets(self.now)
        )
        for helped, (_, group, record) in enumerate(candidates):
            candidates.drop(group)
            demand = record.demand
            count = demand.nominal.count
            is_gang = count > 1 and record.is_whole
            if helped == MOST_HELPED or not is_gang or space.has_too_few(demand):
                return
            is_small = space.fewest_nodes(space.kinds_for(demand), demand, count) == 1
            placer = self.locality.placer(record)
            if is_small and placer.insists and placer.place(space, record) is None:
                self._clear_for(record, count)

    def _clear_for(self, record: JobRecord, count: int) -> bool:
        """Try the nodes with the most free GPUs first, since the fewest runs have to move there."""
        space, tried = self.draft.space, 0
        for kind in space.kinds_for(record.demand):
            row = space.by_free[kind]
            for free in range(min(count, len(row)) - 1, count // 2 - 1, -1):
                for node in bits(row[free]):
                    if tried == MOST_NODES:
                        return False
                    if could_carry(space, node, record.demand, count):
                        tried += 1
                        if self._clear(node, count, count - free):
                            return True
        return False

    def _clear(self, node: int, count: int, missing: int) -> bool:
        """Migrate runs off this node until `missing` more GPUs are free; or change nothing."""
        movers: list[JobRecord] = []
        for mover in self._movable_on(node):
            size = mover.demand.nominal.count
            if missing > 0 and size < count:
                movers.append(mover)
                missing -= size
        if missing > 0 or len(movers) > MOST_MOVERS:
            return False
        draft = self.draft
        mark = draft.checkpoint()
        for mover in movers:
            draft.suspend(mover)
        with draft.closed(node):
            has_left = all(self._relocate(mover) for mover in movers)
        if not has_left:
            draft.roll_back(mark)
        return has_left

    def _relocate(self, mover: JobRecord) -> bool:
        placement = self.locality.placer(mover).place(self.draft.space, mover)
        if placement is None:
            return False
        self.draft.start(mover, placement)
        return True

    def _movable_on(self, node: int) -> list[JobRecord]:
        """Runs that are only on this node and may move, largest first, so that fewer have to move."""
        found = [
            each
            for each in self.view.residents(node)
            if self._may_move(each)
            and each.placement is not None
            and all(piece.node == node for piece in each.placement.slices)
        ]
        return sorted(found, key=lambda each: (-each.demand.nominal.count, each.seq))

    # -- consolidation -----------------------------------------------------------------------------

    def consolidate(self) -> None:
        """Migrate spread gangs to GPUs closer together, the largest loss first."""
        if self.draft.space.total_free() < 1:
            return
        moved = 0
        for record in sorted(self._spread_gangs(), key=self._waste)[:MOST_TRIED]:
            if moved < MOST_MOVES and self._consolidate(record):
                moved += 1

    def _spread_gangs(self) -> Iterator[JobRecord]:
        losses = self.locality.losses
        for record in losses.training_gangs:
            assert record.placement is not None
            if losses.loss(record, record.placement) >= LEAST_GAIN and self._may_move(record):
                yield record

    def _waste(self, record: JobRecord) -> tuple[int, int]:
        placement = record.placement
        assert placement is not None
        return -self.locality.losses.loss(record, placement) * len(placement.slices), record.seq

    def _consolidate(self, record: JobRecord) -> bool:
        draft, old = self.draft, record.placement
        assert old is not None
        draft.suspend(record)
        new = RELAXING.place(draft.space, record)
        if new is None or not self._pays(record, old, new):
            draft.restore(record)
            return False
        draft.start(record, new)
        return True

    def _pays(self, record: JobRecord, old: Placement, new: Placement) -> bool:
        gain = self.locality.losses.loss(record, old) - self.locality.losses.loss(record, new)
        if gain < LEAST_GAIN:
            return False
        left = self.locality.left_ms(record)
        return left * gain // NOMINAL > MIN_SAVING_FACTOR * self.view.handover_ms

    def _may_move(self, record: JobRecord) -> bool:
        placement, since = record.placement, record.run_since_ms
        rest = max(self.locality.terms.rest_ms, MIN_SAVING_FACTOR * self.view.handover_ms)
        return (
            record.phase is Phase.RUNNING
            and placement is not None
            and placement.sharing is Sharing.EXCLUSIVE
            and len(placement.slices) == record.demand.nominal.count
            and since is not None
            and self.now - since >= rest
            and not self.draft.is_touched(record)
            and not any(piece.node in self.view.draining for piece in placement.slices)
        )
