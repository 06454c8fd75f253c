"""Two-dimensional Gittins index (Tiresias, NSDI'19, section 3): the job likeliest to end soon runs first.

With a distribution of the service (GPUs x time) that jobs take, a job that has attained a has the
index G(a) = sup over D of P(S - a <= D | S > a) / E[min(S - a, D) | S > a], completions per GPU-second;
the highest runs first. The distribution comes from `service_samples`, or is learned from ended
and running jobs, by class (estimators/service/; `classes` says how finely): until enough
have ended the order is least attained service. Indices of running jobs are updated at whole
multiples of `quantum_s`.

Deviations. Ties go to the earlier first start, so that equals do not take turns. Learned indices, and
those of more than 64 different samples, change in steps of service (a factor of 1.41, or 1.05), not
continuously. The authors' simulator averages total instead of remaining service in the denominator and
looks samples up one off; ours does not. Figure 7's panel is not what the printed formula gives
(docs/policies/gittins.md).
"""

from __future__ import annotations

from dataclasses import dataclass

from trainmaster.config.options import option, positive_seconds
from trainmaster.core.draft import Draft
from trainmaster.core.rank_index import RankIndex
from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.estimators.service.gittins_source import (
    Samples,
    classes_option,
    gittins_source,
    samples_option,
)
from trainmaster.estimators.service.predictor import Observations
from trainmaster.mechanisms.base_policy import BasePolicy
from trainmaster.mechanisms.preemption_guards import PreemptiveOptions
from trainmaster.mechanisms.preemptive_scheduling import run_in_order
from trainmaster.model.plan import Plan, Rank
from trainmaster.model.units import ceil_div, to_ms

NEVER = 1 << 62
"""Rank value of a job that has not started: behind jobs of equal index that have."""


@dataclass(frozen=True, slots=True)
class GittinsOptions(PreemptiveOptions):
    quantum_s: float = option(
        60.0, positive_seconds, "seconds between priority updates while jobs wait"
    )
    service_samples: Samples = samples_option()
    classes: str = classes_option()


class Gittins(BasePolicy[GittinsOptions, Observations]):
    name = "gittins"
    options_type = GittinsOptions
    memo_type = Observations

    def __init__(self, options: GittinsOptions) -> None:
        super().__init__(options)
        self._quantum_ms = to_ms(options.quantum_s)
        self.service = gittins_source(options.service_samples, options.classes)

    def forget(self) -> None:
        super().forget()
        self.service = gittins_source(self.options.service_samples, self.options.classes)

    def plan(self, view: View, memo: Observations, now: int) -> Plan[Observations]:
        seen = self.service.learn(memo, view, now)
        if view.has_nothing_to_schedule():
            return Plan((), seen)
        ranks = self.queue_ranking(view, seen, now)
        if view.is_stable(ranks, now):
            return Plan((), seen, ranks.next_expiry())
        draft = Draft(view)
        run_in_order(
            *(view, draft, ranks, now, self.group, self.placer, self.failed_placements),
            choice=self.type_choice,
        )
        return draft.plan(seen, ranks.next_expiry())

    def wake(self, view: View, memo: Observations, now: int) -> int | None:
        """When to plan again after a run has started: its index will change at a known time."""
        return (
            None
            if view.has_nothing_to_schedule()
            else self.queue_ranking(view, memo, now).next_expiry()
        )

    def queue_ranking(self, view: View, memo: Observations, now: int) -> RankIndex:
        return self.ranked_by(view, lambda record: self.rank_of(memo, record, now), now)

    def rank_of(self, seen: Observations, record: JobRecord, now: int) -> Rank:
        """By 1/G, then first start; holds until the quantum in which the index changes has ended."""
        looked_at = max(record.since_ms or 0, now // self._quantum_ms * self._quantum_ms)
        inverse, changes_at = self.service.cost(seen, record, record.attained_at(looked_at))
        start = NEVER if record.first_start_ms is None else record.first_start_ms
        until = None
        if record.since_ms is not None and changes_at is not None:
            at = record.since_ms + ceil_div(changes_at - record.attained, record.rate)
            until = ceil_div(at, self._quantum_ms) * self._quantum_ms
        return Rank(inverse, start, until_ms=until)
