"""Places the GPUs that an auction granted; runs that keep their GPUs come first."""

from __future__ import annotations

from collections.abc import Sequence

from trainmaster.core.draft import Draft
from trainmaster.core.state import JobRecord
from trainmaster.estimators.throughput import UNKNOWN, Estimator, key_of
from trainmaster.estimators.throughput_calibration import Corrections, Measured
from trainmaster.mechanisms.apply_allocation import carry_out
from trainmaster.mechanisms.gpu_occupants import remaining_jobs
from trainmaster.mechanisms.resize import can_resize, idle_beside, resized
from trainmaster.model.placement import Placement, Slice
from trainmaster.model.profile import Profile
from trainmaster.model.topology import Topology
from trainmaster.model.units import NOMINAL
from trainmaster.placement.placers import RELAXING
from trainmaster.policies.themis.apps import BiddingApp, Grant, present_size


class PlaceEstimator(Estimator):
    """The estimator, and whether it need be asked at all about gangs inside one node."""

    def __init__(self, topology: Topology) -> None:
        super().__init__(topology)
        self.is_ordinary = all(kind.speed_ppm == NOMINAL for kind in topology.types) and not any(
            len(node.islands) > 1 for node in topology.nodes
        )
        """All GPUs are equally fast, and equally near to each other inside a node."""
        self._last_learned: dict[int, tuple[Placement, int, Measured]] = {}

    def learn_from(self, record: JobRecord, corrections: Corrections) -> Corrections:
        """Corrections updated with the measured speed of a run; skipped if unchanged or only assumed."""
        placement, job = record.placement, record.job
        if placement is None or record.is_speed_assumed:
            return corrections
        observation = (placement, record.speed_ppm, corrections.of(key_of(job)))
        if self._last_learned.get(record.seq) == observation:
            return corrections
        where, profile = self.allocation(placement), record.profile or UNKNOWN
        learned = self.learned(job, profile, where, record.speed_ppm, corrections)
        if learned is corrections:
            self._last_learned[record.seq] = observation
        return learned


