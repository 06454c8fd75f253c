"""Optimus (Peng et al., EuroSys'18): workers by marginal gain in completion time, decided every interval.

At whole multiples of `interval_s` all GPUs are divided again: every job, in order of arrival, gets its
minimum while GPUs last; then single workers go to the job whose predicted completion they bring forward
most per GPU (section 4.1: `marginal_gain`). Remaining work comes from the fitted loss curve and speed
from the fitted parameter-server model, both from reports of progress (section 3: `forecast`). Placement
is even over the fewest servers (section 4.2: `workers`).

Deviations. Parameter servers need no GPUs here: their number is tied to that of workers, and only
workers are allocated. Gangs: a job's minimum stands for its first worker; rigid jobs get all or nothing.
Between intervals, jobs that arrive or wait share GPUs that are free, by the same rule, and runs are left
alone. A run keeps its GPUs when it grows or shrinks, so it may end up less evenly placed than the rule
says. No extra runs on samples of the data: a job's speed is predicted until it has run. Runs on parts of
GPUs are neither resized nor suspended.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainmaster.config.options import choice, option, positive_seconds
from trainmaster.core.draft import Draft
from trainmaster.core.lifecycle import HIDDEN_PHASES, Phase
from trainmaster.core.rank_index import RankIndex
from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.mechanisms.base_policy import BasePolicy
from trainmaster.mechanisms.gpu_claims import Pool
from trainmaster.mechanisms.preemption_guards import PreemptiveOptions
from trainmaster.mechanisms.preemptive_scheduling import evacuate
from trainmaster.mechanisms.resize import at_current_size, can_resize
from trainmaster.model.codec import stored_as
from trainmaster.model.plan import FrozenMap, Plan, Rank
from trainmaster.model.units import WHOLE, to_ms
from trainmaster.policies.optimus.convergence_forecast import ConvergenceForecasts
from trainmaster.policies.optimus.worker_allocation import (
    WorkerAllocation,
    allocation_order,
    pool_of,
)
from trainmaster.policies.optimus.worker_placement import WorkerPlacement

NOTHING_OWED: FrozenMap[str, int] = FrozenMap()
TRIES = 3
"""Divisions tried in one pass; the last suspends no run, so that no suspension is futile."""


@dataclass(frozen=True, slots=True)
class OptimusOptions(PreemptiveOptions):
    interval_s: float = option(600.0, positive_seconds, "seconds between reallocations")
    learn: str = option(
        "fit",
        choice("fit", "given"),
        "source of work and speed: fits to reported progress, or estimates",
    )


@stored_as("optimus.Memo")
@dataclass(frozen=True, slots=True)
class OptimusMemo:
    """Number of workers that runs will get as soon as other runs have released GPUs."""

    owed: FrozenMap[str, int] = NOTHING_OWED


class Optimus(BasePolicy[OptimusOptions, OptimusMemo]):
    name = "optimus"
    options_type = OptimusOptions
    memo_type = OptimusMemo
    profiles = True
    is_moldable = True
    worker_placement = WorkerPlacement
    """How numbers of workers become placements."""

    def __init__(self, options: OptimusOptions) -> None:
        super().__init__(options)
        self._interval = to_ms(options.interval_s)
        self.progress_every_ms = self._interval if options.learn == "fit" else None
        self._forecasts: ConvergenceForecasts | None = None
        self._elastic: dict[int, JobRecord] | None = None

    def forget(self) -> None:
        super().forget()
        self._forecasts = self._elastic = None

    def rank(self, view: View, record: JobRecord, now: int) -> Rank:
        """Order of arrival."""
        if self._elastic is not None and record.demand.is_elastic:
            self._elastic[record.seq] = record
        return Rank(0, 0)

    # -- one pass --------------------------------------------------------------------------------

    def plan(self, view: View, memo: OptimusMemo, now: int) -> Plan[OptimusMemo]:
        if view.has_nothing_to_schedule() and not self._has_elastic(view):
            return Plan((), OptimusMemo())
        ranks = self.ranked_jobs(view, now, with_running=True)
        draft = Draft(view)
        if view.draining:
            evacuate(view, draft, at_current_size)
        if now % self._interval == 0:
            workers = self._divide(view, draft, now)
        else:
            workers = self._fill(view, draft, ranks, memo, now)
        left = OptimusMemo(FrozenMap(workers.owed))
        return draft.plan(left, self._next_division(view, draft, ranks, now))

    def wake(self, view: View, memo: OptimusMemo, now: int) -> int | None:
        """Immediately, if released GPUs are due to another run."""
        return now + 1 if memo.owed else None

    def _next_division(self, view: View, draft: Draft, ranks: RankIndex, now: int) -> int | None:
        """The end of the interval, while something runs and a division could change anything."""
        if draft.is_empty() and not ranks.has_running():
            return None
        if not ranks.has_waiting() and not self._has_elastic(view):
            return None
        return (now // self._interval + 1) * self._interval

    # -- at the end of an interval ---------------------------------------------------------------

    def _divide(self, view: View, draft: Draft, now: int) -> WorkerPlacement:
        """Divide all GPUs; if a job fits nowhere, divide again without it."""
        movable_runs = [each for each in view.running() if self._is_movable(each, draft, now)]
        left_out: set[int] = set()
        mark = draft.checkpoint()
        for tries_left in reversed(range(TRIES)):
            waiting = [each for each in view.waiting() if each.group not in left_out]
            allocation = self.allocation(view, pool_of(draft, movable_runs), now)
            runs_first = not tries_left
            for record in allocation_order(
                (*movable_runs, *waiting), self.guards, now, runs_first=runs_first
            ):
                allocation.give_least(record)
            allocation.give_more()
            workers = self.worker_placement(draft)
            workers.carry_out(allocation.targets, allocation.movers)
            if not workers.unplaced or not allocation.suspends():
                break
            left_out.update(record.group for record in workers.unplaced)
            draft.roll_back(mark)
        self._start_parts(view, workers)
        return workers

    def _is_movable(self, record: JobRecord, draft: Draft, now: int) -> bool:
        return (
            record.phase is Phase.RUNNING
            and not draft.is_touched(record)
            and can_resize(record, draft.space)
            and self.guards.may_preempt(record, now)
        )

    # -- meanwhile -------------------------------------------------------------------------------

    def _fill(
        self, view: View, draft: Draft, ranks: RankIndex, memo: OptimusMemo, now: int
    ) -> WorkerPlacement:
        """Grow runs that are due workers; waiting jobs share the remaining free GPUs."""
        workers, pool = self.worker_placement(draft), pool_of(draft, ())
        for job, count in memo.owed.items():
            record = view.jobs.get(job)
            if record is not None and self._is_movable(record, draft, now):
                pool.reserve(workers.grow(record, count) * WHOLE)
        allocation = self.allocation(view, pool, now)
        candidates = ranks.candidates(now)
        for _, group, record in candidates:
            if not allocation.give_least(record):
                candidates.drop(group)
        allocation.give_more()
        workers.carry_out(allocation.targets)
        if allocation.has_refused_parts:
            self._start_parts(view, workers)
        return workers

    def _start_parts(self, view: View, workers: WorkerPlacement) -> None:
        """Start jobs for fractions of GPUs on shared GPUs with room, if no whole GPU was left for them."""
        for record in view.waiting():
            if not record.is_whole and not workers.draft.is_placed(record):
                workers.start(record, record.demand.nominal.count)

    def allocation(self, view: View, pool: Pool, now: int) -> WorkerAllocation:
        if self._forecasts is None:
            learns = self.options.learn == "fit"
            self._forecasts = ConvergenceForecasts(
                view.topology, learns=learns, unknown_ms=self._interval
            )
        return WorkerAllocation(view.occupancy, pool, self._forecasts, now)

    def _has_elastic(self, view: View) -> bool:
        """Whether a live job could be given another number of workers."""
        if self._elastic is None:
            live = view.jobs.values()
            self._elastic = {record.seq: record for record in live if record.demand.is_elastic}
        for seq, record in list(self._elastic.items()):
            if record.phase not in HIDDEN_PHASES:
                return True
            del self._elastic[seq]
            if self._forecasts is not None:
                self._forecasts.forget(record)
        return False
