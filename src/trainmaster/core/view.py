"""What a policy may look at: read-only, never copied, indexed, with what changed since the last pass.

A policy between queues looks through parts, one view per queue that shows only its own jobs. Changes
are dealt out to the parts once, so that each keeps its own line and a pass costs what changed. Lines
and parts are caches: dropped, they are built again from the state.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Protocol, TypeVar

from trainmaster.core.lifecycle import ENDED, HOLDING, WAITING
from trainmaster.core.occupancy import Occupancy
from trainmaster.core.order import GroupOf, Order, RankOf
from trainmaster.core.state import JobRecord, State
from trainmaster.model.actions import Reserve
from trainmaster.model.job import Run
from trainmaster.model.placement import Placement
from trainmaster.model.plan import Rank
from trainmaster.model.queue import Queue
from trainmaster.model.topology import CPU_TYPE, Topology


class Follower(Protocol):
    """An index over live jobs that keeps up with changes."""

    def follow(self, changed: Iterable[JobRecord]) -> None:
        """These have changed, come or ended."""
        ...


F = TypeVar("F", bound=Follower)


class View:
    """The state through a window; one view lives as long as its controller."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._order = Order()
        self._is_built = False
        self._parts: Parts | None = None
        self._follower: Any = None
        self.expired: list[JobRecord] = []
        """Jobs that the last call of `order` ranked again because their rank had run out."""

    @property
    def topology(self) -> Topology:
        return self._state.topology

    @property
    def occupancy(self) -> Occupancy:
        return self._state.occupancy

    @property
    def jobs(self) -> Mapping[str, JobRecord]:
        return self._state.jobs

    @property
    def ended(self) -> Sequence[JobRecord]:
        """Jobs that have ended since the last pass, in that order."""
        return self._state.ended

    @property
    def queues(self) -> Mapping[str, Queue]:
        return self._state.queues

    @property
    def reservations(self) -> Mapping[str, Reserve]:
        return self._state.reservations

    @property
    def releasing(self) -> Mapping[int, AbstractSet[Run]]:
        """GPUs that runs have been told to leave and have not left yet."""
        return self._state.releasing

    @property
    def draining(self) -> AbstractSet[int]:
        return self._state.draining

    @property
    def saves_on_demand(self) -> bool:
        """Whether a run that is suspended saves first, so that nothing of its work is lost."""
        return self._state.saves_on_demand

    def running(self) -> list[JobRecord]:
        """Jobs that hold GPUs, in order of submission."""
        return [record for record in self.jobs.values() if record.phase in HOLDING]

    def waiting(self) -> list[JobRecord]:
        """Jobs that hold none, in order of submission."""
        return [record for record in self.jobs.values() if record.phase in WAITING]

    def latest_first(self) -> Iterable[JobRecord]:
        """Live jobs, the last submitted first: whoever has come since a pass stands in front."""
        return reversed(self._state.jobs.values())

    def order(self, rank: RankOf, now: int, *, group: GroupOf, with_running: bool) -> Order:
        """All jobs in line: only what changed or ran out since the last pass is ranked again."""
        state, was_built = self._state, self._is_built
        self.expired = self._order.expired(now) if was_built else []
        for record in self.expired:
            self._mark(record)
            state.touch(record)
        if not was_built:
            state.has_news = True
        self._order.refresh(self.take_changed(), rank, group, with_running=with_running)
        return self._order

    def take_changed(self) -> Iterable[JobRecord]:
        """Jobs whose place in line may have changed since this was last asked; at first, all."""
        changed = self._take_changed()
        if not self._is_built:
            self._is_built = True
            return self._all_records()
        return changed

    def _mark(self, record: JobRecord) -> None:
        self._state.changed[record.seq] = record

    def _take_changed(self) -> Iterable[JobRecord]:
        state = self._state
        changed, state.changed = state.changed, {}
        return changed.values()

    def _all_records(self) -> Iterable[JobRecord]:
        return list(self._state.jobs.values())

    def followed(self, make: Callable[[], F]) -> F:
        """An index of the policy's own that is told of every change; dropped with the other caches.

        Such a policy calls this instead of `order`: changes are told to one of them only.
        """
        if self._follower is None:
            self._follower = make()
        follower: F = self._follower
        follower.follow(self.take_changed())
        return follower

    @property
    def stirred(self) -> AbstractSet[str]:
        """Queues of which some job has changed since the last pass: a fact, no cache."""
        return self._state.stirred

    def parts(self) -> Mapping[str, Part]:
        """A view of its own for each queue with live or just ended jobs, for a policy between queues.

        Such a policy calls this instead of `order`: changes are told to one of them only.
        """
        if self._parts is None:
            self._parts = Parts(self)
        return self._parts.by_queue()

    def is_settled(self) -> bool:
        """Whether nobody waits and no node is to be emptied: a pass would change nothing."""
        return self._state.waiting == 0 and not self._state.draining

    def is_stable(self, order: Order, now: int) -> bool:
        """Whether ranks have merely run out, and no waiting job has thereby come before a running one.

        Then the pass would decide what the last one decided.
        """
        state = self._state
        if state.has_news or not state.is_quiet or state.draining or order.ages():
            return False
        best = order.best_waiting(now)
        return best is None or all(
            record.placement is not None and not order.stands_behind(record, best, now)
            for record in self.expired
        )

    def is_idle(self) -> bool:
        """Whether nobody holds GPUs or is about to: nothing will happen by itself."""
        return self._state.waiting == len(self._state.jobs)

    def residents(self, node: int) -> Iterable[JobRecord]:
        """Jobs entitled to GPUs of this node."""
        return self._state.residents[node].values()

    def take_touched(self) -> set[int]:
        """Nodes where room may have come up since this was last asked."""
        touched, self._state.touched = self._state.touched, set()
        return touched

    @property
    def switch_ms(self) -> int:
        """What a change of hands has cost so far on each GPU, on average: leaving and starting."""
        return self._state.switches.mean_ms

    def crowd(self, record: JobRecord) -> int:
        """Job-milliseconds that were lived in all while this job was: its age x jobs beside it."""
        return self._state.crowd - record.crowd_before

    def restate(self, record: JobRecord) -> None:
        """What the rank of this job is made of has changed: the next call of `order` ranks it anew."""
        self._mark(record)
        self._state.touch(record)
        self._state.stirred.add(record.job.queue)
        self._state.has_news = True

    def rerank(self) -> None:
        """What ranks are made of has changed for all: the next call of `order` ranks everybody."""
        if self._parts is not None:
            self._parts.rerank()
            return
        self._order = Order()
        self._is_built = False

    def forget(self) -> None:
        """Drop every cache; the next pass rebuilds them from the state."""
        self._order = Order()
        self._parts = None
        self._follower = None
        self._is_built = False

    def remaining(self, record: JobRecord, now: int) -> int | None:
        """Estimated time to its end at its present speed (nominal while it waits), if anyone knows."""
        if record.estimate is None:
            return None
        return record.finish_at(record.estimate.work, now) - now

    def true_work_left(self, record: JobRecord) -> int:
        """Work that it really still needed at `since_ms`: the simulator's oracle, refused live."""
        if record.oracle is None:
            raise LookupError(f"job {record.id} has no oracle: this policy runs in simulation only")
        return max(0, record.oracle.work - record.work)


