"""The base of policies: options, ranking, preemptive scheduling by rank, and the reason why a job waits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from typing import ClassVar, Generic, cast

from typing_extensions import TypeVar

from trainmaster.core.draft import Draft
from trainmaster.core.host_shortage import host_shortage
from trainmaster.core.last_resort import unsaved_ms
from trainmaster.core.lifecycle import ALLOCATED
from trainmaster.core.occupancy import Occupancy
from trainmaster.core.part_shortage import free_parts, part_shortage
from trainmaster.core.rank_index import RankIndex
from trainmaster.core.state import JobRecord
from trainmaster.core.view import View, by_demand
from trainmaster.mechanisms.preemption_guards import (
    NO_GUARDS,
    SWITCHES_PER_RUN,
    PreemptionGuards,
)
from trainmaster.mechanisms.preemptive_scheduling import FailedPlacement, run_in_order
from trainmaster.mechanisms.type_choice import TypeChoice
from trainmaster.model.job import Demand
from trainmaster.model.packing_score import PackingScore
from trainmaster.model.placement import Role, Sharing
from trainmaster.model.plan import Plan, Rank
from trainmaster.model.reasons import Protection, Reason, Why
from trainmaster.model.units import WHOLE
from trainmaster.placement.placers import RELAXING, Placer

O = TypeVar("O")  # noqa: E741
M = TypeVar("M", default=None)


class BasePolicy(Generic[O, M]):
    """A policy with options O that remembers an M: nothing, unless it names a type.

    Subclasses define `rank`, or override `plan`.
    """

    name: ClassVar[str]
    options_type: ClassVar[type]
    memo_type: ClassVar[type] = type(None)
    """The type of its memo; the first one is made without arguments."""
    needs_oracle: bool = False
    profiles: bool = False
    """Whether it decides by measured speeds of elastic jobs: they are measured before they run."""
    is_moldable: bool = False
    """Whether it may start an elastic job below its nominal size."""
    splits: bool = False
    """Whether it wants to know how each one-GPU job could run in two halves."""
    progress_every_ms: int | None = None
    """How often elastic runs report their progress to it; None = it does not ask."""
    obeys_queues: bool = False
    """Whether guarantees and maxima of queues hold under it."""
    judges_deadlines: bool = False
    """Whether it says of each deadline if it can be kept."""
    preempts: ClassVar[bool] = True
    """Whether it ever suspends a run to make room for another job."""
    allows_overtaking: bool = True
    """Whether a later job may start where an earlier one does not fit."""
    type_choice: TypeChoice | None = None
    """How jobs choose between types of devices in this pass, where a policy around this one decides it."""
    switches_per_run: ClassVar[int] = SWITCHES_PER_RUN
    """How many times the cost of a switch a run lasts before it may be preempted."""

    def __init__(self, options: O) -> None:
        self.options = options
        self.guards = PreemptionGuards.of(options, self.switches_per_run)
        self.failed_placements: dict[Hashable, FailedPlacement] = {}

    def first_memo(self) -> M:
        return cast(M, self.memo_type())

    def forget(self) -> None:
        """Drop every cache; policies that cache more drop that too."""
        self.failed_placements.clear()

    def group(self, record: JobRecord) -> Hashable:
        """Jobs of one group fit or do not fit alike."""
        return by_demand(record)

    def placer(self, record: JobRecord) -> Placer:
        return RELAXING

    def rank(self, view: View, record: JobRecord, now: int) -> Rank:
        raise NotImplementedError

    def ranked_jobs(self, view: View, now: int, *, with_running: bool) -> RankIndex:
        """Every job at its rank."""
        return self.ranked_by(view, lambda record: self.rank(view, record, now), now, with_running)

    def ranked_by(
        self, view: View, rank: Callable[[JobRecord], Rank], now: int, with_running: bool = True
    ) -> RankIndex:
        """Every job at this rank, except jobs that a preemption guard puts first."""

        guards = self.guards

        def guarded(record: JobRecord) -> Rank:
            ranked = rank(record)
            return guards.rank(record, ranked, now) if guards.hold(record.switch_ms) else ranked

        return view.ranked(guarded, now, group=self.group, with_running=with_running)

    def queue_ranking(self, view: View, memo: M, now: int) -> RankIndex | None:
        """All jobs by rank, for a policy that divides between queues; None if jobs are not ranked."""
        if type(self).rank is BasePolicy.rank:
            return None
        return self.ranked_jobs(view, now, with_running=True)

    def plan(self, view: View, memo: M, now: int) -> Plan[M]:
        """Preemptive: the best-ranked jobs that fit run, whatever runs now."""
        if view.has_nothing_to_schedule():
            return Plan((), memo)
        ranks = self.ranked_jobs(view, now, with_running=True)
        draft = Draft(view)
        run_in_order(
            *(view, draft, ranks, now, self.group, self.placer, self.failed_placements),
            choice=self.type_choice,
        )
        return draft.plan(memo, self.wake_at(ranks, draft, now))

    def wake(self, view: View, memo: M, now: int) -> int | None:
        """When the rank of a run that has just started runs out; for most it never does."""
        if view.has_nothing_to_schedule() or not self.guards.hold(view.switch_ms):
            return None
        return self.ranked_jobs(view, now, with_running=True).next_expiry()

    def wake_at(self, ranks: RankIndex, draft: Draft, now: int) -> int | None:
        """When ranks will have changed by themselves."""
        return ranks.next_expiry()

    def explain(self, view: View, memo: M, record: JobRecord, now: int) -> Reason:
        return self.placement_reason(view, record, now)

    def packing_scores(
        self, view: View, memo: M, record: JobRecord, now: int
    ) -> Sequence[PackingScore]:
        return ()

    def placement_reason(self, view: View, record: JobRecord, now: int) -> Reason:
        reason = waiting_reason(view, record, self.placer(record), now, self.guards)
        if self.preempts or reason.why is not Why.NOT_ENOUGH_FREE:
            return reason
        return replace(reason, never_preempts=self.name)


def waiting_reason(
    view: View, record: JobRecord, placer: Placer, now: int, guards: PreemptionGuards = NO_GUARDS
) -> Reason:
    """The first of these that holds.

    Awaiting release, behind others, never, stopped elsewhere, host taken, fragmented, reserved, too few free.
    """
    space, demand = view.occupancy, record.demand
    need = demand.nominal.total_share
    own = view.reservations.get(record.id)
    kept = 0 if own is None else len(own.slices) * WHOLE
    free, block = free_for(space, demand)
    free += kept
    holders = view.between_steps(_holders)
    held_by = tuple(other.id for other in holders)
    if record.placement is not None:
        return Reason(Why.WAITING_FOR_RELEASE, need, free, block, held_by)
    if placer.place(space, record) is not None:
        first = view.first_in_line(record, now)
        if first is record:
            return Reason(Why.NEXT_PASS, need, free, block)
        return Reason(Why.BEHIND_OTHERS, need, free, block, () if first is None else (first.id,))
    total = view.between_steps(_total, space.kinds_for(demand))
    if record.is_whole and total < WHOLE * demand.min_count:
        return Reason(Why.NEVER_FITS, need, free, block, total=total)
    stopped = _stopped_reason(view, record, Reason(Why.STOPPED_ON_NODE, need, free, block))
    if stopped is not None:
        return stopped
    is_guaranteed = record.job.role is Role.GUARANTEED
    part = part_shortage(space, demand) if is_guaranteed else None
    if part is not None and part[0] is not Why.HOST_TAKEN:
        return Reason(part[0], need, free, block, held_by, part=part[1])
    host = host_shortage(view, record) if free >= need else None
    if host is not None:
        users = tuple(each.job for each in host.used)
        return Reason(Why.HOST_TAKEN, need, free, block, users, host=host)
    if part is not None:
        return Reason(Why.HOST_TAKEN, need, free, block, held_by)
    if demand.mode is Sharing.EXCLUSIVE and free >= need:
        return Reason(Why.FRAGMENTED, need, free, block, held_by)
    others = {job: held for job, held in view.reservations.items() if job != record.id}
    reserved = sum(len(held.slices) for held in others.values()) * WHOLE
    if reserved and free + reserved >= need:
        return Reason(Why.RESERVED, need, free, block, tuple(others))
    return Reason(
        *(Why.NOT_ENOUGH_FREE, need, free, block, held_by),
        reserved=reserved,
        reserved_for=tuple(others) if reserved else (),
        protections=_protections(_in_the_way(view, holders, record), guards, now),
        drained=_closed(view, demand, view.draining - view.away),
        set_aside=_set_aside(view, demand),
        away=_closed(view, demand, view.away),
    )


def free_for(space: Occupancy, demand: Demand) -> tuple[int, int]:
    """Free GPUs of types that the job may use, and how many of them are on one node at most.

    For a job that shares them, free parts of GPUs that are shared in its way count as well.
    """
    kinds = space.kinds_for(demand)
    rows = [space.by_free[kind] for kind in kinds]
    block = max((n for masks in rows for n in range(len(masks)) if masks[n]), default=0)
    parts = [] if demand.mode is Sharing.EXCLUSIVE else free_parts(space, demand)
    whole = WHOLE * sum(space.free_gpus[kind] for kind in kinds)
    return whole + sum(parts), max(WHOLE * block, *parts, 0)


def _total(view: View, kinds: tuple[int, ...]) -> int:
    """GPUs of the cluster of these types, also of nodes that are away."""
    space, gone = view.occupancy, view.forgotten
    nodes = (each for each in view.topology.nodes if each.index not in gone)
    return WHOLE * sum(each.gpus for each in nodes if space.node_type[each.index] in kinds)


def _usable(view: View, kinds: tuple[int, ...]) -> int:
    """Those of them on which jobs are started."""
    space = view.occupancy
    nodes = [n for n, kind in enumerate(space.node_type) if kind in kinds and n not in space.closed]
    return WHOLE * sum(space.usable[node] for node in nodes)


def _stopped_reason(view: View, record: JobRecord, found: Reason) -> Reason | None:
    """Why a program that can go on only where it is stopped cannot, if GPUs elsewhere would not help it."""
    at, space = record.frozen, view.occupancy
    if at is None or not record.cannot_save:
        return None
    words = ", ".join(view.topology.nodes[node].name for node in at.nodes)
    if not space.is_open(at):
        aside = _set_aside(view, record.demand)
        drained = _closed(view, record.demand, view.draining - view.away)
        return replace(found, drained=drained, set_aside=aside, detail=words)
    needed = Counter(piece.node for piece in at.slices)
    is_taken = any(space.whole[node].bit_count() < needed[node] for node in needed)
    if found.free < found.need or not is_taken:
        return None
    there = {each.seq: each for node in at.nodes for each in view.residents(node)}
    held_by = tuple(there[seq].id for seq in sorted(there))[:NAMED]
    return replace(found, held_by=held_by, detail=words)


def _closed(view: View, demand: Demand, which: Iterable[int]) -> int:
    """GPUs of types that the job may use on these nodes."""
    space, nodes = view.occupancy, view.topology.nodes
    kinds = space.kinds_for(demand)
    return WHOLE * sum(nodes[n].gpus for n in which if space.node_type[n] in kinds)


def _set_aside(view: View, demand: Demand) -> int:
    """GPUs of types that the job may use that are set aside on other nodes."""
    space = view.occupancy
    kinds, nodes = space.kinds_for(demand), [space.node_of[gpu] for gpu in space.aside]
    closed = view.draining | view.away | view.forgotten
    return WHOLE * sum(space.node_type[n] in kinds and n not in closed for n in nodes)


def _in_the_way(view: View, holders: Iterable[JobRecord], record: JobRecord) -> Iterable[JobRecord]:
    """Those whose GPUs it could get; none where GPUs on which jobs are started are too few for it."""
    space = view.occupancy
    usable = view.between_steps(_usable, space.kinds_for(record.demand))
    if usable < record.demand.nominal.total_share:
        return ()
    return [each for each in holders if any(map(space.is_offered, _gpus_of(each)))]


def _gpus_of(record: JobRecord) -> Iterable[int]:
    return () if record.placement is None else record.placement.gpus()


def _protections(
    holders: Iterable[JobRecord], guards: PreemptionGuards, now: int
) -> tuple[Protection, ...]:
    """The rules that keep these jobs on their GPUs, the first to end first."""
    found = [rule for other in holders if (rule := _protection(other, guards, now)) is not None]
    return tuple(sorted(found, key=lambda each: (each.until_ms is None, each.until_ms or 0)))


def _protection(record: JobRecord, guards: PreemptionGuards, now: int) -> Protection | None:
    """The rule that keeps this job on its GPUs."""
    if not record.job.preemptible:
        return Protection(record.id, NOT_PREEMPTIBLE)
    if record.is_prerun and record.is_protected:
        return Protection(record.id, PRERUN)
    if record.is_protected:
        return Protection(record.id, CANNOT_SAVE, unsaved_ms=unsaved_ms(record, now))
    until = guards.young_until(record)
    if until is None or until <= now:
        return None
    return Protection(record.id, guards.rule(record), until)


NOT_PREEMPTIBLE = "preemptible: false"
CANNOT_SAVE = "its work would be lost"
PRERUN = "its pre-run was ended once before"
NAMED = 5
"""The most jobs that a reason names."""


def _holders(view: View) -> list[JobRecord]:
    """The largest jobs that hold GPUs, found by node because many thousands may be waiting."""
    jobs, nodes = view.jobs, range(len(view.topology.nodes))
    there = {other.seq: other for node in nodes for other in view.residents(node)}
    running = [
        there[seq]
        for seq in sorted(there)
        if there[seq].phase in ALLOCATED and there[seq].id in jobs
    ]
    return sorted(running, key=lambda other: -_size(other))[:NAMED]


def _size(record: JobRecord) -> int:
    return record.placement.total_share if record.placement is not None else 0
