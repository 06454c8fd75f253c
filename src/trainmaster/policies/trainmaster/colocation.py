"""Colocation: single-GPU jobs share a GPU while jobs wait, if sharing increases total throughput.

Joining. A job that finds no GPU of its own joins a GPU in use before any run is evicted for it. It takes the
GPU where the sum of speeds (each relative to running alone) grows most. The sum must grow by at least
`gain_ppm`, and every job must keep `kept_ppm` of its speed. Speeds of a group are measured, else published,
else predicted from utilisation (colocation_speeds.py). If nothing is known about two kinds of jobs, one pair
of them is tried at a time (Gandiva, OSDI'18, tries pairs at random).

Separating. After `trial_ms` together, measured speeds decide. A group loses its worst-ranked member if its
last member added less than `least_ppm`, if a job keeps less than `kept_ppm`, or if one of its jobs was
promised its GPU. When GPUs are idle, one job of a group moves to one, once it has run long enough that the
expected gain exceeds the cost of the move.

Jobs that can share are launched in sharing mode from the start, with a whole GPU while they are alone, so no
run is relaunched when another job joins it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from trainmaster.core.lifecycle import ALLOCATED, Phase
from trainmaster.core.occupancy import Occupancy
from trainmaster.core.rank_index import Key
from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.mechanisms.unmeasured_jobs import with_unmeasured
from trainmaster.model.placement import Placement, Sharing
from trainmaster.model.plan import FrozenMap
from trainmaster.model.reasons import Reason
from trainmaster.model.units import NOMINAL, WHOLE
from trainmaster.placement.placers import Placer
from trainmaster.policies.trainmaster.colocation_speeds import ColocationSpeeds, JobKind, kind_of
from trainmaster.policies.trainmaster.memo import ColocatedJobs, ColocationMemo
from trainmaster.policies.trainmaster.options import PackingTerms
from trainmaster.policies.trainmaster.scheduling_pass import Pass
from trainmaster.policies.trainmaster.shared_gpus import (
    SharedGpus,
    can_share,
    may_share,
    shared_gpu,
)

GAIN_RESOLUTION = NOMINAL // 5
"""Gains are compared in steps of a fifth of a GPU: predictions are not more accurate than that."""
BEST_KEY: Key = (-(1 << 90), 0, 0, 0)
Gains = dict[tuple[tuple[JobKind, ...], JobKind, Sharing], int | None]
"""What a job of one kind adds to the sum of speeds of a group, sharing so; None if that is not enough."""


@dataclass(slots=True)
class GainCache:
    """Gains, and the measurements that they were computed from."""

    rates: ColocationSpeeds
    gains: Gains = field(default_factory=dict)


def separate_pairs(p: Pass) -> None:
    """Measure jobs that share a GPU, and separate groups that do not gain from it."""
    if p.settings.packing is None:
        return
    stage = p.colocation = Colocation(p, p.settings.packing)
    stage.evaluate()
    if not p.view.has_nothing_to_schedule():
        stage.shared.open_measured()
    cache = p.caches.gains
    if cache is None or cache.rates is not stage.rates:
        cache = p.caches.gains = GainCache(stage.rates)
    stage.gains = cache.gains


def spread_pairs(p: Pass) -> None:
    """Move jobs from shared GPUs to idle ones; a job left alone gets its whole GPU back."""
    if p.colocation is not None:
        memo = p.colocation.end()
        p.wake_by(memo.due_ms)
        p.remember(colocation=memo)


def name_unmeasured(p: Pass, record: JobRecord, reason: Reason) -> Reason:
    """Say what has to be measured before a waiting job may share a GPU."""
    if p.settings.packing is None:
        return reason

    def may_join(other: JobRecord) -> bool:
        is_in_queue = not p.has_queues or other.job.queue == record.job.queue
        return may_share(other) and is_in_queue and not p.has_guarantee(other)

    return with_unmeasured(p.view, record, reason, may_join, is_measured)


def is_measured(record: JobRecord) -> bool:
    """Whether it is known what the job needs beside others, or it has a name for what trials show."""
    return record.gpu_memory > 0 and not kind_of(record).is_untried


def is_due(p: Pass) -> bool:
    """Whether this stage needs a pass although no event has happened."""
    memo = p.memo.colocation
    return memo.is_held_up or any(due is not None and due <= p.now for due in _dues(p))


def next_due(p: Pass) -> int | None:
    """When to plan again, after a run has started."""
    if p.memo.colocation.is_held_up:
        return p.now + 1
    return min((due for due in _dues(p) if due is not None and due > p.now), default=None)


def _dues(p: Pass) -> list[int | None]:
    memo, terms = p.memo.colocation, p.settings.packing
    if terms is None:
        return []
    groups = current_groups(p.view, memo.crowds, terms.sharing).values()
    return [memo.due_ms, *(evaluation_due(p.view, each, terms.trial_ms) for each in groups)]


class Colocation:
    """One pass over the shared GPUs."""

    def __init__(self, p: Pass, terms: PackingTerms) -> None:
        self.terms = terms
        self.shared = SharedGpus(p.view, p.draft, terms.sharing, p.has_guarantee)
        self.rates = p.memo.colocation.rates
        self.now = p.now
        self.groups = current_groups(p.view, p.memo.colocation.crowds, terms.sharing)
        self.separated: list[JobRecord] = []
        self.is_held_up = False
        self.tried: dict[frozenset[JobKind], str] = {}
        """Pairs of kinds first tried in this pass, and the job that joined."""
        self.gains: Gains = {}
        self._pass = p

    # -- jobs that share already -----------------------------------------------------------------

    def evaluate(self) -> None:
        """Learn from groups that have run together long enough; separate those that do not pay."""
        for gpu, group in list(self.groups.items()):
            records = self._records(group)
            if len(records) < 2 or self._is_closed(gpu):
                continue
            if any(self.shared.is_exempt(record) for record in records):
                self._separate(gpu, records)
                continue
            due = evaluation_due(self.shared.view, ColocatedJobs(group.jobs), self.terms.trial_ms)
            speeds = tuple([record.speed_ppm for record in records])
            if speeds != group.speeds and due is not None and due <= self.now:
                self._learn_speeds(gpu, records)
                self.groups[gpu] = ColocatedJobs(group.jobs, speeds)

    def _learn_speeds(self, gpu: int, records: list[JobRecord]) -> None:
        """Record the speeds of a group, and separate it if sharing does not pay."""
        rates = self._measured(gpu, records)
        kinds = [kind_of(record) for record in records]
        self.rates = self.rates.with_measured(kinds, rates, self.shared.mode_of(gpu))
        if not self._pays(gpu, records, rates):
            self._separate(gpu, records)

    def _records(self, group: ColocatedJobs) -> list[JobRecord]:
        return [self.shared.view.jobs[job] for job in group.jobs]

    def _is_closed(self, gpu: int) -> bool:
        return not self.shared.draft.space.is_offered(gpu)

    def _measured(self, gpu: int, records: list[JobRecord]) -> list[int]:
        """Speeds of these jobs relative to running alone on such a GPU."""
        kind = self.shared.view.topology.type_of_gpu[gpu]
        alone = [self.rates.alone_on(record, kind.name, kind.speed_ppm) for record in records]
        return [
            min(NOMINAL, record.speed_ppm * NOMINAL // max(1, speed))
            for record, speed in zip(records, alone, strict=True)
        ]

    def _pays(self, gpu: int, records: list[JobRecord], rates: list[int]) -> bool:
        """Whether the last member adds enough, and every job keeps enough of its speed."""
        if min(rates) < self.terms.kept_ppm:
            return False
        before = self.sum_of(gpu, [kind_of(record) for record in records[:-1]])
        return sum(rates) - before >= self.terms.least_ppm

    def sum_of(self, gpu: int, kinds: Sequence[JobKind]) -> int:
        """The sum of speeds of jobs of these kinds on this GPU."""
        if len(kinds) == 1:
            return NOMINAL
        return sum(self.rates.predicted(kinds, self.shared.mode_of(gpu)) or (NOMINAL,))

    def _separate(self, gpu: int, records: list[JobRecord]) -> None:
        """Suspend the worst-ranked job of the group that may be suspended."""
        can_go = [each for each in records if each.phase in ALLOCATED and not each.is_protected]
        leaving = [record for record in can_go if not self.shared.is_exempt(record)]
        if not leaving:
            return
        last = max(leaving, key=self._rank)
        self.shared.draft.suspend(last)
        self.separated.append(last)

    # -- joining ---------------------------------------------------------------------------------

    def placer(self, record: JobRecord, own: Placer) -> Placer:
        """The job's own placer; a job that can share also joins another GPU if none is free."""
        if not can_share(record) or self.shared.is_exempt(record):
            return own
        return ColocatingPlacer(own.locality, own, self)

    def join(self, record: JobRecord) -> Placement | None:
        """A share of the GPU where joining gains most; the jobs on it shrink their shares.

        Among GPUs with about the same gain: the one whose jobs are ranked worst, then the fullest.
        """
        space, best = self.shared.draft.space, None
        kinds = space.kinds_for(record.demand)
        shared = self.shared.all()
        for gpu, tenants in shared.items():
            is_right = space.node_type[space.node_of[gpu]] in kinds
            if len(tenants) >= self.terms.most or not is_right or record.demand.forbids(gpu):
                continue
            if not self.shared.has_memory(gpu, record):
                continue
            if not self._is_in_one_queue(record, tenants):
                continue
            gain = self._gain(gpu, tenants, record)
            if gain is None:
                continue
            if not self.shared.is_open(gpu, tenants, self.terms.most):
                self.is_held_up |= self._waits_for_start(tenants)
                continue
            rank = min(self._rank(tenant) for tenant in tenants)
            place = (gain // GAIN_RESOLUTION, rank, -space.free_memory[gpu], -gpu)
            if best is None or place > best:
                best = place
        if best is None:
            return None
        tenants = shared[-best[3]]
        self.tried[frozenset(map(kind_of, (*tenants, record)))] = record.id
        return self.shared.make_room(-best[3], tenants, record)

    def _is_in_one_queue(self, record: JobRecord, tenants: list[JobRecord]) -> bool:
        """Jobs of different stated queues never share, so that sharing does not change what a queue holds."""
        queue = record.job.queue
        return self._pass.queue_pass is None or all(each.job.queue == queue for each in tenants)

    def _rank(self, record: JobRecord) -> Key:
        """The job's rank; a job that is moving from another GPU has none and counts as the best."""
        return self._pass.ranks.key_of(record, self.now) or BEST_KEY

    def _waits_for_start(self, tenants: list[JobRecord]) -> bool:
        """Whether the only obstacle is that one of the jobs is still starting."""
        return any(each.phase is Phase.STARTING for each in tenants)

    def _gain(self, gpu: int, tenants: list[JobRecord], record: JobRecord) -> int | None:
        """What the job would add to the sum of speeds there; None if that is not enough."""
        kinds, mine = tuple([kind_of(each) for each in tenants]), kind_of(record)
        sharing = self.shared.mode_of(gpu)
        key = (kinds, mine, sharing)
        if key in self.gains:
            return self.gains[key]
        rates = self.rates.predicted((*kinds, mine), sharing)
        if rates is None:
            return 0 if self._may_try(kinds, mine, record) else None
        gain = sum(rates) - self.sum_of(gpu, kinds)
        is_enough = gain >= self.terms.gain_ppm and min(rates) >= self.terms.kept_ppm
        self.gains[key] = gain if is_enough else None
        return self.gains[key]

    def _may_try(self, kinds: tuple[JobKind, ...], mine: JobKind, record: JobRecord) -> bool:
        """Whether an unmeasured pair may be tried: known kinds, one pair of these kinds at a time."""
        if len(kinds) != 1 or mine.is_untried or kinds[0].is_untried:
            return False
        pair = frozenset((kinds[0], mine))
        return self.tried.get(pair, record.id) == record.id and all(
            pair != frozenset(kind_of(each) for each in self._records(group))
            for group in self.groups.values()
            if not group.is_evaluated and len(group.jobs) > 1
        )

    # -- afterwards ------------------------------------------------------------------------------

    def end(self) -> ColocationMemo:
        """Move jobs to idle GPUs, equalise shares, and return the memo with the next due time."""
        self._update_groups()
        due = self._next_evaluation()
        if sum(self.shared.draft.space.free_gpus):
            self._restart_separated()
            moves = self._spread()
            due = min((each for each in (due, moves) if each is not None), default=None)
        self._equalise_shares()
        return ColocationMemo(self.rates, FrozenMap(self.groups), due, self.is_held_up)

    def _update_groups(self) -> None:
        """Record which jobs share a GPU after this draft, and the speeds of jobs that ran alone."""
        draft, jobs = self.shared.draft, self.shared.view.jobs
        coming = [self.shared.gpu_of(draft.placement_of(jobs[job])) for job in draft.placed()]
        changed = {gpu for gpu in coming if gpu is not None}
        for gpu, group in self.groups.items():
            if any(draft.is_touched(jobs[job]) for job in group.jobs):
                changed.add(gpu)
        for gpu in sorted(changed):
            known, tenants = self.groups.pop(gpu, ColocatedJobs(())), self.shared.on(gpu)
            if not all(can_share(each) for each in tenants):
                continue  # a job that asks for a part of a GPU keeps that part
            names = {record.id for record in tenants}
            staying = tuple(job for job in known.jobs if job in names)
            joining = [each for each in tenants if each.id not in staying]
            joining.sort(
                key=lambda each: (draft.is_evicted(each), each.placement is None, each.seq)
            )
            now_there = (*staying, *(each.id for each in joining))
            if now_there != known.jobs:
                known = ColocatedJobs(now_there)
                self._record_speed_alone(gpu, tenants)
            if len(now_there) > 1 or any(self._share(each) < WHOLE for each in tenants):
                self.groups[gpu] = known

    def _share(self, record: JobRecord) -> int:
        placement = self.shared.draft.placement_of(record)
        return 0 if placement is None else placement.slices[0].share

    def _record_speed_alone(self, gpu: int, tenants: list[JobRecord]) -> None:
        """Record the speed alone of jobs that are no longer alone on this GPU."""
        kind = self.shared.view.topology.type_of_gpu[gpu].name
        for record in tenants:
            held = record.placement
            if held is None or record.phase is not Phase.RUNNING:
                continue
            if self.shared.gpu_of(held) is not None and held.total_share == WHOLE:
                self.rates = self.rates.with_speed_alone(record, kind)

    def _next_evaluation(self) -> int | None:
        view, trial = self.shared.view, self.terms.trial_ms
        dues = [evaluation_due(view, group, trial) for group in self.groups.values()]
        return min((due for due in dues if due is not None and due > self.now), default=None)

    def _restart_separated(self) -> None:
        """Restart the jobs that were just separated on free GPUs, if any are left."""
        for record in self.separated:
            self._move(record)

    def _move(self, record: JobRecord) -> bool:
        draft = self.shared.draft
        if not draft.is_evicted(record) or draft.is_placed(record):
            return False
        if not self._pass.has_room(record, WHOLE):
            return False
        found = self._pass.own_placer(record).place(draft.space, record)
        if found is not None:
            draft.start(record, self.shared.slice_of(record, found.slices[0].gpu))
        return found is not None

    def _spread(self) -> int | None:
        """Move one job of each group to a free GPU if that pays; returns when the next may move."""
        due: list[int] = []
        for gpu, group in list(self.groups.items()):
            records = self._records(group)
            if len(records) < 2 or not all(self._is_settled(record) for record in records):
                continue
            mover = min(records, key=lambda each: (each.gpu_memory, -each.seq))
            at = self._pays_to_move_at(gpu, records, mover)
            if at is None:
                continue
            if at > self.now:
                due.append(at)
            elif sum(self.shared.draft.space.free_gpus):
                self.shared.draft.suspend(mover)
                if self._move(mover):
                    staying = tuple(job for job in group.jobs if job != mover.id)
                    self.groups[gpu] = ColocatedJobs(staying)
                else:
                    self.shared.draft.restore(mover)
        return min(due, default=None)

    def _is_settled(self, record: JobRecord) -> bool:
        is_quiet = record.phase is Phase.RUNNING and not self.shared.draft.is_touched(record)
        return is_quiet and record.run_since_ms is not None

    def _pays_to_move_at(self, gpu: int, records: list[JobRecord], mover: JobRecord) -> int | None:
        """When the job has run long enough that running as long again gains more than moving costs."""
        others = [kind_of(record) for record in records if record is not mover]
        lost = self.sum_of(gpu, others) + NOMINAL - sum(self._measured(gpu, records))
        if lost <= 0:
            return None
        cost = self.shared.view.handover_ms or self.terms.move_ms
        assert mover.run_since_ms is not None
        return mover.run_since_ms + 2 * cost * NOMINAL // lost

    def _equalise_shares(self) -> None:
        """Give jobs a larger share after another has left the GPU, once it is fully released."""
        for gpu, group in list(self.groups.items()):
            records = self._records(group)
            share = WHOLE // len(records)
            if self._is_closed(gpu) or all(self._share(record) >= share for record in records):
                continue
            more = share * len(records) - sum(self._share(record) for record in records)
            if not self._pass.has_room(records[0], more):
                continue
            if not all(self._can_hold(record, gpu, share) for record in records):
                self.is_held_up = True
                continue
            for record in records:
                self.shared.set_share(record, gpu, share)
            if len(records) == 1:
                del self.groups[gpu]

    def _can_hold(self, record: JobRecord, gpu: int, share: int) -> bool:
        return self.shared.draft.is_placed(record) or (
            self._is_settled(record) and self.shared.is_fully_released(gpu)
        )


@dataclass(frozen=True, slots=True)
class ColocatingPlacer(Placer):
    """Places a job on a free GPU, launched in sharing mode, or else on a share of a GPU in use."""

    own: Placer
    colocation: Colocation

    def place(
        self, space: Occupancy, record: JobRecord, budget: int | None = None
    ) -> Placement | None:
        found = self.own.place(space, record, budget)
        if found is None:
            return self.colocation.join(record)
        if found == record.frozen or record.loses_work_elsewhere:
            return found
        return self.colocation.shared.slice_of(record, found.slices[0].gpu)


def current_groups(
    view: View, groups: FrozenMap[int, ColocatedJobs], sharing: Sharing
) -> dict[int, ColocatedJobs]:
    """The groups as they are now: of jobs that have left, and of one that was to leave and could not."""
    found: dict[int, ColocatedJobs] = {}
    for gpu, group in groups.items():
        known = [view.jobs[job] for job in group.jobs if job in view.jobs]
        others = [
            each
            for each in view.residents(view.topology.node_of_gpu[gpu])
            if each.freeze_refusals and each.id not in group.jobs and can_share(each)
        ]
        live = [*known, *others]
        jobs = tuple([each.id for each in live if shared_gpu(each.placement, sharing) == gpu])
        if jobs == group.jobs:
            found[gpu] = group
        elif jobs:
            found[gpu] = ColocatedJobs(jobs)
    return found


def evaluation_due(view: View, group: ColocatedJobs, trial_ms: int) -> int | None:
    """When all jobs of a group have run together long enough to evaluate; None if not all run."""
    if group.is_evaluated or len(group.jobs) < 2:
        return None
    latest = 0
    for job in group.jobs:
        record = view.jobs.get(job)
        if record is None or record.phase is not Phase.RUNNING or record.run_since_ms is None:
            return None
        latest = max(latest, record.run_since_ms)
    return latest + trial_ms
