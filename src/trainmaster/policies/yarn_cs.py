"""YARN's capacity scheduler as Tiresias' baseline (NSDI'19, Table 2): FIFO, consolidated placement.

One queue in order of submission; a gang starts only on the fewest nodes that can hold it, within one
rack if possible, else it waits, and (with `backfill` none) so do all jobs behind it. No
preemption. Deviation: capacities of several queues are not modelled; `fair` does that.
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
from trainmaster.model.plan import Plan, Rank
from trainmaster.placement.placers import CONSOLIDATED, Placer


@dataclass(frozen=True, slots=True)
class YarnCsOptions:
    backfill: str = option(
        "none", choice(*BACKFILL), "which jobs may start before a head that does not fit"
    )


class YarnCs(BasePolicy[YarnCsOptions]):
    name = "yarn-cs"
    options_type = YarnCsOptions
    preempts = False

    def placer(self, record: JobRecord) -> Placer:
        return CONSOLIDATED

    def __init__(self, options: YarnCsOptions) -> None:
        super().__init__(options)
        self.allows_overtaking = options.backfill == "skip"

    def rank(self, view: View, record: JobRecord, now: int) -> Rank:
        return Rank(-record.job.priority, record.job.submit_ms)

    def plan(self, view: View, memo: None, now: int) -> Plan[None]:
        if view.has_nothing_to_schedule():
            return Plan((), memo)
        order = self.ranked_jobs(view, now, with_running=False)
        draft = Draft(view)
        if view.draining:
            evacuate(view, draft, self.placer)
        start_in_order(view, draft, order, now, self.placer, self.options.backfill)
        return draft.plan(memo)
