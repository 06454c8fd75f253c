"""The locality search of waiting jobs: acquire, time out, release, back off, relax (Philly, ATC'19).

A job that finds no placement at its relaxation level acquires GPUs: it may hold free GPUs of the servers it
has chosen. After a timeout it releases all of them, backs off, and tries again; after some retries it accepts
one more server, and in the end any GPUs (rack_search.py). The timeout runs only while locality is the only
obstacle: the queue may use as many GPUs as the job asks for, and as many are free somewhere. The timeout is
paused otherwise. The back-off always runs to its end.

Bounds. Only the first job of each demand searches, at most `SEARCHERS` per queue, because later jobs of that
demand want the same. One job per queue holds GPUs at a time; otherwise gangs that cannot run would hold all
idle GPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from trainmaster.config.options import NoOptions
from trainmaster.core.draft import Draft
from trainmaster.core.lifecycle import WAITING
from trainmaster.core.occupancy import Occupancy
from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.mechanisms.base_policy import BasePolicy
from trainmaster.mechanisms.fair_share.queue_pass import QueuePass
from trainmaster.mechanisms.fair_share.queue_tree import QueueNode
from trainmaster.mechanisms.preemptive_scheduling import evacuate
from trainmaster.model.codec import stored_as
from trainmaster.model.job import Demand
from trainmaster.model.placement import Placement, Slice
from trainmaster.model.plan import FrozenMap, Plan, Rank
from trainmaster.model.units import WHOLE
from trainmaster.placement.gang import fewest_nodes, placement_of, slices_of
from trainmaster.placement.placers import RELAXING, Placer, elsewhere_first, has_memory
from trainmaster.policies.philly.rack_search import (
    NO_PLACEMENT,
    RelaxationLevelsCache,
    rack_placer,
    servers_to_acquire,
)

SEARCHERS = 8
"""Jobs of a queue that search at a time."""


@dataclass(frozen=True, slots=True)
class SearchTerms:
    """Timeout and back-off of a search, in ms, and the retries after which locality is relaxed."""

    acquire_ms: int
    backoff_ms: int
    relax_after: int


@stored_as("philly.Search")
@dataclass(frozen=True, slots=True)
class Search:
    """One waiting job's search."""

    left_ms: int
    """Time left to acquire GPUs, when the timeout was last paused."""
    step: int = 0
    retries: int = 0
    is_asleep: bool = False
    due_ms: int | None = None
    """When its timeout or back-off ends; None while the timeout is paused."""
    servers: tuple[int, ...] = ()
    """Where it acquires GPUs, if it may hold any."""

    def running(self, now: int) -> Search:
        return self if self.due_ms is not None else replace(self, due_ms=now + self.left_ms)

    def paused(self, now: int) -> Search:
        if self.due_ms is None:
            return self
        return replace(self, left_ms=self.due_ms - now, due_ms=None, servers=())

    def after_timeout(self, terms: SearchTerms, now: int) -> Search:
        """The search after its timeout (it backs off, perhaps at the next level) or after its back-off."""
        if self.is_asleep:
            return replace(self, is_asleep=False, due_ms=None, left_ms=terms.acquire_ms)
        retries = self.retries + 1
        step = self.step + (retries % terms.relax_after == 0)
        return Search(terms.acquire_ms, step, retries, True, now + terms.backoff_ms)


Searches = FrozenMap[str, Search]
"""By job."""


class LocalitySearch(BasePolicy[NoOptions]):
    """The policy inside a queue: first in, first out, each job placed at its relaxation level."""

    name = "locality-search"
    options_type = NoOptions

    def __init__(self, options: NoOptions) -> None:
        super().__init__(options)
        self.levels_cache = RelaxationLevelsCache()
        self.space: Occupancy | None = None
        self.searches: Mapping[str, Search] = {}
        """The searches of the current pass."""
        self.starves: Callable[[JobRecord], bool] = lambda record: False

    def rank(self, view: View, record: JobRecord, now: int) -> Rank:
        return Rank(-record.job.priority, record.job.submit_ms)

    def placer(self, record: JobRecord) -> Placer:
        """The placer of the job's relaxation level; any placement if it is starving."""
        if self.starves(record):
            return RELAXING
        search = self.searches.get(record.id)
        if search is not None and search.is_asleep:
            return NO_PLACEMENT
        assert self.space is not None
        step = 0 if search is None else search.step
        return rack_placer(self.space, self.levels_cache, record.demand, step)

    def plan(self, view: View, memo: None, now: int) -> Plan[None]:
        """Only evacuate draining nodes; jobs are started by the division between queues."""
        if not view.draining:
            return Plan((), memo)
        draft = Draft(view)
        evacuate(view, draft, lambda record: RELAXING)
        return draft.plan(memo)