Counted = tuple[int, int, bool]
"""What a job counts for in its part: thousandths of a GPU held and wanted, and whether it waits."""


class Part(View):
    """The view of one queue."""

    def __init__(self, state: State, queue: str) -> None:
        super().__init__(state)
        self.queue = queue
        self.held = 0
        """Thousandths of a GPU that its jobs hold."""
        self.wanted = 0
        """Thousandths of a GPU that its jobs would hold if all ran: its demand."""
        self.waiting_count = 0
        self._sizes: dict[int, int] = {}
        """Thousandths of a GPU that waiting jobs want: how many want so much."""
        self._jobs: dict[str, JobRecord] = {}
        self._counted: dict[int, Counted] = {}
        self._changed: dict[int, JobRecord] = {}
        self._ended: list[JobRecord] = []
        self._touched: set[int] = set()
        self.overrule: Callable[[JobRecord, Rank, int], Rank] | None = None
        """What a policy around the one that ranks has to say about a rank."""

    # -- keeping up ------------------------------------------------------------------------------

    def deal(self, record: JobRecord) -> None:
        """Take note that something about this job of ours has changed."""
        self._changed[record.seq] = record
        known = self._counted.pop(record.seq, None)
        if known is not None:
            self._count(known, -1)
        if record.phase in ENDED:
            self._jobs.pop(record.id, None)
            return
        self._jobs[record.id] = record
        counted = self._counted[record.seq] = self._shares(record)
        self._count(counted, 1)

    def _shares(self, record: JobRecord) -> Counted:
        """What the job holds and would hold if it ran, in GPUs: CPU slots are nobody's share."""
        placement, demand = record.placement, record.demand
        held = placement.total_share if placement is not None else 0
        wanted = max(held, demand.nominal.total_share)
        if demand.gpu_type is not None and demand.allows(CPU_TYPE):
            if placement is not None and self._is_on_cpus(placement):
                held = 0
            wanted = 0 if demand.gpu_type == CPU_TYPE else wanted
        return held, wanted, record.phase in WAITING

    def _is_on_cpus(self, placement: Placement) -> bool:
        return self.topology.type_of_gpu[placement.slices[0].gpu].name == CPU_TYPE

    def _count(self, counted: Counted, sign: int) -> None:
        held, wanted, waits = counted
        self.held += sign * held
        self.wanted += sign * wanted
        if waits:
            self.waiting_count += sign
            left = self._sizes.get(wanted, 0) + sign
            if left:
                self._sizes[wanted] = left
            else:
                del self._sizes[wanted]

    def deal_end(self, record: JobRecord) -> None:
        """Take note of a job of ours that has ended since the last pass."""
        self._ended.append(record)

    def clear_news(self) -> None:
        """That was the last pass."""
        if self._ended:
            self._ended = []

    def deal_touched(self, touched: set[int]) -> None:
        """Take note of nodes where room may have come up."""
        self._touched |= touched

    def held_by(self, record: JobRecord) -> int:
        """Thousandths of a GPU that a job of ours holds."""
        return self._counted[record.seq][0]

    @property
    def is_concerned(self) -> bool:
        """Whether it has live jobs, or news of one that has ended."""
        return bool(self._jobs or self._ended)

    @property
    def smallest_waiting(self) -> int | None:
        """Thousandths of a GPU that the least demanding of its waiting jobs wants."""
        return min(self._sizes, default=None)

    # -- what a policy sees ----------------------------------------------------------------------

    @property
    def jobs(self) -> Mapping[str, JobRecord]:
        return self._jobs

    def latest_first(self) -> Iterable[JobRecord]:
        return reversed(self._jobs.values())

    @property
    def ended(self) -> Sequence[JobRecord]:
        return self._ended

    @property
    def reservations(self) -> Mapping[str, Reserve]:
        everybody = self._state.reservations
        return {job: held for job, held in everybody.items() if job in self._jobs}

    def is_settled(self) -> bool:
        return self.waiting_count == 0 and not self._state.draining

    def take_touched(self) -> set[int]:
        touched, self._touched = self._touched, set()
        return touched

    def _all_records(self) -> Iterable[JobRecord]:
        return self._jobs.values()

    def _mark(self, record: JobRecord) -> None:
        self._changed[record.seq] = record

    def _take_changed(self) -> Iterable[JobRecord]:
        changed, self._changed = self._changed, {}
        return changed.values()

    def order(self, rank: RankOf, now: int, *, group: GroupOf, with_running: bool) -> Order:
        """The line of this queue; runs stand in it too, since they may be asked to leave."""
        overrule = self.overrule
        if overrule is not None:
            inner = rank

            def rank(record: JobRecord) -> Rank:
                return overrule(record, inner(record), now)

        return super().order(rank, now, group=group, with_running=True)

    def is_stable(self, order: Order, now: int) -> bool:
        """Never taken for granted: what the queue may use can have changed."""
        return False


