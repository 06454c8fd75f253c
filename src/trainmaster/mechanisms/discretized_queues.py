"""Discretised queues by attained service (Tiresias, NSDI'19), with promotion and skew-based placement."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from trainmaster.config.options import at_least_zero, fraction, increasing, option
from trainmaster.core.draft import Draft
from trainmaster.core.rank_index import RankIndex
from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.mechanisms.base_policy import BasePolicy, M
from trainmaster.mechanisms.preemption_guards import PreemptiveOptions
from trainmaster.mechanisms.preemptive_scheduling import run_in_order
from trainmaster.model.plan import FrozenMap, Plan, Rank
from trainmaster.model.units import NOMINAL, SECOND, WHOLE, ceil_div
from trainmaster.perf.model_zoo import skew_ppm
from trainmaster.placement.placers import CONSOLIDATED, RELAXING, Placer

NEVER = 1 << 62
"""Rank value of a job that has not started: behind all that have."""

Resets = FrozenMap[str, int]
"""Attained service at the last promotion, by job."""
PlaceInQueue = Callable[[JobRecord, int, int, int], Rank]
"""The rank of a job, by its queue, its last reset and the service that it has attained since."""


@dataclass(frozen=True, slots=True)
class TiresiasOptions(PreemptiveOptions):
    thresholds_gpu_s: tuple[float, ...] = option(
        (3250.0, 7200.0, 18000.0), increasing, "queue limits in GPU-seconds; n limits, n+1 queues"
    )
    promote_knob: float = option(
        0.0,
        at_least_zero,
        "back to the first queue after waiting this many times its run time; 0: off",
    )
    pack_limit: float = option(0.4, fraction, "consolidate models more skewed than this")


class DiscretizedQueues(BasePolicy[TiresiasOptions, M]):
    """Queues by attained service; each policy says how jobs are ordered inside a queue."""

    def __init__(self, options: TiresiasOptions) -> None:
        super().__init__(options)
        self._placers: dict[str, Placer] = {}
        self.limits = [round(limit * SECOND * WHOLE) for limit in options.thresholds_gpu_s]
        self._knob_ppm = round(options.promote_knob * NOMINAL)
        self._pack_limit_ppm = round(options.pack_limit * NOMINAL)

    def group(self, record: JobRecord) -> Hashable:
        return (record.group, self.placer(record).insists)

    def placer(self, record: JobRecord) -> Placer:
        model = record.job.model
        found = self._placers.get(model)
        if found is None:
            is_skewed = skew_ppm(model) > self._pack_limit_ppm
            found = self._placers[model] = CONSOLIDATED if is_skewed else RELAXING
        return found

    def run_queues(self, view: View, resets: Resets, now: int, place: PlaceInQueue) -> Plan[Resets]:
        """Demote, promote and run; the plan's memo is the resets."""
        if view.has_nothing_to_schedule():
            return Plan((), resets)
        promoted: dict[str, int] = {}

        def rank(record: JobRecord) -> Rank:
            if self._is_starving(record, resets, now):
                promoted[record.id] = record.attained
            base = promoted.get(record.id, resets.get(record.id, 0))
            return self._rank_from(record, base, now, place)

        ranks = self.ranked_by(view, rank, now)
        if promoted:
            resets = resets.updated(promoted).only(view.jobs)
        elif view.is_stable(ranks, now):
            return Plan((), resets, ranks.next_expiry())
        draft = Draft(view)
        run_in_order(
            *(view, draft, ranks, now, self.group, self.placer, self.failed_placements),
            choice=self.type_choice,
        )
        return draft.plan(resets, ranks.next_expiry())

    def queue_order(self, view: View, resets: Resets, now: int, place: PlaceInQueue) -> RankIndex:
        """Every job by its queue and its place in it."""

        def rank(record: JobRecord) -> Rank:
            return self._rank_from(record, resets.get(record.id, 0), now, place)

        return self.ranked_by(view, rank, now)

    def wake(self, view: View, memo: M, now: int) -> int | None:
        """A run that has just started will cross its threshold at a time that is known now."""
        ranks = None if view.has_nothing_to_schedule() else self.queue_ranking(view, memo, now)
        return None if ranks is None else ranks.next_expiry()

    def _rank_from(self, record: JobRecord, base: int, now: int, place: PlaceInQueue) -> Rank:
        """Queue by service since the last promotion, then the place in it; holds until it changes."""
        attained = record.attained - base
        if record.since_ms is not None:
            attained = record.attained_at(_last_whole_second(record.since_ms, now)) - base
        return place(record, bisect_right(self.limits, attained), base, attained)

    def by_start(self, record: JobRecord, queue: int, base: int, attained: int) -> Rank:
        """First started, first served."""
        start = NEVER if record.first_start_ms is None else record.first_start_ms
        until = None
        if record.since_ms is not None:
            if queue < len(self.limits):
                missing = self.limits[queue] + base - record.attained
                until = whole_second(record.since_ms + ceil_div(missing, record.rate))
        elif queue and self._knob_ppm and record.placement is None:
            until = record.waiting_since_ms + self._patience(record, base)
        return Rank(queue, start, until_ms=until)

    def _is_starving(self, record: JobRecord, resets: Resets, now: int) -> bool:
        """Started, waiting, not in the first queue, and out of patience."""
        if not self._knob_ppm or record.placement is not None or record.first_start_ms is None:
            return False
        base = resets.get(record.id, 0)
        if record.attained - base < self.limits[0] or record.since_ms is not None:
            return False
        return now - record.waiting_since_ms >= self._patience(record, base)

    def _patience(self, record: JobRecord, base: int) -> int:
        """Knob x time executed since the last promotion, in ms; at least one."""
        executed = (record.attained - base) // record.demand.nominal.total_share
        return max(1, ceil_div(self._knob_ppm * executed, NOMINAL))


def _last_whole_second(since_ms: int, now: int) -> int:
    """When demotion was last checked: a whole second, or the start of the current run."""
    return max(since_ms, now // SECOND * SECOND)


def whole_second(ms: int) -> int:
    return ceil_div(ms, SECOND) * SECOND
