"""Tiresias-G (Gu et al., NSDI'19): the queues of Tiresias-L, and inside a queue the Gittins index.

Queues, demotion, promotion and placement are those of `tiresias-l`. Inside a queue the job with the
highest index goes first, for a service quantum as long as the queue's limit, without end in the last
queue: the chance to end within the quantum over the service expected until then. The distribution of
service comes from `service_samples` or is learned (estimators/service/). Jobs of equal index, and
all of them until enough have been seen to learn from, are served in order of first start, as in
`tiresias-l`.

Deviations. Those of `tiresias-l`. Indices change in steps of service (a factor of 2 where learned, of
1.05 where more than 64 different samples are given); with fewer they are exact, and that a sample has
been passed is noticed at whole seconds. The authors' simulator uses one quantum (3,250) for all queues
and averages total instead of remaining service; ours does not.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from trainmaster.core.rank_index import RankIndex
from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.estimators.service.bins import NO_END
from trainmaster.estimators.service.gittins_source import (
    Samples,
    classes_option,
    gittins_source,
    samples_option,
)
from trainmaster.estimators.service.predictor import Observations
from trainmaster.mechanisms.discretized_queues import (
    NEVER,
    DiscretizedQueues,
    Resets,
    TiresiasOptions,
    whole_second,
)
from trainmaster.model.codec import stored_as
from trainmaster.model.plan import FrozenMap, Plan, Rank
from trainmaster.model.units import ceil_div

STARTS = 2 * NEVER
"""First starts are smaller: they order jobs of the same index."""


@dataclass(frozen=True, slots=True)
class TiresiasGOptions(TiresiasOptions):
    service_samples: Samples = samples_option()
    classes: str = classes_option()


@stored_as("tiresias-g.Memo")
@dataclass(frozen=True, slots=True)
class TiresiasGMemo:
    """Attained service at the last promotion by job, and what is known of service."""

    resets: Resets = field(default_factory=FrozenMap)
    learned: Observations = field(default_factory=Observations)


class TiresiasG(DiscretizedQueues[TiresiasGMemo]):
    name = "tiresias-g"
    options_type = TiresiasGOptions
    memo_type = TiresiasGMemo

    def __init__(self, options: TiresiasGOptions) -> None:
        super().__init__(options)
        self._samples, self._classes = options.service_samples, options.classes
        self._service = gittins_source(self._samples, self._classes)

    def forget(self) -> None:
        super().forget()
        self._service = gittins_source(self._samples, self._classes)

    def plan(self, view: View, memo: TiresiasGMemo, now: int) -> Plan[TiresiasGMemo]:
        learned = self._service.learn(memo.learned, view, now)
        plan = self.run_queues(view, memo.resets, now, partial(self._by_index, learned))
        if plan.memo is not memo.resets or learned is not memo.learned:
            memo = TiresiasGMemo(plan.memo, learned)
        return Plan(plan.actions, memo, plan.wake_at)

    def queue_ranking(self, view: View, memo: TiresiasGMemo, now: int) -> RankIndex:
        return self.queue_order(view, memo.resets, now, partial(self._by_index, memo.learned))

    def _by_index(
        self, learned: Observations, record: JobRecord, queue: int, base: int, attained: int
    ) -> Rank:
        """By 1/G within the queue, then first start; holds until the index changes.

        Between two samples 1/G = (sum of the samples within reach + reach of all others) / how many are
        within reach - attained: a straight line.
        """
        quantum = self.limits[queue] if queue < len(self.limits) else None
        inverse, changes_at = self._service.cost_within(learned, record, attained, quantum)
        _, start, _, until = self.by_start(record, queue, base, attained)
        if record.since_ms is not None and changes_at is not None:
            missing = changes_at + base - record.attained
            at = whole_second(record.since_ms + ceil_div(missing, record.rate))
            until = at if until is None or at < until else until
        value, rate = inverse, 0
        if record.since_ms is not None and self._service.falls and inverse < NO_END:
            value += attained + base - record.attained + record.since_ms * record.rate
            rate = -record.rate
        return Rank(queue, value * STARTS + start, rate * STARTS, until)
