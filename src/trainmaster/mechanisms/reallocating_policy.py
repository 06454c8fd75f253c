"""Reallocate elastic jobs whenever a job arrives or ends: the base of `max-min`, `afs-l` and `goodput`.

In rank order, running or not, each job first gets its minimum, or nothing if that is not left. The
policy's own `allocator` divides the rest among the jobs that can use more. Rigid jobs are all or nothing.
Then the numbers become placements (apply_allocation.py). A job that the cluster cannot place as allocated
is capped for this pass, and the allocation is repeated.
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
"""Allocations tried in one pass. The last one suspends no run, so that no run is suspended for nothing."""


@dataclass(frozen=True, slots=True)
class ReallocatingOptions(PreemptiveOptions):
    resize_cost_s: float = option(
        0.0, at_least_zero, "grow a run only if it then finishes at least this many seconds earlier"
    )


O = TypeVar("O", bound=ReallocatingOptions)  # noqa: E741


@stored_as("reallocation.Memo")
@dataclass(frozen=True, slots=True)
class ReallocationMemo:
    """What such a policy remembers: measured speeds, and whether growth is pending."""

    measured: MeasuredSpeeds = field(default_factory=MeasuredSpeeds)
    is_owed: bool = False
    jobs: tuple[int, int] = (0, 0)
    """How many jobs there were, and the seq of the last elastic one, to see whether one came or ended."""


class ReallocatingPolicy(BasePolicy[O, M], Generic[O, M]):
    """The parts of a policy that reallocates elastic jobs; subclasses define `base_rank` and `plan`."""

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
        """Work left, in ms x parts per million; for unknown jobs, as much again as they have done."""
        done = record.work_at(now)
        return max(1, record.estimate.work - done if record.estimate is not None else done)

    def rank(self, view: View, record: JobRecord, now: int) -> Rank:
        """Its rank; a job that is ranked is live, so elastic ones are added to the index."""
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
        """Whether the run would finish earlier by more than resizing costs."""
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
        """Allocate and place until all allocations fit; returns whether growth is pending.

        Runs give up GPUs to other runs only when a job has arrived or ended; otherwise two allocations
        that differ by little could alternate endlessly.
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
    """Elastic shares, divided again whenever a job arrives or ends."""

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
            return draft.plan(memo, self._due(ranks))
        measured = self.curves(view).learned(elastic.values(), memo.measured, view.jobs)
        if view.draining:
            evacuate(view, draft, at_current_size)
        jobs = len(view.jobs), next(reversed(elastic))
        is_owed = self._redivide(
            draft, ranks, self.allocator, measured.corrections, now, is_news=jobs != memo.jobs
        )
        return draft.plan(ReallocationMemo(measured, is_owed, jobs), self._due(ranks))

    def wake(self, view: View, memo: ReallocationMemo, now: int) -> int | None:
        """At once, where growth was waiting for GPUs that have just been released."""
        if memo.is_owed:
            return now + 1
        if view.has_nothing_to_schedule() or not self.guards.hold(view.switch_ms):
            return None
        return self._due(self.ranked_jobs(view, now, with_running=True))

    def _due(self, ranks: RankIndex) -> int | None:
        """When a run may be preempted that was protected, if a job waits for that."""
        is_anyone_waiting = any(not self.waits_for_events(head) for head in ranks.heads())
        return ranks.next_expiry() if is_anyone_waiting or self.guards.are_on else None

    def waits_for_events(self, record: JobRecord) -> bool:
        """Whether this waiting job takes no run's place before another job arrives or ends."""
        return False
