"""Trainmaster's own policy: what the published systems taught, put together, each part an option.

Who goes first. Jobs run in order of a Gittins index (Tiresias, NSDI'19), the service that a completion is
expected to cost, foreseen from jobs like it that ended or go on: its class (`learn`), its user's runs of
the same program (`history`), and above all its `siblings`, the jobs submitted just before and after it.
Until anything is known the order is least attained service. A rank counts for at most `cap` times what
a job has had, and whoever falls too far behind its fair share is owed a run (`guard_ratio`).

Preemption has to pay. A waiting job is charged what a change of hands was seen to cost
(`charge_switches`), a running one counts `keep` of its rank, and no run is younger than `min_run_s` or
than twice that cost.

Where it goes. A gang waits for near GPUs as long as that pays, by what distance was seen to cost its
model (`locality`). While jobs wait, single-GPU jobs share a GPU where that gains (`packing`), elastic
ones shrink to let others in (`shrink`), and grow into what nobody waits for (`grow`).

Between queues that were stated, GPUs are divided max-min, with a memory of who used more than its share
(`half_life_s`); inside a queue the order is the one above. A job with a deadline is told at submission
whether it can be kept (`deadlines`), and an accepted one goes first when it has to.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from trainmaster.core.rank_index import RankIndex
from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.mechanisms.fair_share.decayed_fair_share import (
    SharesMemo,
    noted,
    remembered,
    share_out,
)
from trainmaster.mechanisms.fair_share.hierarchical_policy import BetweenQueues, capacity
from trainmaster.model.codec import stored_as
from trainmaster.model.deadline_notices import DeadlineNotice
from trainmaster.model.plan import Plan
from trainmaster.model.reasons import Reason
from trainmaster.model.units import to_ms
from trainmaster.policies.trainmaster.cluster_pass import LineMemo, WholeCluster
from trainmaster.policies.trainmaster.options import TrainmasterOptions
from trainmaster.policies.trainmaster.ranking import Knowing, Knowledge
from trainmaster.policies.trainmaster.single_queue import OneLine


@stored_as("trainmaster.Memo")
@dataclass(frozen=True, slots=True)
class Memo:
    """What is known and promised, and how queues have fared."""

    knowledge: Knowledge = field(default_factory=Knowledge)
    line: LineMemo = field(default_factory=LineMemo)
    shares: SharesMemo = field(default_factory=SharesMemo)


class Trainmaster(BetweenQueues[TrainmasterOptions, Memo]):
    name = "trainmaster"
    options_type = TrainmasterOptions
    profiles = True

    def __init__(self, options: TrainmasterOptions) -> None:
        self._knowing = Knowing(options.terms())
        super().__init__(options)
        self._line = WholeCluster(self._knowing, options.line_terms())
        self._half_life_ms = to_ms(options.half_life_s)
        self._was_divided: bool | None = None

    def _new_line(self, _: object = None) -> Any:
        return OneLine(self._knowing)

    def chosen_inner(self, options: TrainmasterOptions) -> tuple[Any, object]:
        return self._new_line, None

    @property
    def is_moldable(self) -> bool:
        return self._line.is_moldable

    def keeps_promises(self, kind: object) -> bool:
        return True

    def first_memo(self) -> Memo:
        return Memo()

    def forget(self) -> None:
        super().forget()
        self._line.forget()
        self._knowing.forget()

    # -- a pass ------------------------------------------------------------------------------------

    def plan(self, view: View, memo: Memo, now: int) -> Plan[Memo]:
        known, notices = self._knowing.learn(view, memo.knowledge, now)
        self.guards = self._knowing.guards
        memo = replace(memo, knowledge=known)
        if self._divides(view):
            return self._plan_between(view, memo, notices, now)
        plan = self._line.plan(view, memo.line, now)
        if plan.memo is not memo.line:
            memo = replace(memo, line=plan.memo)
        return Plan(plan.actions, memo, self._sooner(plan.wake_at, view, now), notices)

    def _sooner(self, wake: int | None, view: View, now: int) -> int | None:
        times = (wake, self._knowing.wake(view, now))
        return min((at for at in times if at is not None), default=None)

    def _divides(self, view: View) -> bool:
        """Whether queues were stated: where they were not, all jobs stand in one line."""
        divides = bool(view.queues or self.options.queues.items)
        if self._was_divided is not None and divides is not self._was_divided:
            view.forget()
        self._was_divided = divides
        return divides

    def _plan_between(
        self, view: View, memo: Memo, notices: tuple[DeadlineNotice, ...], now: int
    ) -> Plan:
        total = capacity(view)
        shares = remembered(memo.shares, now, self._half_life_ms)
        round_ = self.begin(view, shares.rounds, now, *shares.usage.average)
        if view.is_settled():
            round_.take_note()
        elif not (round_.is_enough_for_all(total) and round_.serve_all()):
            promised = self._knowing.promised_now(view, now)
            share_out(round_, shares, total, self._half_life_ms, promised)
        memo = replace(memo, shares=noted(round_, shares, self._half_life_ms))
        return round_.draft.plan(memo, self._sooner(round_.wake_at(), view, now), notices)

    def wake(self, view: View, memo: Memo, now: int) -> int | None:
        self._knowing.show(memo.knowledge)
        self.guards = self._knowing.guards
        if self._divides(view):
            wake = self.wake_of(view, memo.shares.rounds, now)
        else:
            wake = self._line.wake(view, memo.line, now)
        return self._sooner(wake, view, now)

    def line(self, view: View, memo: Memo, now: int) -> RankIndex | None:
        return None

    def explain(self, view: View, memo: Memo, record: JobRecord, now: int) -> Reason:
        self._knowing.show(memo.knowledge)
        if self._divides(view):
            reason = self.explain_in(view, memo.shares.rounds, record, now)
        else:
            reason = self._line.explain(view, memo.line, record, now)
        return self._knowing.explained(record, reason, now)
