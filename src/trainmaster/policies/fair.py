"""Fair sharing between queues (YARN's Fair Scheduler), with GPUs as the resource and gangs kept whole.

Weighted max-min over queues that may lie in each other, with guaranteed and maximum GPUs. Free GPUs
are offered to queues below their guarantee first, then by usage / weight; what a queue does not use
others borrow. A queue *starves* while it holds less than `share_threshold` of its fair share among the
active queues, or less than its guarantee, and wants more. When it has starved for `preempt_timeout_s`
and the cluster is fuller than `utilisation_threshold`, it gets its share back: whole gangs, the
most recently started first, only from queues above their own share and only while they keep
it. Inside a queue: `inner`, first in first out with skipping unless told otherwise.

`half_life_s` > 0 gives it a memory (as Slurm's fair share): the fading average of what a queue held
takes the place of its usage in the order of offers, and lessens its weight in the division of what
there is by 2^-(average / steady share). Fair shares, and so starving, stay those of the plain weights.

Deviations. Preemption is on (YARN: off, timeouts never); one timeout for both kinds of starving. It
gives back up to the whole share, min(fair share, demand) - usage (YARN 3: only up to the threshold).
Starving is noticed at facts and timers, not every 500 ms. Budgets are max-min with demand; YARN offers
one container after another. For a guarantee a borrower may be left with less than its share.
"""

from __future__ import annotations

from typing import ClassVar

from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.mechanisms.fair_share.fair_sharing import FairMemo, FairOptions, FairSharing
from trainmaster.mechanisms.fair_share.hierarchical_policy import capacity
from trainmaster.model.plan import FrozenMap, Plan
from trainmaster.model.reasons import Reason


class Fair(FairSharing[FairOptions, FairMemo]):
    name = "fair"
    options_type = FairOptions
    memo_type = FairMemo
    inner_defaults: ClassVar = {"fifo": {"backfill": "skip"}}

    def __init__(self, options: FairOptions) -> None:
        super().__init__(options, options)

    def plan(self, view: View, memo: FairMemo, now: int) -> Plan[FairMemo]:
        total, averages = capacity(view), self._averages(memo, now)
        round_ = self.begin(view, memo.rounds, now, *averages)
        starving = FrozenMap[str, int]()
        if view.has_nothing_to_schedule():
            round_.take_note()
        elif not (round_.is_enough_for_all(total) and round_.serve_all()):
            self._divide(round_, total, averages)
            round_.plan_within_budgets()
            if self.is_preemptive:
                self._take_back(round_, memo.starving, total)
            round_.lend()
            starving = FrozenMap(self._starving_since(round_, memo.starving))
        usage = self._noted(round_, averages)
        wake = self._wake_at(round_, starving)
        return round_.draft.plan(FairMemo(round_.memo(), starving, usage), wake)

    def wake(self, view: View, memo: FairMemo, now: int) -> int | None:
        return self.wake_of(view, memo.rounds, now)

    def explain(self, view: View, memo: FairMemo, record: JobRecord, now: int) -> Reason:
        return self.explain_in(view, memo.rounds, record, now)