class GrantPlacement:
    """One round's grants on top of a draft in which the pool has been emptied."""

    def __init__(self, draft: Draft, estimator: PlaceEstimator, corrections: Corrections) -> None:
        self.draft = draft
        self.corrections = corrections
        """What measured speeds have taught about the estimates."""
        self._estimator = estimator
        self._places: dict[tuple[int, int], Placement | None] = {}
        """Where a gang of that demand and size would be in the offer, alone."""
        self._speeds: dict[tuple[int, str, Profile | None, int], int] = {}
        """What a gang of that demand, model, profile and size would reach there."""
        self._granted: dict[str, Grant] = {}

    def offered(self) -> int:
        """Whole GPUs in the offer."""
        return self.draft.space.total_free()

    def learn(self, pool: Sequence[JobRecord]) -> None:
        """Take in speeds measured over a lease, where they say more than the nominal one."""
        for record in pool:
            placement = record.placement
            if placement is None or (len(placement.nodes) == 1 and not record.demand.is_elastic):
                continue
            self.corrections = self._estimator.learn_from(record, self.corrections)

    def speed(self, record: JobRecord, count: int) -> int | None:
        """A run that stays keeps its measured speed; others are predicted where they would be."""
        if record.placement is not None:
            space = self.draft.space
            is_staying = not (record.demand.is_elastic or space.closed or space.aside)
            if record.speed_ppm and is_staying:
                return record.speed_ppm
            where = self._where(record, count)
            if where == record.placement and record.speed_ppm:
                return record.speed_ppm
            return None if where is None else self._speed_at(record, where)
        place = (record.group, count)
        if place not in self._places:
            self._places[place] = self._place(record, count)
        where = self._places[place]
        if where is None:
            return None
        if self._is_nominal(record, where):
            return NOMINAL
        whose = key_of(record.job)
        alike = whose if self.corrections.of(whose) else record.job.model
        key = (record.group, alike, record.profile, count)
        if key not in self._speeds:
            self._speeds[key] = self._speed_at(record, where)
        return self._speeds[key]

    def _is_nominal(self, record: JobRecord, where: Placement) -> bool:
        """Whether nothing need be predicted: a rigid gang inside one node of ordinary GPUs."""
        return (
            len(where.nodes) == 1 and not record.demand.is_elastic and self._estimator.is_ordinary
        )

    def best_speed(self, record: JobRecord, count: int) -> int | None:
        """On that many GPUs of the empty cluster."""
        profile = record.profile or UNKNOWN
        curve = self._estimator.curve(record.job, profile, (count,), self.corrections)
        return curve[0][1] if curve else None

    def _speed_at(self, record: JobRecord, where: Placement) -> int:
        there, profile = self._estimator.allocation(where), record.profile or UNKNOWN
        return self._estimator.speed(record.job, profile, there, self.corrections)

    def _place(self, record: JobRecord, count: int) -> Placement | None:
        demand, space, budget = record.demand, self.draft.space, self.draft.budget
        if record.is_whole and not demand.is_elastic and space.has_too_few(demand):
            return None
        if count == demand.nominal.count:
            return RELAXING.place(space, record, budget)
        return RELAXING.shaped(space, demand, demand.sized(count), budget=budget)

    def give_to_all(self, waiting: Sequence[JobRecord]) -> bool:
        """Where all waiting jobs fit into what is free, no auction is needed: all would win."""
        if sum(record.demand.nominal.count for record in waiting) > self.offered():
            return False
        mark = self.draft.checkpoint()
        for record in waiting:
            if not self._settle(record, record.demand.nominal.count):
                self.draft.roll_back(mark)
                return False
        return True

    def join(self, record: JobRecord) -> list[JobRecord]:
        """Start a job for a part of a GPU beside others, if there is room; returns those."""
        draft, shape = self.draft, record.demand.nominal
        if shape.is_whole or draft.is_placed(record) or record.loses_work_elsewhere:
            return []
        where = self._place(record, shape.count)
        if where is None:
            return []
        beside = {run.seq: run for gpu in where.gpus() for run, _ in remaining_jobs(draft, gpu)}
        is_shared = all(draft.space.mode[gpu] is not None for gpu in where.gpus())
        if not is_shared or not beside:
            return []
        draft.start(record, where)
        return [beside[seq] for seq in sorted(beside)]

    def give(self, app: BiddingApp, gpus: int) -> None:
        """Grant the app its largest bundle of at most `gpus` GPUs, if there is one."""
        fitting = [grant for size, _, grant in app.grants if size <= gpus]
        if fitting:
            self._granted[app.name] = fitting[-1]

    def give_first(self, app: BiddingApp) -> int:
        """The smallest of its bundles, placed before all others; how many GPUs that takes."""
        before = self.offered()
        for record, count in app.grants[0][2]:
            self._settle(record, count)
        return before - self.offered()

    def keep_all(self) -> None:
        """First the jobs that stay where they are, then the others, in the order of the grants."""
        grants = [pair for grant in self._granted.values() for pair in grant]
        for record, count in grants:
            if record.placement is not None and len(record.placement.slices) == count:
                self.draft.keep(record)
        for record, count in grants:
            self._settle(record, count)

    def prolong(self, pool: Sequence[JobRecord]) -> None:
        """No auction: a job that has GPUs keeps them, or moves where it cannot stay."""
        for record in pool:
            self._settle(record, present_size(record))

    def _settle(self, record: JobRecord, count: int) -> bool:
        """Give a job its GPUs; False where there are none for it."""
        draft = self.draft
        if draft.is_placed(record):
            return True
        where = self._where(record, count)
        if where is None:
            return False
        if record.placement is None or (draft.is_evicted(record) and not draft.keep(record)):
            draft.start(record, where)
        elif where != record.placement:
            draft.resize(record, where)
        return True

    def _where(self, record: JobRecord, count: int) -> Placement | None:
        """Where a job would have `count` GPUs: a run stays in place, resized, if possible; else elsewhere."""
        draft, mine = self.draft, record.placement
        if mine is None:
            return self._place(record, count)
        if draft.is_evicted(record) and draft.space.refusal(mine, record.demand):
            return self._place(record, count)
        change = count - len(mine.slices)
        if change == 0:
            return mine
        if change < 0:
            return resized(draft.view, mine, mine.slices[:count])
        more = self._idle_beside(record, mine, change)
        return resized(draft.view, mine, (*mine.slices, *more)) if more else mine

    def _idle_beside(self, record: JobRecord, mine: Placement, room: int) -> list[Slice]:
        """Idle GPUs of its nodes that fit in addition to the GPUs it has or had."""
        draft = self.draft
        if not draft.is_evicted(record):
            return idle_beside(draft, record, mine, room)
        with draft.trial():
            draft.restore(record)
            return idle_beside(draft, record, mine, room)

    def grow_runs(self) -> None:
        """Elastic runs take GPUs that no job wants, near ones first, where that makes them faster."""
        draft = self.draft

        def speed_of(record: JobRecord, where: Placement) -> int:
            is_measured = where is record.placement
            return record.speed_ppm if is_measured else self._speed_at(record, where)

        runs = draft.view.running()
        growing = [
            (record, record.demand.max_count)
            for record in runs
            if record.demand.is_elastic
            and not draft.is_touched(record)
            and can_resize(record, draft.space)
        ]
        changed = [each.placement for each in runs if each.placement and draft.is_touched(each)]
        leaving = [gpu for placement in changed for gpu in placement.gpus()]
        carry_out(draft, growing, speed_of, leaving=leaving)

    def has_all(self, app: BiddingApp) -> bool:
        """Whether none of its jobs is left without GPUs."""
        draft = self.draft
        return all(
            draft.is_placed(record) or (record.placement and not draft.is_evicted(record))
            for record in app.candidates
        )

    def has_any(self, app: BiddingApp) -> bool:
        """Whether any of its waiting jobs has been given GPUs."""
        return any(map(self.draft.is_placed, app.candidates))

    def give_leftovers(self, able: Sequence[BiddingApp]) -> None:
        """What no app won, was withheld or could not be placed: by need, smallest bundles first.

        Jobs of the pool that got nothing keep their GPUs where those are still free, else they move.
        """
        full: set[tuple[int, int]] = set()
        for app in able:
            for record in app.candidates:
                count, waits = present_size(record), record.placement is None
                if self.draft.is_placed(record) or (waits and (record.group, count) in full):
                    continue
                if not self._settle(record, count) and waits:
                    full.add((record.group, count))
