"""Elastic shares divided again whenever a job comes or goes: what `max-min` and `afs-l` have in common.

Jobs are asked in rank order, running or not, and first get their minimum, or nothing where it is not
left; what remains is divided among those that can use more, which is the policy's own business
(`allocator`). Rigid jobs are all or nothing. The numbers then become placements (`division`); a job that
the cluster cannot serve as divided is capped for this pass, and the division is done again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Generic, TypeVar

from trainmaster.config.options import at_least_zero, option
from trainmaster.core.draft import Draft
from trainmaster.core.rank_index import RankIndex
from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.estimators.throughput_calibration import Corrections
from trainmaster.mechanisms.apply_allocation import carry_out
from trainmaster.mechanisms.base_policy import BasePolicy, M
from trainmaster.mechanisms.gpu_claims import (
    AllocationRound,
    Allocator,
    AllocatorOf,
    PassLimits,
    Pool,
    is_divisible,
)
from trainmaster.mechanisms.preemption_guards import PreemptiveOptions
from trainmaster.mechanisms.preemptive_scheduling import evacuate, run_in_order
from trainmaster.mechanisms.resize import at_current_size
from trainmaster.mechanisms.speedup_curves import Curves, MeasuredSpeeds, SpeedupCurve
from trainmaster.model.codec import stored_as
from trainmaster.model.placement import Placement
from trainmaster.model.plan import Plan, Rank
from trainmaster.model.units import to_ms

ROUNDS = 6
"""Divisions tried in one pass; the last one suspends nobody, so that nobody goes in vain."""


@dataclass(frozen=True, slots=True)
class ReallocatingOptions(PreemptiveOptions):
    resize_cost_s: float = option(
        0.0, at_least_zero, "a run grows only if that brings its end forward by more than this"
    )


O = TypeVar("O", bound=ReallocatingOptions)  # noqa: E741


@stored_as("reallocation.Memo")
@dataclass(frozen=True, slots=True)
class ReallocationMemo:
    """What such a policy remembers: measured speeds, and whether growth is owed."""

    measured: MeasuredSpeeds = field(default_factory=MeasuredSpeeds)
    is_owed: bool = False
    jobs: tuple[int, int] = (0, 0)
    """How many jobs there were, and the number of the last elastic one: has one come or gone since?"""


class ReallocatingPolicy(BasePolicy[O, M], Generic[O, M]):
    """The parts of a policy of elastic shares; subclasses say `base_rank` and `plan`."""

    options_type: ClassVar[type] = ReallocatingOptions
    profiles = True
    is_moldable = True

    def __init__(self, options: O) -> None:
        super().__init__(options)
        self._cost_ms = to_ms(options.resize_cost_s)
        self._curves: Curves | None = None
        self._elastic: dict[int, JobRecord] | None = None
        """Live elastic jobs by seq; None = to be looked up."""

    def forget(self) -> None:
        super().forget()
        self._curves = None
        self._elastic = None

    def length(self, record: JobRecord, now: int) -> int:
        """Work left, in ms x parts per million; of unknown jobs, as much again as they have done."""
        done = record.work_at(now)
        return max(1, record.estimate.work - done if record.estimate is not None else done)

    def rank(self, view: View, record: JobRecord, now: int) -> Rank:
        """A job whose place in line is asked for is alive: those that are elastic are kept in mind."""
        if self._elastic is not None and is_divisible(record):
            self._elastic[record.seq] = record
        return self.base_rank(view, record)

    def base_rank(self, view: View, record: JobRecord) -> Rank:
        raise NotImplementedError

    def curves(self, view: View) -> Curves:
        if self._curves is None:
            self._curves = Curves(view.topology)
        return self._curves

    def _live_elastic(self, view: View) -> dict[int, JobRecord]:
        """Every live job that could have another number of GPUs, in order of submission."""
        known = self._elastic
        if known is None:
            known = {each.seq: each for each in view.jobs.values() if is_divisible(each)}
        if known:
            live = view.jobs
            known = {seq: known[seq] for seq in sorted(known) if known[seq].id in live}
        self._elastic = known
        return known

    def is_worth_growing(
        self, record: JobRecord, count: int, curve: SpeedupCurve, now: int
    ) -> bool:
        """Whether that brings the end of a run forward by more than resizing costs."""
        if not self._cost_ms or record.placement is None:
            return True
        work, held = self.length(record, now), min(len(record.placement.slices), curve.high)
        return curve.time_ms(work, held) - curve.time_ms(work, count) > self._cost_ms

    # -- dividing ------------------------------------------------------------------------------

    def _redivide(
        self,
        draft: Draft,
        ranks: RankIndex,
        allocator: AllocatorOf,
        corrections: Corrections,
        now: int,
        *,
        is_news: bool,
    ) -> bool:
        """Divide and carry out until the cluster follows; whether growth is owed.

        Runs yield GPUs to runs only when a job has come or gone: else two divisions that differ by
        little, before and after a resizing, could go on for ever.
        """
        curves = self.curves(draft.view)
        limits = PassLimits()

        def speed_of(record: JobRecord, placement: Placement) -> int:
            return curves.speed(record, placement, corrections)

        def curve_of(record: JobRecord) -> SpeedupCurve:
            return curves.of(record, corrections)

        def is_worth(record: JobRecord, count: int) -> bool:
            return self.is_worth_growing(record, count, curve_of(record), now)

        for left in reversed(range(ROUNDS)):
            limits.may_evict = left > 0
            asked = AllocationRound(draft, ranks, limits, allocator, curve_of, self.length, now)
            mark = draft.checkpoint()
            targets = asked.targets()
            short = carry_out(draft, targets, speed_of, is_worth, shrinks_for_growth=is_news)
            if not short or not left:
                break
            limits.note(short)
            draft.roll_back(mark)
        return short.is_owed


class ElasticShares(ReallocatingPolicy[O, ReallocationMemo], Generic[O]):
    """Elastic shares, divided again whenever a job comes or goes."""

    def allocator(self, pool: Pool) -> Allocator:
        raise NotImplementedError

    def first_memo(self) -> ReallocationMemo:
        return ReallocationMemo()

    def plan(self, view: View, memo: ReallocationMemo, now: int) -> Plan[ReallocationMemo]:
        elastic = self._live_elastic(view)
        if not elastic and view.has_nothing_to_schedule():
            return Plan((), memo)
        ranks = self.ranked_jobs(view, now, with_running=True)
        draft = Draft(view)
        if not elastic:
            run_in_order(view, draft, ranks, now, self.group, self.placer, self.failed_placements)
            return draft.plan(memo, ranks.next_expiry())
        measured = self.curves(view).learned(elastic.values(), memo.measured, view.jobs)
        if view.draining:
            evacuate(view, draft, at_current_size)
        jobs = len(view.jobs), next(reversed(elastic))
        is_owed = self._redivide(
            draft, ranks, self.allocator, measured.corrections, now, is_news=jobs != memo.jobs
        )
        return draft.plan(ReallocationMemo(measured, is_owed, jobs), ranks.next_expiry())

    def wake(self, view: View, memo: ReallocationMemo, now: int) -> int | None:
        """At once where growth waited for what has just been left."""
        if memo.is_owed:
            return now + 1
        return super().wake(view, memo, now)
