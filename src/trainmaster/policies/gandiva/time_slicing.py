"""Over-subscribed servers: jobs take turns, whole gangs, round robin (Gandiva, OSDI'18, section 3.1).

A waiting job gets idle GPUs at once, by affinity. Where there are none, it waits for the end of the
quantum: in order of waiting time each job takes its turn on its own server, and the jobs that have run
longest without a break there yield. So of n jobs of one size on m places each runs m of n quanta.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from trainmaster.core.draft import Draft
from trainmaster.core.lifecycle import ALLOCATED, WAITING, Phase
from trainmaster.core.occupancy import Occupancy
from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.mechanisms.preemption_guards import PreemptionGuards
from trainmaster.model.job import Demand
from trainmaster.model.placement import Placement, Sharing
from trainmaster.model.units import NOMINAL
from trainmaster.placement.gang import placement_of
from trainmaster.placement.placers import RELAXING, can_thaw
from trainmaster.policies.gandiva.affinity import EVERYWHERE, Home, LoadHeap, free_server, home_of
from trainmaster.policies.gandiva.server_index import ServerIndex, ran_ms, takes_turns

MOST_TURNS = 250
"""Turns that begin in one pass: thousands at once would hold up the controller."""


@dataclass(slots=True)
class TimeSlicing:
    """One pass over the servers: what is being decided, and what it is decided from."""

    draft: Draft
    index: ServerIndex
    guards: PreemptionGuards
    now: int
    least_turn_ms: int
    """A turn that began so late that it would be shorter lasts until the end of the next quantum."""
    migrates: bool
    """Whether a job that has run may go on on another server."""
    homes: dict[str, Home] = field(default_factory=dict)
    """Where jobs that are suspended in this pass ran."""
    fixed: set[str] = field(default_factory=set)
    """Jobs that are being measured: they stay as they are."""
    partner: Callable[[JobRecord], JobRecord | None] = lambda record: None
    """The job that shares GPUs with this one whenever both run."""
    start_pair: Callable[[JobRecord, JobRecord, Placement], None] = lambda one, other, place: None
    """Start both on the GPUs of a placement, sharing them; the first alone where that cannot be."""
    _choices: dict[int, LoadHeap] = field(default_factory=dict)
    """By demand: servers to join."""
    held: set[int] = field(default_factory=set)
    """Nodes on which a job has to wait for a turn that has just begun."""

    @property
    def view(self) -> View:
        return self.draft.view

    # -- idle GPUs -------------------------------------------------------------------------------

    def fill(self) -> None:
        """Start jobs that fit into idle GPUs, the longest wait first."""
        space, draft = self.draft.space, self.draft
        candidates = self.index.line.candidates(self.now)
        for _, group, record in candidates:
            if not space.shared_gpus and not space.total_free():
                return
            if draft.is_touched(record):
                continue
            placement = self.free_place(record)
            if placement is not None:
                self.start(record, placement)
            elif self.migrates or self.index.home(record) is None:
                candidates.drop(group)

    def free_place(self, record: JobRecord) -> Placement | None:
        """Idle GPUs for this job: at home, else by affinity; a gang wider than any server: anywhere."""
        draft, space = self.draft, self.draft.space
        if not takes_turns(record):
            return RELAXING.place(space, record, draft.budget)
        with space.without(record.demand.forbidden):
            return self._place_by_turns(record)

    def _place_by_turns(self, record: JobRecord) -> Placement | None:
        draft, space, demand = self.draft, self.draft.space, record.demand
        if not draft.affords(demand.nominal.total_share) or space.has_too_few(demand):
            return None
        home = self.index.home(record)
        if home is not None:
            placement = self._at(record, home)
            if placement is not None or not self.migrates:
                return placement
        count = demand.nominal.count
        if space.fewest_nodes(space.kinds_for(demand), demand, count) > 1:
            return RELAXING.place(space, record, draft.budget)
        node = free_server(space, self.index.servers, demand, count)
        return None if node is None else self._at(record, ((node, count),))

    def _at(self, record: JobRecord, home: Home) -> Placement | None:
        """The job on idle GPUs of these nodes; where a frozen run of it lies, if they are idle."""
        space, frozen = self.draft.space, record.frozen
        if not is_open_at(space, home):
            return None
        with space.without(record.demand.forbidden):
            return self._idle_at(record, home, frozen)

    def _idle_at(self, record: JobRecord, home: Home, frozen: Placement | None) -> Placement | None:
        space = self.draft.space
        if frozen is not None and home_of(frozen) == home and can_thaw(space, record, frozen):
            return frozen
        if any(space.whole[node].bit_count() < count for node, count in home):
            return None
        shape, role = record.demand.nominal, record.job.role
        placement = placement_of(space, home, shape, role)
        return None if space.refusal(placement, record.demand) else placement

    def start(self, record: JobRecord, placement: Placement) -> None:
        """Start a job, beside the one that it shares its GPUs with if that one waits too."""
        self.index.assume(record, home_of(placement))
        other = self.partner(record)
        is_waiting = other is not None and other.phase in WAITING
        if other is None or not is_waiting or self.draft.is_touched(other):
            self.draft.start(record, placement)
        else:
            self.start_pair(record, other, placement)

    # -- turns -----------------------------------------------------------------------------------

    def rotate(self, ended_ms: int) -> bool:
        """Give the jobs that waited when the quantum ended their turn.

        False where `MOST_TURNS` were not enough for all: the others have theirs in the next pass.
        """
        turns, candidates = 0, self.index.line.candidates(self.now)
        for _, group, record in candidates:
            if not takes_turns(record) or self.draft.is_touched(record):
                continue
            if _has_just_yielded(record, ended_ms):
                continue
            home = self.turn_home(record, is_starving=False)
            if home is not None and self._take_turn(record, home):
                turns += 1
                if turns == MOST_TURNS:
                    return False
            elif self.index.home(record) is None:
                candidates.drop(group)
        return True

    def has_served_everyone(self) -> bool:
        """Whether every waiting job got something in this pass."""
        waiting = self.index.line.candidates(self.now)
        return all(self.draft.is_touched(record) for _, _, record in waiting)

    def awaits_turn(self) -> bool:
        """Whether a job that got nothing in this pass has a server to take turns on."""
        self._choices.clear()
        candidates = self.index.line.candidates(self.now)
        for _, group, record in candidates:
            if self.draft.is_touched(record) or not takes_turns(record):
                continue
            if self.turn_home(record, is_starving=False) is not None:
                return True
            if self.index.home(record) is None:
                candidates.drop(group)
        return False

    def next_yield(self) -> int | None:
        """When a run will have had its turn on a server where another job waits; None: not known."""
        index, load = self.index, self.index.servers.load
        crowded = {node for node in range(len(self.view.topology.nodes)) if load(node) > NOMINAL}
        for head in index.line.heads():
            if takes_turns(head) and index.home(head) is None:
                home = self.turn_home(head, is_starving=False)
                crowded.update(node for node, _ in home or ())
        ends = [
            max(each.run_since_ms + self.least_turn_ms, self.guards.young_until(each) or 0)
            for node in crowded
            for each in self.view.residents(node)
            if each.run_since_ms is not None
            and takes_turns(each)
            and not self.draft.is_evicted(each)
        ]
        return min(ends, default=None)

    def turn_home(self, record: JobRecord, *, is_starving: bool) -> Home | None:
        """Its own servers; for one that has none, the least loaded of its affinity, or it queues.

        One that starves is content with any server.
        """
        space, index, demand = self.draft.space, self.index, record.demand
        home, count = index.home(record), demand.nominal.count
        if home is not None and is_open_at(space, home):
            return home
        own = index.servers.with_affinity(count)
        if space.fewest_nodes(space.kinds_for(demand), demand, count) > 1:
            gang_home = self._gang_home(count)
            return self._any_servers(demand) if gang_home is None and is_starving else gang_home
        choice = self._choices.get(record.group)
        if choice is None:
            choice = LoadHeap(space, index.servers, demand, count, own)
            self._choices[record.group] = choice
        node = choice.least_loaded()
        if node is None and is_starving:
            node = LoadHeap(space, index.servers, demand, count, EVERYWHERE).least_loaded()
        return None if node is None else ((node, count),)

    def _gang_home(self, count: int) -> Home | None:
        """The servers of a gang of the same size: the least loaded such set."""
        space, servers = self.draft.space, self.index.servers
        found = []
        for seq, gang in self.index.gangs.items():
            home = self.index.home(gang) or ()
            if sum(gpus for _, gpus in home) == count and is_open_at(space, home):
                found.append((max(servers.load(node) for node, _ in home), seq, home))
        return min(found)[2] if found else None

    def _any_servers(self, demand: Demand) -> Home | None:
        """As few servers of one type as hold a gang, whatever runs there: the least loaded."""
        space, load = self.draft.space, self.index.servers.load
        for kind in space.kinds_for(demand):
            sizes = [
                (-space.most_on(node, demand), load(node.index), node.index)
                for node in space.topology.nodes
                if space.node_type[node.index] == kind and node.index not in space.closed
            ]
            home, left = [], demand.nominal.count
            for size, _, node in sorted(sizes):
                count = min(-size, left)
                left -= count
                if count:
                    home.append((node, count))
            if not left:
                return tuple(home)
        return None

    def _take_turn(self, record: JobRecord, home: Home) -> bool:
        """Start it at home in place of the jobs that have run longest there."""
        if any(node in self.held for node, _ in home):
            return False
        victims = self.yielding(home, at_once=False)
        return victims is not None and self.replace(victims, record, home)

    def replace(self, victims: list[JobRecord], record: JobRecord, home: Home) -> bool:
        """Start a job at home in place of these; False, and they stay, where it would not fit."""
        for victim in victims:
            self.suspend(victim)
        share = record.demand.nominal.total_share
        placement = self._at(record, home) if self.draft.affords(share) else None
        if placement is None:
            for victim in reversed(victims):
                self.draft.restore(victim)
                self.homes.pop(victim.id, None)
            return False
        self.start(record, placement)
        return True

    def suspend(self, record: JobRecord) -> None:
        """Take a run's GPUs away; it stays at home there."""
        assert record.placement is not None
        self.draft.suspend(record)
        self.homes[record.id] = home_of(record.placement)

    def yielding(self, home: Home, *, at_once: bool) -> list[JobRecord] | None:
        """The runs to suspend so that those GPUs are idle; None where they cannot be.

        At once: also those whose turn has just begun.
        """
        least = 0 if at_once else self.least_turn_ms
        space = self.draft.space
        short = {node: count - space.whole[node].bit_count() for node, count in home}
        chosen: dict[int, JobRecord] = {}
        for node, _ in home:
            for victim in self._longest_run_first(node, least) if short[node] > 0 else ():
                if victim.seq in chosen:
                    continue
                for each in self._sharers(victim, least):
                    chosen[each.seq] = each
                _count(victim, short, -1)
                if short[node] <= 0:
                    break
            if short[node] > 0:
                if not at_once:
                    self._hold(node)
                return None
        for victim in list(chosen.values()):
            assert victim.placement is not None
            if victim.placement.sharing is Sharing.EXCLUSIVE:
                _count(victim, short, 1)
                if all(left <= 0 for left in short.values()):
                    del chosen[victim.seq]
                else:
                    _count(victim, short, -1)
        return list(chosen.values())

    def _sharers(self, victim: JobRecord, least: int) -> list[JobRecord]:
        """The run and those it shares its GPUs with: they yield together."""
        assert victim.placement is not None
        if victim.placement.sharing is Sharing.EXCLUSIVE:
            return [victim]
        gpus = set(victim.placement.gpus())
        beside = [
            each
            for node in victim.placement.nodes
            for each in self.view.residents(node)
            if each.placement is not None and not gpus.isdisjoint(each.placement.gpus())
        ]
        return [
            victim,
            *(each for each in beside if each is not victim and self._may_yield(each, least)),
        ]

    def _longest_run_first(self, node: int, least: int) -> list[JobRecord]:
        """Runs on this node that may have to yield.

        Of runs that began together the one that has run most in all, then the youngest job.
        """
        now = self.now
        residents = [each for each in self.view.residents(node) if self._may_yield(each, least)]
        return sorted(
            residents, key=lambda each: (each.run_since_ms, -ran_ms(each, now), -each.seq)
        )

    def _may_yield(self, record: JobRecord, least_turn_ms: int) -> bool:
        since = record.run_since_ms
        return (
            record.phase is Phase.RUNNING
            and since is not None
            and since + least_turn_ms <= self.now
            and takes_turns(record)
            and record.id in self.view.jobs
            and record.id not in self.fixed
            and not self.draft.is_touched(record)
            and self.guards.may_preempt(record, self.now)
            and not self.guards.is_starving(record, self.now)
        )

    def _hold(self, node: int) -> None:
        """Where turns have just begun, no other job takes one: else a gang might never get its."""
        latest = self.now - self.least_turn_ms
        for each in self.view.residents(node):
            since = each.run_since_ms
            if each.phase in ALLOCATED and (since is None or since > latest):
                self.held.add(node)


def is_open_at(space: Occupancy, home: Home) -> bool:
    """Whether none of these nodes is closed or has too few GPUs that are not set aside."""
    return all(node not in space.closed and count <= space.usable[node] for node, count in home)


def measured_at(
    runs: Iterable[JobRecord | None], trial_ms: int, sharing: Sharing | None = None
) -> int | None:
    """When all these runs will have run in place for `trial_ms`; None if one does not run in this mode."""
    since = 0
    for run in runs:
        if run is None or run.phase is not Phase.RUNNING or run.run_since_ms is None:
            return None
        if sharing is not None and (run.placement is None or run.placement.sharing is not sharing):
            return None
        since = max(since, run.run_since_ms)
    return since + trial_ms


def _has_just_yielded(record: JobRecord, ended_ms: int) -> bool:
    """Whether it has had its turn of the quantum that ended then."""
    return record.phase is Phase.SUSPENDED and record.waiting_since_ms >= ended_ms


def _count(record: JobRecord, short: dict[int, int], sign: int) -> None:
    """What is short on each node when this run's GPUs are given back (-1) or kept after all (1)."""
    assert record.placement is not None
    for node, count in home_of(record.placement):
        if node in short:
            short[node] += sign * count