class Parts:
    """All parts of one view, by queue; kept from pass to pass."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._by_queue: dict[str, Part] = {}
        self._shown: dict[str, Part] = {}
        """Those with live or just ended jobs, by name."""
        self._told: list[Part] = []
        """Those that have news of ended jobs."""

    def by_queue(self) -> Mapping[str, Part]:
        """Every queue with live or just ended jobs, by name, with all changes dealt out."""
        view = self._view
        stirred = self._told
        for record in view.take_changed():
            part = self._of(record)
            part.deal(record)
            stirred.append(part)
        for part in stirred:
            part.clear_news()
        self._told = []
        for record in view.ended:
            part = self._of(record)
            part.deal_end(record)
            self._told.append(part)
        self._deal_touched(view.take_touched())
        if any(
            part.is_concerned != (part.queue in self._shown) for part in (*stirred, *self._told)
        ):
            parts = self._by_queue
            self._shown = {name: parts[name] for name in sorted(parts) if parts[name].is_concerned}
        return self._shown

    def rerank(self) -> None:
        """Ranks are to be made anew in every part."""
        for part in self._by_queue.values():
            part.rerank()

    def _of(self, record: JobRecord) -> Part:
        queue = record.job.queue
        part = self._by_queue.get(queue)
        if part is None:
            part = self._by_queue[queue] = Part(self._view._state, queue)
        return part

    def _deal_touched(self, touched: set[int]) -> None:
        """Where nobody waits, nobody has been told before that there is no room."""
        if touched:
            for part in self._shown.values():
                if part.waiting_count:
                    part.deal_touched(touched)


def by_demand(record: JobRecord) -> Hashable:
    """The usual grouping: jobs of equal demand."""
    return record.group
