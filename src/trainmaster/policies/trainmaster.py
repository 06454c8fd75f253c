"""Trainmaster's own policy: what the published systems taught, put together, each part an option.

Order (`learn`, `history`): jobs run in order of a Gittins index that is learned from what ended and what
goes on, by class: the service that a completion of such a job is expected to cost (Tiresias NSDI'19;
hazards by Kaplan and Meier). Until a class is known the order is least attained service. A guard
(`guard_ratio`) gives a run to whoever falls too far behind its fair share (policies/line/owed.py).
Preemption has to pay: a waiting job is charged what a change of hands was seen to cost
(`charge_switches`), a running one counts `keep` of its rank, and no run is younger than `min_run_s`.
Between queues that were given weights, guarantees or maxima, GPUs are divided max-min, with a memory of
who used more than its share (`half_life_s`); inside a queue the order is the one above.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from trainmaster.core.draft import Draft
from trainmaster.core.order import Order
from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.model.plan import Plan, Rank
from trainmaster.model.reasons import Reason
from trainmaster.model.units import NOMINAL, to_ms
from trainmaster.policies.base import BasePolicy
from trainmaster.policies.line.foresight import Foresight, Seen
from trainmaster.policies.line.gate import Gate
from trainmaster.policies.line.greedy import run_in_order
from trainmaster.policies.line.owed import NO_DEBTS, Debts, Guard
from trainmaster.policies.line.worthiest import Known, rank_by_worth
from trainmaster.policies.options import at_least_zero, choice, fraction, option
from trainmaster.policies.queues.between_queues import BetweenQueues, DividingOptions, capacity
from trainmaster.policies.queues.remembering import SharesMemo, noted, remembered, share_out

SWITCH = choice("on", "off")
WORTH_SWITCHES = 2
"""A run is left at least so many times as long as a change of hands costs."""


@dataclass(frozen=True, slots=True)
class TrainmasterOptions(DividingOptions):
    min_run_s: float = option(
        60.0, at_least_zero, "no run is preempted before it has run this long"
    )
    learn: str = option(
        "on", SWITCH, "order by what was learned of jobs' service; off: least served"
    )
    keep: float = option(0.5, fraction, "part of its rank that counts for a job that runs; 1: all")
    cap: float = option(
        4.0, at_least_zero, "a rank counts for at most this many times what it has had; 0: no cap"
    )
    charge_switches: str = option("on", SWITCH, "count what a change of hands costs in the order")
    guard_ratio: float = option(
        5.0, at_least_zero, "who waits beyond this many times its fair time is owed a run; 0: off"
    )
    guard_slack_s: float = option(14400.0, at_least_zero, "... and this much more")
    reserve: str = option("on", SWITCH, "nobody is let past a gang who would delay it")
    half_life_s: float = option(
        86400.0, at_least_zero, "how fast past use of GPUs by a queue is forgotten; 0: no memory"
    )


@dataclass(frozen=True, slots=True)
class Memo:
    """What has been learned and promised."""

    seen: Seen = field(default_factory=Seen)
    debts: Debts = NO_DEBTS
    switch_ms: int = 0
    shares: SharesMemo = field(default_factory=SharesMemo)


class OneLine(BasePolicy[TrainmasterOptions]):
    """The order among the jobs of one queue, or of all; what is known is shown to it."""

    name = "trainmaster"
    options_type = TrainmasterOptions
    known: Known

    def rank(self, view: View, record: JobRecord, now: int) -> Rank:
        known = self.known
        return known.guard.rank(record, rank_by_worth(known, record, now), known.debts, now)

    def plan(self, view: View, memo: object, now: int) -> Plan:
        if view.is_settled():
            return Plan((), memo)
        order = self.in_line(view, now, with_running=True)
        if view.is_stable(order, now):
            return Plan((), memo, order.next_expiry())
        draft = Draft(view)
        for job in view.reservations:
            draft.release(view.jobs[job])
        gate = Gate(self.known, view, draft, now) if self.options.reserve == "on" else None
        on_blocked = gate.shut if gate is not None else None
        run_in_order(view, draft, order, now, self.group, self.placer, self.stuck, on_blocked)
        return draft.plan(memo, order.next_expiry())

    def wake(self, view: View, memo: object, now: int) -> int | None:
        """A run that has just started comes to another rank at a time that is known now."""
        return None if view.is_settled() else self.line(view, memo, now).next_expiry()

    def line(self, view: View, memo: object, now: int) -> Order:
        return self.in_line(view, now, with_running=True)


class Trainmaster(BetweenQueues[TrainmasterOptions]):
    name = "trainmaster"
    options_type = TrainmasterOptions

    def __init__(self, options: TrainmasterOptions) -> None:
        self._service = Foresight()
        guard = Guard(round(options.guard_ratio * NOMINAL), to_ms(options.guard_slack_s))
        self._known = Known(
            self._service, guard, round(options.keep * NOMINAL), round(options.cap * NOMINAL)
        )
        super().__init__(options)
        self._half_life_ms = to_ms(options.half_life_s)
        self._was_divided: bool | None = None
        self._line = self._shown(OneLine(options))
        self._any_inner = self._shown(OneLine(options))

    def chosen_inner(self, options: TrainmasterOptions) -> tuple[Any, object]:
        return OneLine, options

    def inner_of(self, queue: str) -> Any:
        return self._shown(super().inner_of(queue))

    def _shown(self, line: Any) -> Any:
        line.known = self._known
        line.guards = self.guards
        return line

    def first_memo(self) -> Memo:
        return Memo()

    def forget(self) -> None:
        super().forget()
        self._line.forget()
        self._service = self._known.prospects = Foresight()

    # -- a pass ------------------------------------------------------------------------------------

    def plan(self, view: View, memo: object, now: int) -> Plan:
        assert isinstance(memo, Memo)
        memo = self._learned(view, memo, now)
        if self._divides(view):
            return self._plan_between(view, memo, now)
        plan = self._line.plan(view, None, now)
        return Plan(plan.actions, memo, self._sooner(plan.wake_at, memo, view, now))

    def _learned(self, view: View, memo: Memo, now: int) -> Memo:
        """What is known now, shown to whoever ranks."""
        known = memo.seen
        if self.options.learn == "on":
            known = self._service.learn(memo.seen, view, now)
        switch_ms = memo.switch_ms
        if known.made_ms != memo.seen.made_ms and self.options.charge_switches == "on":
            switch_ms = view.switch_ms
        debts = self._known.guard.looked(view, memo.debts, now)
        self._show(debts, switch_ms)
        return replace(memo, seen=known, debts=debts, switch_ms=switch_ms)

    def _show(self, debts: Debts, switch_ms: int) -> None:
        self._known.debts, self._known.switch_ms = debts, switch_ms
        least = max(to_ms(self.options.min_run_s), WORTH_SWITCHES * switch_ms)
        if least != self.guards.min_run_ms:
            self.guards = replace(self.guards, min_run_ms=least)
        self._line.guards = self.guards

    def _sooner(self, wake: int | None, memo: Memo, view: View, now: int) -> int | None:
        """That time, or when the guard looks again, while anybody waits."""
        if not self._known.guard.is_on or view.is_settled():
            return wake
        look = max(memo.debts.next_look_ms, now + 1)
        return look if wake is None else min(wake, look)

    def _divides(self, view: View) -> bool:
        """Whether queues were stated: where they were not, all jobs stand in one line."""
        divides = bool(view.queues or self.options.queues.items)
        if self._was_divided is not None and divides is not self._was_divided:
            view.forget()
        self._was_divided = divides
        return divides

    def _plan_between(self, view: View, memo: Memo, now: int) -> Plan:
        total = capacity(view)
        shares = remembered(memo.shares, now, self._half_life_ms)
        round_ = self.begin(view, shares.rounds, now, *shares.usage.average)
        if view.is_settled():
            round_.take_note()
        elif not (round_.is_enough_for_all(total) and round_.serve_all()):
            share_out(round_, shares, total, self._half_life_ms)
        memo = replace(memo, shares=noted(round_, shares, self._half_life_ms))
        return round_.draft.plan(memo, self._sooner(round_.wake_at(), memo, view, now))

    def wake(self, view: View, memo: object, now: int) -> int | None:
        assert isinstance(memo, Memo)
        self._service.show(memo.seen)
        self._show(memo.debts, memo.switch_ms)
        if self._divides(view):
            return self.wake_of(view, memo.shares.rounds, now)
        wake: int | None = self._line.wake(view, None, now)
        return wake

    def line(self, view: View, memo: object, now: int) -> Order | None:
        return None

    def explain(self, view: View, memo: object, record: JobRecord, now: int) -> Reason:
        assert isinstance(memo, Memo)
        if self._divides(view):
            return self.explain_in(view, memo.shares.rounds, record, now)
        return BasePolicy.explain(self, view, memo, record, now)
