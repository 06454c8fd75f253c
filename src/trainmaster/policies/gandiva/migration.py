"""Migrations that repair fragmentation after departures; each is measured, and undone if it slowed the job.

On departures: gangs on more servers than they need move together, jobs on servers of another affinity
move to their own, and small jobs make room for a wide one that waits (Gandiva, OSDI'18, section 3.3).
A pass makes `MOST_MOVES` of the first two kinds at most, and helps one waiting job. A job that has moved
rests for `REST_QUANTA`; one whose move slowed it down goes back and never moves again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice

from trainmaster.core.lifecycle import Phase
from trainmaster.core.state import JobRecord
from trainmaster.model.codec import stored_as
from trainmaster.model.placement import Placement, Sharing
from trainmaster.placement.gang import bits, could_carry, placement_of
from trainmaster.placement.placers import RELAXING
from trainmaster.policies.gandiva.affinity import (
    EVERYWHERE,
    Home,
    free_server,
    home_of,
    least_loaded_free,
)
from trainmaster.policies.gandiva.time_slicing import TimeSlicing, measured_at

MOST_MOVES = 2
"""Moves for the sake of locality in one pass."""
MOST_MOVERS = 4
"""Small jobs that may have to move for a wide one."""
MOST_TRIED = 4
"""Servers, gangs or jobs that are looked at for one purpose in one pass."""
REST_QUANTA = 10
"""Quanta for which a job that has moved is left alone."""
HARM_PERCENT = 99
"""A move did harm if the job is slower than this percentage of its former speed."""


@stored_as("gandiva.Move")
@dataclass(frozen=True, slots=True)
class Move:
    """A move that was made, to be judged by what came of it."""

    at_ms: int
    before_ppm: int
    """Speed before."""
    back: Home
    """Where it came from."""
    is_judged: bool = False
    is_final: bool = False
    """It did harm: never again."""


class Migration:
    """The moves of one pass: as remembered, and as changed."""

    def __init__(
        self, slicing: TimeSlicing, trial_ms: int, rest_ms: int, moves: Mapping[str, Move]
    ) -> None:
        self.slicing = slicing
        self.draft, self.view, self.now = slicing.draft, slicing.view, slicing.now
        self.index = slicing.index
        self.trial_ms = trial_ms
        self.rest_ms = rest_ms
        self.moves = dict(moves)

    # -- judging ---------------------------------------------------------------------------------

    def judge(self) -> None:
        """Evaluate moves by their effect on speed, and forget old ones."""
        for job, move in list(self.moves.items()):
            record = self.view.jobs.get(job)
            is_past = move.is_judged and self.now - move.at_ms >= self.rest_ms
            if record is None or (is_past and not move.is_final):
                del self.moves[job]
            elif not move.is_judged and self._is_measured(record):
                is_harm = record.speed_ppm * 100 < move.before_ppm * HARM_PERCENT
                self.moves[job] = replace(move, is_judged=True, is_final=is_harm)
                if is_harm:
                    self._take_back(record, move.back)

    def _is_measured(self, record: JobRecord) -> bool:
        due = measured_at((record,), self.trial_ms, Sharing.EXCLUSIVE)
        return due is not None and due <= self.now and not self.draft.is_touched(record)

    def _take_back(self, record: JobRecord, back: Home) -> None:
        """Return where it came from, if there is room."""
        self.draft.suspend(record)
        placement = self._on(record, back)
        if placement is None:
            self.draft.restore(record)
        else:
            self._send(record, placement)

    # -- locality --------------------------------------------------------------------------------

    def improve_locality(self) -> None:
        """Bring gangs together, and jobs to servers of their affinity."""
        if not self.draft.space.total_free():
            return
        left = MOST_MOVES
        for record in self._spread_gangs():
            if left and self._consolidate(record):
                left -= 1
        for size, nodes in self.index.servers.off_affinity():
            if left and self._move_to_own_affinity(size, nodes):
                left -= 1

    def _spread_gangs(self) -> list[JobRecord]:
        """Gangs on more nodes than they could be on, in order of submission."""
        space, found = self.draft.space, []
        for _, record in sorted(self.index.gangs.items()):
            home, demand = self.index.home(record), record.demand
            fewest = space.fewest_nodes(space.kinds_for(demand), demand, demand.nominal.count)
            if home is not None and len(home) > fewest and self._may_move(record):
                found.append(record)
        return found[:MOST_TRIED]

    def _consolidate(self, record: JobRecord) -> bool:
        old = record.placement
        assert old is not None
        self.draft.suspend(record)
        new = RELAXING.place(self.draft.space, record, self.draft.budget)
        if new is None or (len(new.nodes), -new.span) >= (len(old.nodes), -old.span):
            self.draft.restore(record)
            return False
        self._record_move(record)
        self._send(record, new)
        return True

    def _move_to_own_affinity(self, size: int, nodes: int) -> bool:
        """Move one job of this size from a server of another affinity to one of its own."""
        own = self.index.servers.with_affinity(size)
        movable = (record for node in bits(nodes) for record in self._movable_on(node))
        tried = (record for record in movable if record.demand.nominal.count == size)
        return any(self._move(record, size, own) for record in islice(tried, MOST_TRIED))

    def _move(self, record: JobRecord, count: int, among: int) -> bool:
        """To a server of these with room, if there is one."""
        node = least_loaded_free(self.draft.space, self.index.servers, record.demand, count, among)
        placement = None if node is None else self._on(record, ((node, count),))
        if placement is None:
            return False
        self._record_move(record)
        self.draft.suspend(record)
        self._send(record, placement)
        return True

    # -- room for wide jobs ----------------------------------------------------------------------

    def make_room(self, *, for_all: bool) -> None:
        """Move small jobs away so that one that waits can start on one server.

        Tried for the first job of its demand, where something may have changed; else only for new jobs.
        """
        space = self.draft.space
        candidates = self.index.line.candidates(self.now)
        for _, group, record in candidates:
            candidates.drop(group)
            demand = record.demand
            count, kinds = demand.nominal.count, space.kinds_for(demand)
            if count < 2 or not record.is_whole or self.draft.is_touched(record):
                continue
            is_new = record.first_start_ms is None and record.waiting_since_ms == self.now
            if not is_new and not for_all:
                continue
            if space.has_too_few(demand) or space.fewest_nodes(kinds, demand, count) > 1:
                continue
            if self._clear_for(record, count):
                return

    def _clear_for(self, record: JobRecord, count: int) -> bool:
        """Try the servers with the most free GPUs first: there the fewest have to move."""
        space = self.draft.space
        tried = (
            (node, count - free)
            for kind in space.kinds_for(record.demand)
            for free in range(min(count, len(space.by_free[kind])) - 1, 0, -1)
            for node in bits(space.by_free[kind][free])
            if could_carry(space, node, record.demand, count)
        )
        return any(self._clear(record, *each) for each in islice(tried, MOST_TRIED))

    def _clear(self, record: JobRecord, node: int, missing: int) -> bool:
        """Move the smallest jobs off this server until `missing` more GPUs are free."""
        movers: list[JobRecord] = []
        count = record.demand.nominal.count
        for mover in self._movable_on(node):
            if missing > 0 and mover.demand.nominal.count < count:
                movers.append(mover)
                missing -= mover.demand.nominal.count
        if missing > 0 or len(movers) > MOST_MOVERS:
            return False
        mark, known = self.draft.checkpoint(), dict(self.moves)
        for mover in movers:
            self.draft.suspend(mover)
        if all(self._leave(mover, node) for mover in movers):
            placement = self._on(record, ((node, count),))
            if placement is not None and self.draft.affords(placement.total_share):
                self._send(record, placement)
                for mover in movers:
                    place = self.draft.placement_of(mover)
                    assert place is not None
                    self.index.assume(mover, home_of(place))
                return True
        self.draft.roll_back(mark)
        self.moves = known
        return False

    def _leave(self, mover: JobRecord, node: int) -> bool:
        """Start a job that has been taken off a server on another, at the speed it has or more."""
        space, demand, servers = self.draft.space, mover.demand, self.index.servers
        count = demand.nominal.count
        other = free_server(space, servers, demand, count, EVERYWHERE & ~(1 << node))
        placement = None if other is None else self._on(mover, ((other, count),))
        if placement is not None:
            self._record_move(mover)
            self.draft.start(mover, placement)
        return placement is not None

    # -- movers ----------------------------------------------------------------------------------

    def _movable_on(self, node: int) -> list[JobRecord]:
        """Jobs that live on this node alone and may move, the smallest first."""
        gangs = self.index.gangs
        here = [each for each in self.view.residents(node) if each.seq not in gangs]
        found = [each for each in here if self._may_move(each)]
        return sorted(found, key=lambda each: (each.demand.nominal.count, each.seq))

    def _may_move(self, record: JobRecord) -> bool:
        placement = record.placement
        return (
            record.phase is Phase.RUNNING
            and placement is not None
            and placement.sharing is Sharing.EXCLUSIVE
            and len(placement.slices) == record.demand.nominal.count
            and record.run_since_ms is not None
            and record.run_since_ms < self.now
            and record.id in self.view.jobs
            and record.id not in self.moves
            and record.id not in self.slicing.fixed
            and not self.draft.is_touched(record)
            and not record.cannot_save
            and self.slicing.guards.may_preempt(record, self.now)
        )

    def _on(self, record: JobRecord, home: Home) -> Placement | None:
        """The job on idle GPUs of these nodes."""
        space, shape = self.draft.space, record.demand.nominal
        if any(space.whole[node].bit_count() < count for node, count in home):
            return None
        placement = placement_of(space, home, shape, record.job.role)
        return None if space.refusal(placement, record.demand) else placement

    def _send(self, record: JobRecord, placement: Placement) -> None:
        self.index.assume(record, home_of(placement))
        self.draft.start(record, placement)

    def _record_move(self, record: JobRecord) -> None:
        assert record.placement is not None
        self.moves[record.id] = Move(self.now, record.speed_ppm, home_of(record.placement))
