"""First in, first out: the order of submission (higher `priority` first), without preemption.

`backfill` none: strict order, the head holds all others up. `skip`: any job that fits may start. `easy`
(Lifka, JSSPP'95): a later job may start if the head's expected start is not delayed; what the head
will need is reserved for it. `elastic` says what jobs that declare min_gpus..max_gpus get: `rigid`
their nominal number; `moldable` at the start as many as are free, from nominal down to their minimum;
`malleable` also grows into idle GPUs of its nodes while no job waits, up to its maximum, and shrinks
back to nominal when one does. Deviations: none; mean JCT on philly1k equals two other
simulators' to the millisecond.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainmaster.config.options import choice, option
from trainmaster.core.draft import Draft
from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.mechanisms.backfill import BACKFILL, start_in_order
from trainmaster.mechanisms.base_policy import BasePolicy
from trainmaster.mechanisms.preemptive_scheduling import evacuate
from trainmaster.mechanisms.resize import ELASTIC_MODES, grow_into_idle, shrink_to_nominal
from trainmaster.model.plan import Plan, Rank


@dataclass(frozen=True, slots=True)
class FifoOptions:
    backfill: str = option(
        "none", choice(*BACKFILL), "which jobs may start before a head that does not fit"
    )
    elastic: str = option(
        "rigid",
        choice(*ELASTIC_MODES),
        "how elastic jobs may differ from their nominal size",
    )


class Fifo(BasePolicy[FifoOptions]):
    name = "fifo"
    options_type = FifoOptions
    preempts = False

    def __init__(self, options: FifoOptions) -> None:
        super().__init__(options)
        self.is_moldable = options.elastic != "rigid"
        self.allows_overtaking = options.backfill == "skip"

    def rank(self, view: View, record: JobRecord, now: int) -> Rank:
        return Rank(-record.job.priority, record.job.submit_ms)

    def plan(self, view: View, memo: None, now: int) -> Plan[None]:
        if view.has_nothing_to_schedule() and self.options.elastic != "malleable":
            return Plan((), memo)
        order = self.ranked_jobs(view, now, with_running=False)
        draft = Draft(view)
        if view.draining:
            evacuate(view, draft, self.placer)
        options = self.options
        if options.elastic == "malleable" and order.has_waiting():
            shrink_to_nominal(draft, view.running())
        choice = self.type_choice
        everyone = start_in_order(
            *(view, draft, order, now),
            self.placer if choice is None else choice.placers(self.placer),
            options.backfill,
            can_mold=self.is_moldable,
            choice=choice,
        )
        if options.elastic == "malleable" and everyone:
            grow_into_idle(draft, view.running())
        return draft.plan(memo)
