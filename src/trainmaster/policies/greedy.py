"""Run jobs in rank order, whole gangs, skipping what does not fit, evicting from the tail.

The result is that of sorting all jobs, running or not, by rank and placing one after another; but
only heads and tails are looked at. Why it is the same: let w be the best waiting job. All running
jobs with a better rank stay. If w fits into what is free, it runs, and nobody is hurt. Else the
worst-ranked running jobs go, just as many as w needs; those of them that still fit stay; the others
wait at their rank. If even all jobs ranked behind w do not make room, w waits, and so does every
later job of its demand: the room left to worse ranks only shrinks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trainmaster.core.draft import Draft
from trainmaster.core.lifecycle import Phase
from trainmaster.core.order import Candidates, GroupOf, Key, Order, Tail
from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.model.placement import Placement, Sharing
from trainmaster.placement.placers import Placer

PlacerOf = Callable[[JobRecord], Placer]


@dataclass(slots=True)
class Pass:
    """One walk down the line."""

    draft: Draft
    order: Order
    group: GroupOf
    placer_of: PlacerOf
    now: int
    candidates: Candidates
    tail: Tail | None = None

    def walk(self) -> None:
        draft, candidates = self.draft, self.candidates
        for key, group, record in candidates:
            if draft.is_evicted(record) and draft.keep(record):
                self.worst_first().give_back(key, record)
                continue
            placer = self.placer_of(record)
            placement = placer.place(draft.space, record)
            if placement is None:
                placement = self._make_room(key, record, placer)
            if placement is None:
                candidates.drop(group)
            else:
                draft.start(record, placement)

    def worst_first(self) -> Tail:
        if self.tail is None:
            self.tail = self.order.tail(self.now)
        return self.tail

    def _make_room(self, key: Key, record: JobRecord, placer: Placer) -> Placement | None:
        worst = self.worst_first().peek()
        if worst is None or worst <= key:
            return None
        whole = record.demand.mode is Sharing.EXCLUSIVE
        if whole and not placer.insists:
            return self._by_count(key, record, placer)
        return self._by_trial(key, record, placer)

    # -- enough GPUs anywhere --------------------------------------------------------------------

    def _by_count(self, key: Key, record: JobRecord, placer: Placer) -> Placement | None:
        """Evict until the count is enough; keep those that still fit beside the newcomer."""
        space = self.draft.space
        kinds = space.kinds_for(record.demand)
        missing = record.demand.nominal.count - sum(space.free_gpus[kind] for kind in kinds)
        victims: list[tuple[Key, JobRecord]] = []
        slack = -missing
        for worst, victim in self._behind(key):
            victims.append((worst, victim))
            slack += self._yield_of(victim, kinds)
            if slack >= 0:
                break
        if slack < 0:
            self._spare(victims)
            return None
        for _, victim in victims:
            self.draft.suspend(victim)
        for worst, victim in reversed(victims):
            size = self._yield_of(victim, kinds)
            if size <= slack and self.draft.keep(victim):
                slack -= size
                self.worst_first().give_back(worst, victim)
            else:
                self._wait_again(worst, victim)
        return placer.place(space, record)

    def _yield_of(self, victim: JobRecord, kinds: tuple[int, ...]) -> int:
        """How many usable whole GPUs its eviction frees."""
        space, placement = self.draft.space, victim.placement
        assert placement is not None
        if placement.sharing is not Sharing.EXCLUSIVE:
            return 0
        if len(kinds) == len(space.free_gpus) and not space.closed:
            return len(placement.slices)
        return sum(
            space.node_type[piece.node] in kinds and piece.node not in space.closed
            for piece in placement.slices
        )

    # -- GPUs together, or parts of GPUs ---------------------------------------------------------

    def _by_trial(self, key: Key, record: JobRecord, placer: Placer) -> Placement | None:
        """Evict one by one until it fits; all whose GPUs it did not take stay."""
        draft, space = self.draft, self.draft.space
        victims: list[tuple[Key, JobRecord]] = []
        placement: Placement | None = None
        hopeful = _Hope(self, record)
        for worst, victim in self._behind(key):
            victims.append((worst, victim))
            draft.suspend(victim)
            if hopeful.after(victim):
                placement = placer.place(space, record)
                if placement is not None:
                    break
        if placement is None:
            for worst, victim in reversed(victims):
                assert draft.keep(victim) or draft.restore(victim)
                self.worst_first().give_back(worst, victim)
            return None
        taken = {piece.gpu for piece in placement.slices}
        space.book(placement, record.demand)
        for worst, victim in reversed(victims):
            assert victim.placement is not None
            mine = victim.placement.slices
            is_clear = placement.sharing is not Sharing.EXCLUSIVE or all(
                piece.gpu not in taken for piece in mine
            )
            if is_clear and draft.keep(victim):
                self.worst_first().give_back(worst, victim)
            else:
                self._wait_again(worst, victim)
        space.unbook(placement, record.demand)
        return placement

    # -- victims ---------------------------------------------------------------------------------

    def _behind(self, key: Key) -> VictimsBehind:
        return VictimsBehind(self.worst_first(), key)

    def _spare(self, victims: list[tuple[Key, JobRecord]]) -> None:
        for worst, victim in victims:
            self.worst_first().give_back(worst, victim)

    def _wait_again(self, key: Key, victim: JobRecord) -> None:
        self.candidates.put_back(key, self.group(victim), victim)


class VictimsBehind:
    """Running jobs ranked behind a key, worst first, taken out of the tail one by one."""

    def __init__(self, tail: Tail, key: Key) -> None:
        self._tail = tail
        self._key = key

    def __iter__(self) -> VictimsBehind:
        return self

    def __next__(self) -> tuple[Key, JobRecord]:
        worst = self._tail.peek()
        if worst is None or worst <= self._key:
            raise StopIteration
        return worst, self._tail.pop()


class _Hope:
    """Whether a placement can have become possible: spares most of the trials."""

    def __init__(self, walk: Pass, record: JobRecord) -> None:
        demand = record.demand
        self._space = walk.draft.space
        self._need = demand.nominal.count
        self._is_whole = demand.mode is Sharing.EXCLUSIVE
        kinds = self._space.kinds_for(demand)
        self._largest = max((self._space.largest[kind] for kind in kinds), default=0)

    def after(self, victim: JobRecord) -> bool:
        placement = victim.placement
        assert placement is not None
        if not self._is_whole:
            return True
        wanted = min(self._need, self._largest)
        whole = self._space.whole
        return any(
            whole[piece.node].bit_count() >= wanted or self._need > self._largest
            for piece in placement.slices
        )


def run_in_order(
    view: View, draft: Draft, order: Order, now: int, group: GroupOf, placer_of: PlacerOf
) -> None:
    """Fill the draft: the best-ranked jobs that fit together run, the others wait."""
    evacuate(view, draft, placer_of)
    candidates = order.candidates(now)
    Pass(draft, order, group, placer_of, now, candidates).walk()


def evacuate(view: View, draft: Draft, placer_of: PlacerOf) -> None:
    """Move runs off draining nodes where there is room elsewhere; the others stay until there is."""
    for node in sorted(view.draining):
        for record in view.running():
            placement = record.placement
            assert placement is not None
            if record.phase is not Phase.RUNNING or draft.is_evicted(record):
                continue
            if all(piece.node != node for piece in placement.slices):
                continue
            draft.suspend(record)
            elsewhere = placer_of(record).place(draft.space, record)
            if elsewhere is None:
                draft.restore(record)
            else:
                draft.start(record, elsewhere)
