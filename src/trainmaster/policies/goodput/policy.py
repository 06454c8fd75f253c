"""Goodput-driven elastic shares in the manner of Pollux (Qiao et al., OSDI'21).

At whole multiples of `interval_s` the GPUs of elastic jobs are chosen again, so that the power mean
(`power`, -1 = harmonic) over all jobs of speed-up over a fair share (all GPUs / jobs) is highest
(optimizer.py). A job that is given another number counts only
(T - R d)/(T + d) of its speed-up: T its age since submission, R how often that has happened, d =
`resize_cost_s`. It gets at most twice as many as it ever had, its minimum at first. Jobs have their
minimum before any gets more: runs first, then waiting ones, the smallest first. No run is suspended for
another job, rigid jobs keep their size. Between intervals new jobs start on free GPUs.

Verified in the authors' released simulator: 60 s, the power, the penalty and its 30 s, the fair share,
the doubling, 0.001 added to speed-ups.

Deviations. Goodput is throughput x statistical efficiency; profiles here state no efficiency and jobs
keep their batch, so it is throughput alone, measured where runs have shown it. Pollux searches numbers
and places together by a genetic algorithm, at random; ours divides numbers by the best gain per GPU,
which needs no search for a sum of one term per job and is the same each time, and then places them as
`max-min` does. Smallest first is not the paper's: with nothing to gain by preemption, each job let in
adds about the same to the mean, so the jobs that take least are let in. Pollux starts no job between
intervals and does not resize the cluster here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

from trainmaster.config.options import allows, at_least_zero, option, positive_seconds
from trainmaster.core.draft import Draft
from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.mechanisms.base_policy import BasePolicy
from trainmaster.mechanisms.gpu_claims import GpuClaim, Pool
from trainmaster.mechanisms.preemptive_scheduling import evacuate, run_in_order
from trainmaster.mechanisms.reallocating_policy import ReallocatingOptions, ReallocatingPolicy
from trainmaster.mechanisms.resize import at_current_size
from trainmaster.mechanisms.speedup_curves import MeasuredSpeeds, SpeedupCurve
from trainmaster.model.actions import Resize, Resume, Start
from trainmaster.model.codec import stored_as
from trainmaster.model.plan import FrozenMap, Plan, Rank
from trainmaster.model.units import ceil_div, to_ms
from trainmaster.policies.goodput.optimizer import GoodputOptimizer, JobTerms

PATIENCE = 4
"""After a division that changed nothing, the next is due when the youngest run is a quarter older."""


@allows("-10 to 1")
def power(text: str) -> float:
    """The exponent of the mean; above 1 it would prefer one fast job to many."""
    try:
        value = float(text)
    except ValueError:
        value = 2.0
    if not -10 <= value <= 1:
        raise ValueError("a number from -10 to 1")
    return value


@dataclass(frozen=True, slots=True)
class GoodputOptions(ReallocatingOptions):
    interval_s: float = option(60.0, positive_seconds, "seconds between reallocations")
    power: float = option(-1.0, power, "exponent of the mean over jobs; the lower, the fairer")
    resize_cost_s: float = option(
        30.0, at_least_zero, "assumed cost of a reallocation, in seconds; 0: none"
    )


@stored_as("goodput.JobHistory")
@dataclass(frozen=True, slots=True)
class ResizeHistory:
    """Reallocations of one job so far."""

    moves: int = 0
    """Number of reallocations."""
    most: int = 0
    """Largest number of GPUs so far."""


@stored_as("goodput.Memo")
@dataclass(frozen=True, slots=True)
class GoodputMemo:
    """Measured speeds, reallocations of each job, and growth that waits for GPUs being released."""

    measured: MeasuredSpeeds = field(default_factory=MeasuredSpeeds)
    stories: FrozenMap[str, ResizeHistory] = field(default_factory=FrozenMap)
    owed: FrozenMap[str, int] = field(default_factory=FrozenMap)
    divided_ms: int | None = None
    """When all GPUs were last divided, so that it happens only once per interval."""


class Goodput(ReallocatingPolicy[GoodputOptions, GoodputMemo]):
    name = "goodput"
    options_type = GoodputOptions
    memo_type = GoodputMemo

    def __init__(self, options: GoodputOptions) -> None:
        super().__init__(options)
        self._interval = to_ms(options.interval_s)

    def base_rank(self, view: View, record: JobRecord) -> Rank:
        """Runs first; then the job that needs least to start."""
        if record.placement is not None:
            return Rank(0, 0)
        demand = record.demand
        if record.is_whole and demand.is_elastic:
            return Rank(1, demand.sized(demand.min_count).total_share)
        return Rank(1, demand.nominal.total_share)

    def is_worth_growing(
        self, record: JobRecord, count: int, curve: SpeedupCurve, now: int
    ) -> bool:
        return True  # the penalty has been weighed before

    # -- a pass --------------------------------------------------------------------------------

    def plan(self, view: View, memo: GoodputMemo, now: int) -> Plan[GoodputMemo]:
        elastic = self._live_elastic(view)
        if not elastic and view.has_nothing_to_schedule():
            return Plan((), GoodputMemo(memo.measured))
        order = self.ranked_jobs(view, now, with_running=True)
        draft = Draft(view)
        if not elastic:
            run_in_order(view, draft, order, now, self.group, self.placer, self.failed_placements)
            return draft.plan(GoodputMemo(memo.measured), order.next_expiry())
        measured = self.curves(view).learned(elastic.values(), memo.measured, view.jobs)
        if view.draining:
            evacuate(view, draft, at_current_size)
        is_due = now % self._interval == 0 and now != memo.divided_ms
        fair = ceil_div(view.topology.training_gpus, len(view.jobs))
        terms_of = partial(self._terms, memo=memo, now=now, is_due=is_due)
        tried: list[GoodputOptimizer] = []

        def allocator(pool: Pool) -> GoodputOptimizer:
            tried.append(GoodputOptimizer(pool, terms_of, fair, self.options.power))
            return tried[-1]

        corrections = measured.corrections
        is_owed = self._redivide(draft, order, allocator, corrections, now, is_news=is_due)
        plan = draft.plan()
        stories = _updated_histories(plan, memo.stories).only(view.jobs)
        owed = _owed(plan, tried[-1].claims) if is_owed else FrozenMap[str, int]()
        is_quiet = is_due and not plan.actions and measured is memo.measured
        wake = self._next_division(elastic, now, is_quiet=is_quiet)
        expiry = order.next_expiry()
        wake = wake if expiry is None else min(wake, expiry)
        divided_ms = now if is_due else memo.divided_ms
        return Plan(plan.actions, GoodputMemo(measured, stories, owed, divided_ms), wake)

    def wake(self, view: View, memo: GoodputMemo, now: int) -> int | None:
        """Immediately, if growth waits for GPUs that were just released."""
        return now + 1 if memo.owed else BasePolicy.wake(self, view, memo, now)

    def _next_division(self, elastic: Mapping[int, JobRecord], now: int, *, is_quiet: bool) -> int:
        """The end of the interval; later where only the ages of jobs can still change anything."""
        patience = 1
        if is_quiet:
            youngest = min(now - record.job.submit_ms for record in elastic.values())
            patience = max(1, youngest // PATIENCE)
        return ((now + patience - 1) // self._interval + 1) * self._interval

    # -- dividing ------------------------------------------------------------------------------

    def _terms(self, record: JobRecord, *, memo: GoodputMemo, now: int, is_due: bool) -> JobTerms:
        """The terms of a job for the division; between intervals runs keep their size."""
        held = len(record.placement.slices) if record.placement is not None else 0
        history = memo.stories.get(record.id, ResizeHistory())
        if held and not is_due:
            return JobTerms(held, held, fixed=memo.owed.get(record.id, held))
        age, cost = now - record.job.submit_ms, self._cost_ms
        penalty = max(0, age - history.moves * cost) / (age + cost) if cost else 1.0
        return JobTerms(held, 2 * max(held, history.most), penalty)


def _owed(plan: Plan, claims: Iterable[GpuClaim]) -> FrozenMap[str, int]:
    """Growth in the division that the plan does not contain yet."""
    done = {each.job for each in plan.actions if isinstance(each, Resize)}
    return FrozenMap(
        {
            claim.record.id: claim.count
            for claim in claims
            if claim.record.placement is not None
            and claim.count > len(claim.record.placement.slices)
            and claim.record.id not in done
        }
    )


def _updated_histories(
    plan: Plan, stories: FrozenMap[str, ResizeHistory]
) -> FrozenMap[str, ResizeHistory]:
    """The histories updated with the plan; a first start does not count as a reallocation."""
    news = {}
    for action in plan.actions:
        if isinstance(action, Start | Resume | Resize):
            known, size = stories.get(action.job), len(action.placement.slices)
            news[action.job] = (
                ResizeHistory(0, size)
                if known is None
                else ResizeHistory(known.moves + 1, max(known.most, size))
            )
    return stories.updated(news)
