"""Fairness between organisations, an inner policy inside (two-level scheduling).

Level 1 divides the GPUs between the queues that have jobs: weighted max-min, never more than a queue
wants, within its guaranteed and maximum GPUs, level by level where queues lie in each other. Level 2 is
any policy (`inner`, by default Tiresias-L) on its queue's part. GPUs that a queue does not
use are lent, and taken back as soon as a queue below its part has a job for them: the worst in the
inner line first, whole gangs, and only while the borrower keeps its own part. Only for what a queue is
guaranteed may a borrower be left with less than its part, though never with less than its guarantee.

A job that may have types of devices of different speed, such as CPU slots and GPUs, gets the type where it
is expected to end first (`type_choice`; mechanisms/type_choice.py).

Deviations: the proposal states neither loans nor gangs, and asks how CPUs and GPUs go together without an
answer; these rules are ours.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainmaster.config.options import choice, option
from trainmaster.core.draft import Draft
from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.mechanisms.fair_share.hierarchical_policy import (
    HierarchicalPolicy,
    QueueOptions,
    capacity,
    inner_policy,
)
from trainmaster.mechanisms.fair_share.queue_pass import QueuePass, QueuePassMemo
from trainmaster.mechanisms.fair_share.reclaim import reclaim_and_lend
from trainmaster.mechanisms.type_choice import (
    FIRST_END,
    TYPE_CHOICE_HELP,
    TYPE_CHOICES,
    TypeChoice,
)
from trainmaster.model.plan import Plan
from trainmaster.model.reasons import Reason


@dataclass(frozen=True, slots=True)
class TwoLevelOptions(QueueOptions):
    inner: str = option("tiresias-l", inner_policy, "the policy inside each queue")
    type_choice: str = option(FIRST_END, choice(*TYPE_CHOICES), TYPE_CHOICE_HELP)


class TwoLevel(HierarchicalPolicy[TwoLevelOptions, QueuePassMemo]):
    name = "two-level"
    options_type = TwoLevelOptions
    memo_type = QueuePassMemo

    def plan(self, view: View, memo: QueuePassMemo, now: int) -> Plan[QueuePassMemo]:
        round_, total = self.begin(view, memo, now), capacity(view)
        if self.options.type_choice == FIRST_END:
            round_.choice = TypeChoice.of(view, round_.draft, now)
        if view.has_nothing_to_schedule():
            round_.take_note()
        elif round_.is_enough_for_all(total):
            round_.serve_all()
        else:
            self._share_out(round_, total)
        if round_.choice is not None:
            round_.wake_by(round_.choice.next_look())
        return round_.draft.plan(round_.memo(), round_.wake_at())

    def _share_out(self, round_: QueuePass, total: int) -> None:
        round_.tree.divide_budgets(total)
        round_.plan_within_budgets()
        reclaim_and_lend(round_)

    def wake(self, view: View, memo: QueuePassMemo, now: int) -> int | None:
        return self.wake_of(view, memo, now)

    def explain(self, view: View, memo: QueuePassMemo, record: JobRecord, now: int) -> Reason:
        reason = self.explain_in(view, memo, record, now)
        types = TypeChoice.of(view, Draft(view), now)
        if types is None or self.options.type_choice != FIRST_END:
            return reason
        return types.explained(record, self.placer, reason)
