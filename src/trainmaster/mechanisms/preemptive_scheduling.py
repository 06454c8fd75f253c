"""Run jobs in rank order: place whole gangs, skip jobs that do not fit, evict the worst-ranked runs.

The result is that of sorting all jobs, running or not, by rank and placing one after another, but only
the best waiting and the worst running jobs are looked at. Why it is the same: let w be the best waiting
job. All running jobs with a better rank stay. If w fits into what is free, it runs, and no run is
preempted. Otherwise the worst-ranked runs are evicted until w fits; evicted runs that still fit stay, and
the others wait at their rank. If evicting all runs ranked behind w is not enough, w waits, and so does
every later job with the same demand, because the room left to worse ranks only shrinks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import dataclass

from trainmaster.core.draft import Draft
from trainmaster.core.lifecycle import Phase
from trainmaster.core.rank_index import Candidates, GroupOf, Key, RankIndex, WorstFirst
from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.mechanisms.gang_victims import GpuVictimCount, NodeVictimCount
from trainmaster.mechanisms.type_choice import PlacerOf, TypeChoice
from trainmaster.model.placement import Placement
from trainmaster.model.units import WHOLE
from trainmaster.placement.placers import Placer

Victims = list[tuple[Key, JobRecord]]
"""Running jobs that must go, worst rank first."""


@dataclass(slots=True)
class FailedPlacement:
    """The best-ranked job of a group, when it did not fit. Only nodes changed since then can make it fit."""

    key: Key
    untried: set[int]


@dataclass(slots=True)
class PreemptivePass:
    """One pass over the waiting jobs, best rank first."""

    draft: Draft
    ranks: RankIndex
    group: GroupOf
    placer_of: PlacerOf
    now: int
    candidates: Candidates
    view: View
    failed_placements: dict[Hashable, FailedPlacement]
    """A cache by group, so that a job is not tried again on unchanged nodes."""
    touched: set[int]
    residents: dict[int, list[tuple[Key, int, JobRecord]]]
    choice: TypeChoice | None = None
    worst: WorstFirst | None = None

    def schedule(self) -> None:
        draft, candidates, space = self.draft, self.candidates, self.draft.space
        for key, group, record in candidates:
            if draft.is_postponed(record):
                continue
            if draft.is_evicted(record):
                if draft.keep(record):
                    self.worst_runs().put_back(key, record)
                    continue
                if record.phase is Phase.RESIZING:
                    continue  # it can be suspended now, but not moved
            if self._exceeds_budget(key, record):
                candidates.drop(group)
                continue
            placer = self.placer_of(record)
            if placer.insists and self._still_fails(key, group, record):
                candidates.drop(group)
                continue
            placement = placer.place(space, record, draft.budget)
            if placement is not None:
                draft.start(record, placement)
                has_started = True
            else:
                worst = (self.worst or self.worst_runs()).worst
                has_started = (
                    worst is not None and worst > key and self._make_room(key, record, placer)
                )
            if has_started:
                self.failed_placements.pop(group, None)
            elif self.choice is not None and self.choice.has_declined(record):
                continue  # others of its group may take what it does not
            else:
                candidates.drop(group)
                if placer.insists and self._waits_for_changes(record):
                    self.failed_placements[group] = FailedPlacement(key, set())

    def _exceeds_budget(self, key: Key, record: JobRecord) -> bool:
        """Whether the budget forbids it and no run is ranked behind it; a single GPU may be shared."""
        shape = record.demand.nominal
        if shape.count == 1 or self.draft.affords(shape.total_share):
            return False
        worst = self.worst_runs().worst
        return worst is None or worst <= key

    def _waits_for_changes(self, record: JobRecord) -> bool:
        """Whether only changed nodes can make it fit."""
        is_unbounded = self.draft.budget is None
        return is_unbounded and record.placement is None and not self.ranks.ages()

    def _still_fails(self, key: Key, group: Hashable, record: JobRecord) -> bool:
        """Whether it did not fit last time, and no node changed since could help."""
        known = self.failed_placements.get(group)
        if known is None or known.key != key or self.ranks.ages() or not self._is_plain(record):
            return False
        if self.draft.budget is not None:
            return False
        known.untried |= self.touched
        space, need = self.draft.space, record.demand.nominal.count
        sizes = [size for kind in space.kinds_for(record.demand) if (size := space.largest[kind])]
        if not sizes:
            return True
        # The last node of a gang may take what is left; each type of GPU is searched by itself.
        wanted = min(need if need <= size else need % size or size for size in sizes)
        if space.shared_gpus or any(self._could_give(n, wanted, key) for n in known.untried):
            return False
        known.untried.clear()
        return True

    def _could_give(self, node: int, wanted: int, key: Key) -> bool:
        """Whether a node has that many GPUs free or held by jobs ranked behind `key`."""
        free = self.draft.space.whole[node].bit_count()
        if free >= wanted:
            return True
        for theirs, held, record in self._residents_by_rank(node):
            if theirs > key and not self.draft.is_evicted(record):
                free += held
                if free >= wanted:
                    return True
        return False

    def _residents_by_rank(self, node: int) -> list[tuple[Key, int, JobRecord]]:
        """The jobs on a node with their rank keys; looked up once a pass."""
        known = self.residents.get(node)
        if known is None:
            known = self.residents[node] = []
            for record in self.view.residents(node):
                key, placement = self.ranks.key_of(record, self.now), record.placement
                if key is not None and placement is not None:
                    held = sum([piece.node == node for piece in placement.slices])
                    known.append((key, held, record))
        return known

    def worst_runs(self) -> WorstFirst:
        if self.worst is None:
            self.worst = self.ranks.worst_running(self.now)
        return self.worst

    def _make_room(self, key: Key, record: JobRecord, placer: Placer) -> bool:
        """Evict jobs ranked behind `key` so that this one starts, or leave all as it is."""
        space = self.draft.space
        if record.loses_work_elsewhere:
            return self._may_return(key, record) and self._by_trial(key, record, placer)
        if not record.is_whole or space.shared_gpus:
            return self._by_trial(key, record, placer)
        if not placer.insists:
            return self._by_count(key, record, placer)
        if not self._is_plain(record):
            return self._by_trial(key, record, placer)
        victims = self._together(key, record)
        return victims is not None and self._evict(victims, record, placer)

    def _may_return(self, key: Key, record: JobRecord) -> bool:
        """Whether enough GPUs are free, or held by runs behind it, on the only nodes where it can go on.

        False only where that is certain: it saves a trial, which moves hundreds of runs on a large cluster.
        """
        if (
            self.draft.space.shared_gpus
            or not record.is_whole
            or record.id in self.view.reservations
        ):
            return True
        wanted = Counter(piece.node for piece in _home(record).slices)
        return all(self._could_give(node, count, key) for node, count in wanted.items())

    def _is_plain(self, record: JobRecord) -> bool:
        """Whether counting GPUs is enough: nodes of one size, hosts in proportion."""
        space, demand = self.draft.space, record.demand
        is_even = all(space.is_even[kind] for kind in space.kinds_for(demand))
        return is_even and demand.cpus is None and demand.host_memory is None

    # -- enough GPUs anywhere --------------------------------------------------------------------

    def _by_count(self, key: Key, record: JobRecord, placer: Placer) -> bool:
        """Evict until the count is enough; keep runs that still fit beside the new one."""
        space, budget = self.draft.space, self.draft.budget
        kinds = space.kinds_for(record.demand)
        free = sum(space.free_gpus[kind] for kind in kinds)
        if budget is not None:
            free = min(free, budget // WHOLE)
        slack = free - record.demand.nominal.count
        victims: Victims = []
        for worst, victim in self._behind(key):
            victims.append((worst, victim))
            slack += self._yield_of(victim, kinds)
            if slack >= 0:
                break
        if slack < 0:
            self._reprieve(victims)
            return False
        for _, victim in victims:
            self._suspend(victim)
        for worst, victim in reversed(victims):
            size = self._yield_of(victim, kinds)
            if size <= slack and self.draft.keep(victim):
                slack -= size
                self.worst_runs().put_back(worst, victim)
            else:
                self.candidates.put_back(worst, self.group(victim), victim)
        return self._start(record, placer)

    def _yield_of(self, victim: JobRecord, kinds: tuple[int, ...]) -> int:
        """How many usable whole GPUs its eviction frees."""
        space, placement = self.draft.space, victim.placement
        assert placement is not None
        if len(kinds) == len(space.free_gpus) and not (space.closed or space.aside):
            return len(placement.slices)
        return sum(
            space.node_type[piece.node] in kinds and space.is_offered(piece.gpu)
            for piece in placement.slices
        )

    # -- GPUs together ---------------------------------------------------------------------------

    def _together(self, key: Key, record: JobRecord) -> Victims | None:
        """The worst-ranked jobs that clear enough of the fewest nodes, or None."""
        space = self.draft.space
        kinds = space.kinds_for(record.demand)
        largest = max(space.largest[kind] for kind in kinds)
        clearing = NodeVictimCount(space, kinds, record.demand.nominal.count, largest)
        missing = self._unaffordable(record)
        victims: Victims = []
        has_room = False
        for worst, victim in self._behind(key):
            victims.append((worst, victim))
            has_room = clearing.add(victim) or has_room
            missing -= _size(victim)
            if has_room and missing <= 0:
                return self._needed(clearing, victims, record)
        self._reprieve(victims)
        return None

    def _needed(self, clearing: NodeVictimCount, victims: Victims, record: JobRecord) -> Victims:
        """The victims on the nodes that make the room, and others that must go to stay within the budget."""
        needed = [each for each in victims if clearing.is_needed(each[1])]
        others = [each for each in victims if not clearing.is_needed(each[1])]
        missing = self._unaffordable(record) - sum([_size(victim) for _, victim in needed])
        while missing > 0:
            missing -= _size(others[0][1])
            needed.append(others.pop(0))
        self._reprieve(others)
        return needed

    def _unaffordable(self, record: JobRecord) -> int:
        """GPUs that the job needs beyond the budget."""
        budget = self.draft.budget
        return 0 if budget is None else record.demand.nominal.count - budget // WHOLE

    def _evict(self, victims: Victims, record: JobRecord, placer: Placer) -> bool:
        """Suspend the victims, start the job, and keep victims that are not in its way after all."""
        for _, victim in victims:
            self._suspend(victim)
        has_started = self._start(record, placer)
        for worst, victim in reversed(victims):
            if self.draft.keep(victim):
                self.worst_runs().put_back(worst, victim)
            else:
                self.candidates.put_back(worst, self.group(victim), victim)
        return has_started

    def _start(self, record: JobRecord, placer: Placer) -> bool:
        placement = placer.place(self.draft.space, record, self.draft.budget)
        if placement is not None:
            self.draft.start(record, placement)
        return placement is not None

    # -- parts of GPUs ---------------------------------------------------------------------------

    def _by_trial(self, key: Key, record: JobRecord, placer: Placer) -> bool:
        """Find the fewest worst-ranked runs whose eviction makes room; runs not in the way stay.

        A gang is not tried before enough GPUs would be free at all. For one that can go on only on its own
        nodes, only runs on these make room.
        """
        draft, space = self.draft, self.draft.space
        is_gang = record.is_whole and record.demand.nominal.count > 1
        vacating = GpuVictimCount(space, record.demand) if is_gang else None
        is_bound = record.loses_work_elsewhere and draft.budget is None
        nodes = _nodes(_home(record)) if is_bound else None
        victims: Victims = []
        others: Victims = []
        gone = 0
        with draft.trial():
            for worst, victim in self._behind(key):
                if nodes is not None and nodes.isdisjoint(_nodes(_held(victim))):
                    others.append((worst, victim))
                    continue
                victims.append((worst, victim))
                if vacating is not None:
                    vacating.add(victim)
                    if vacating.missing > 0:
                        continue
                for _, each in victims[gone:]:
                    draft.suspend(each)
                gone = len(victims)
                if placer.place(space, record, draft.budget) is not None:
                    break
        self._reprieve(others)
        if vacating is not None and vacating.missing > 0:
            self._reprieve(victims)
            return False
        return self._evict(victims, record, placer)

    # -- victims ---------------------------------------------------------------------------------

    def _behind(self, key: Key) -> Iterator[tuple[Key, JobRecord]]:
        """Running jobs ranked behind a key, worst first, taken out one by one."""
        tail = self.worst_runs()
        while tail.worst is not None and tail.worst > key:
            worst, victim = tail.worst, tail.pop()
            if not self.draft.is_touched(victim):  # it may just have been moved off its node
                yield worst, victim

    def _suspend(self, victim: JobRecord) -> None:
        assert victim.placement is not None
        self.touched.update([piece.node for piece in victim.placement.slices])
        self.draft.suspend(victim)

    def _reprieve(self, victims: Victims) -> None:
        for worst, victim in victims:
            self.worst_runs().put_back(worst, victim)


def _home(record: JobRecord) -> Placement:
    """Where it runs, or where its frozen run is kept."""
    at = record.frozen or record.placement
    assert at is not None
    return at


def _held(victim: JobRecord) -> Placement:
    assert victim.placement is not None
    return victim.placement


def _nodes(placement: Placement) -> set[int]:
    return {piece.node for piece in placement.slices}


def _size(victim: JobRecord) -> int:
    """GPUs that it holds."""
    return len(_held(victim).slices)


def run_in_order(
    view: View,
    draft: Draft,
    ranks: RankIndex,
    now: int,
    group: GroupOf,
    placer_of: PlacerOf,
    failed_placements: dict[Hashable, FailedPlacement],
    choice: TypeChoice | None = None,
) -> None:
    """Fill the draft: the best-ranked jobs that fit together run, the others wait."""
    placer_of = placer_of if choice is None else choice.placers(placer_of)
    if view.draining:
        evacuate(view, draft, placer_of)
    if ranks.has_waiting():
        touched = view.read_dirty_nodes() | draft.vacated_nodes()
        candidates = ranks.candidates(now)
        PreemptivePass(
            *(draft, ranks, group, placer_of, now, candidates, view, failed_placements, touched),
            residents={},
            choice=choice,
        ).schedule()


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
            elsewhere = placer_of(record).place(draft.space, record, draft.budget)
            if elsewhere is None:
                draft.restore(record)
            else:
                draft.start(record, elsewhere)