class SearchPass:
    """All searches in one pass: current ones, the GPUs they hold, and new ones."""

    def __init__(
        self, round_: QueuePass, known: Searches, inner: LocalitySearch, terms: SearchTerms
    ) -> None:
        self._round = round_
        self._draft = round_.draft
        self._space = round_.draft.space
        self._levels_cache = inner.levels_cache
        self._terms = terms
        self._known = known
        self._now = round_.now
        self.searches: dict[str, Search] = {}
        self._of_queue: dict[str, list[JobRecord]] = {}
        self._has_released = False
        self._expire_timeouts()
        inner.searches, inner.space = self.searches, self._space
        inner.starves = lambda record: round_.guards.is_starving(record, round_.now)

    def _expire_timeouts(self) -> None:
        jobs, now = self._draft.view.jobs, self._now
        for job, search in self._known.items():
            record = jobs.get(job)
            if record is None or record.phase not in WAITING:
                continue
            if search.due_ms is not None and search.due_ms <= now:
                search = search.after_timeout(self._terms, now)
                self._draft.release(record)
            self.searches[job] = search
            self._of_queue.setdefault(record.job.queue, []).append(record)

    # -- acquiring -------------------------------------------------------------------------------

    def complete(
        self, leaves: Iterable[QueueNode], may_take: Callable[[QueueNode, int], bool]
    ) -> None:
        """Start jobs whose servers now have enough GPUs, if their queue may use them."""
        if not self._draft.view.reservations:
            return
        for leaf in leaves:
            for record in self._of_queue.get(leaf.name, ()):
                search = self.searches[record.id]
                share = record.demand.nominal.total_share
                if search.servers and not self._draft.is_touched(record) and may_take(leaf, share):
                    self._complete(leaf, record, search)

    def _complete(self, leaf: QueueNode, record: JobRecord, search: Search) -> None:
        demand = record.demand
        if self._in_reach(record, search) < demand.nominal.count:
            return
        mark = self._draft.checkpoint()
        self._draft.release(record)
        placement = elsewhere_first(
            self._space, demand, lambda: self._placed_on(search.servers, record)
        )
        if placement is None:
            self._draft.roll_back(mark)
        else:
            self._round.start(leaf, record, placement)

    def _in_reach(self, record: JobRecord, search: Search) -> int:
        """GPUs of its servers that it holds or that are free."""
        held = self._draft.view.reservations.get(record.id)
        whole = self._space.whole
        free = sum([whole[node].bit_count() for node in search.servers])
        return free + (len(held.slices) if held is not None else 0)

    def _placed_on(self, servers: tuple[int, ...], record: JobRecord) -> Placement | None:
        space, demand = self._space, record.demand
        row = space.by_free[space.node_type[servers[0]]]
        count, mask = demand.nominal.count, sum(1 << node for node in servers)
        shares = fewest_nodes(space, row, demand, count, mask, len(servers))
        if shares is None:
            return None
        role, memory = record.job.role, demand.nominal.memory
        placement = placement_of(space, shares, demand.nominal, role)
        return placement if has_memory(space, placement, memory) else None

    # -- timeouts --------------------------------------------------------------------------------

    def settle(self) -> None:
        """After all jobs that fit have started: run or pause timeouts, and begin searches."""
        leaves = self._round.tree.offers()
        self.complete(leaves, has_headroom)
        for leaf in leaves:
            part = self._round.parts[leaf.name]
            if not part.waiting_count:
                continue
            mine = [each for each in self._of_queue.get(leaf.name, ()) if self._still_waits(each)]
            for record in mine:
                search = self.searches[record.id]
                if not search.is_asleep:
                    self._run_or_pause(record, search, leaf)
            if len(mine) < min(SEARCHERS, part.waiting_count):
                mine += self._begin(leaf, SEARCHERS - len(mine))
            self._hold(mine)
        if self._has_released:
            self._round.lend()

    def drop_started(self) -> None:
        """No job is left waiting."""
        for records in self._of_queue.values():
            for record in records:
                self._still_waits(record)

    def _still_waits(self, record: JobRecord) -> bool:
        if not self._draft.is_touched(record):
            return True
        del self.searches[record.id]
        self._release_gpus(record)
        return False

    def _release_gpus(self, record: JobRecord) -> None:
        if record.id in self._draft.view.reservations and not self._draft.has_released(record):
            self._draft.release(record)
            self._has_released = True

    def _run_or_pause(self, record: JobRecord, search: Search, leaf: QueueNode) -> None:
        if self._lacks_only_locality(record, leaf):
            self.searches[record.id] = search.running(self._now)
        elif search.due_ms is not None:
            self.searches[record.id] = search.paused(self._now)
            self._release_gpus(record)

    def _lacks_only_locality(self, record: JobRecord, leaf: QueueNode) -> bool:
        if not record.is_whole or not has_headroom(leaf, record.demand.nominal.total_share):
            return False
        free = idle_gpus(self._space, record.demand)
        held = self._draft.view.reservations.get(record.id)
        if held is not None and not self._draft.has_released(record):
            free += len(held.slices)
        return free >= record.demand.nominal.count

    def _begin(self, leaf: QueueNode, most: int) -> list[JobRecord]:
        part, begun = self._round.parts[leaf.name], list[JobRecord]()
        smallest = part.smallest_waiting
        if smallest is not None and smallest <= self._space.total_free() * WHOLE:
            for record in self._round.waiting_by_rank(part, lambda: leaf.headroom):
                if record.id not in self.searches and self._lacks_only_locality(record, leaf):
                    search = Search(self._terms.acquire_ms).running(self._now)
                    self.searches[record.id] = search
                    begun.append(record)
                    if len(begun) == most:
                        break
        return begun

    # -- holding ---------------------------------------------------------------------------------

    def _hold(self, mine: list[JobRecord]) -> None:
        """Let the first acquiring job hold the free GPUs of its servers."""
        acquiring = [each for each in mine if self._acquires(each)]
        if not acquiring:
            return
        with_servers = (each for each in acquiring if self.searches[each.id].servers)
        record = next(with_servers, None) or min(acquiring, key=_arrival_order)
        search = self.searches[record.id]
        space, demand = self._space, record.demand
        if not search.servers:
            with space.without(demand.forbidden):
                servers = servers_to_acquire(space, self._levels_cache, demand, search.step)
            search = self.searches[record.id] = replace(search, servers=servers)
        if any(space.whole[node] for node in search.servers):
            self._draft.release(record)
            with space.without(demand.forbidden):
                slices = tuple(self._free_slices_of(search.servers, demand))
            if slices:
                self._draft.reserve(record, slices, search.due_ms)

    def _acquires(self, record: JobRecord) -> bool:
        search = self.searches[record.id]
        return not search.is_asleep and search.due_ms is not None

    def _free_slices_of(self, servers: tuple[int, ...], demand: Demand) -> Iterator[Slice]:
        space, left = self._space, demand.nominal.count
        for node in servers:
            if node not in space.closed:
                free = min(left, space.whole[node].bit_count())
                taken = space.room_on(node, free, demand)
                left -= taken
                yield from slices_of(space, [(node, taken)], 0)

    # -- afterwards ------------------------------------------------------------------------------

    def memo(self) -> Searches:
        """The same value where nothing has changed."""
        return self._known if self.searches == dict(self._known) else FrozenMap(self.searches)

    def wake_at(self) -> int | None:
        times = [each.due_ms for each in self.searches.values() if each.due_ms is not None]
        return min(times, default=None)


def idle_gpus(space: Occupancy, demand: Demand) -> int:
    """Whole free GPUs that it may use, wherever they are."""
    with space.without(demand.forbidden):
        return sum([space.free_gpus[kind] for kind in space.kinds_for(demand)])


def has_headroom(leaf: QueueNode, share: int) -> bool:
    room = leaf.headroom
    return room is None or share <= room


def _arrival_order(record: JobRecord) -> tuple[int, int, int]:
    return (-record.job.priority, record.job.submit_ms, record.seq)
