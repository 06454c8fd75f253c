"""Replays what was decided where the policy that decided it cannot be made any more.

The stored orders are requested as actions, one by one, under a policy that decides nothing: so every run that
was launched is known again, and none is taken for a stranger and ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from trainmaster.core.state import JobRecord, State
from trainmaster.core.view import View
from trainmaster.model import actions as a
from trainmaster.model.events import ActionRequested
from trainmaster.model.plan import Plan
from trainmaster.model.reasons import Reason, Why


class NoDecisions:
    """A policy that plans nothing."""

    name = "none"
    needs_oracle = is_moldable = splits = profiles = False
    progress_every_ms: int | None = None

    def first_memo(self) -> None:
        return None

    def plan(self, view: View, memo: None, now: int) -> Plan[None]:
        return Plan((), None)

    def wake(self, view: View, memo: None, now: int) -> int | None:
        return None

    def explain(self, view: View, memo: None, record: JobRecord, now: int) -> Reason:
        return Reason(Why.BEHIND_OTHERS, record.demand.nominal.total_share)

    def forget(self) -> None:
        """It has no caches."""


def requests_for(orders: Iterable[a.Order], state: State) -> Iterator[ActionRequested]:
    """Actions that lead to these orders; those that events cause anyway are refused a second time."""
    for order in sorted(orders, key=lambda each: not isinstance(each, a.Freeze | a.Halt)):
        action = _action_for(order, state)
        if action is not None:
            yield ActionRequested(action)


def _action_for(order: a.Order, state: State) -> a.Action | None:
    job = order.run.job
    match order:
        case a.Launch():
            return a.Start(job, order.placement)
        case a.Freeze() | a.Halt():
            return a.Suspend(job)
        case a.Reshape():
            return a.Resize(job, order.placement)
        case a.Kill():
            return a.Stop(job)
        case a.Rebind():
            return a.Migrate(job, order.placement)
        case a.Thaw():
            record = state.jobs.get(job)
            frozen = None if record is None else record.frozen
            return None if frozen is None else a.Resume(job, order.placement or frozen)
