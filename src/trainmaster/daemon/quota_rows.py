"""Limits and budgets with what is used of them, as they are shown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from trainmaster.config.quotas import budget_as_stated
from trainmaster.core.lifecycle import ALLOCATED
from trainmaster.core.quotas import gpus_held, limits_of
from trainmaster.core.state import JobRecord, ScopeKey, State
from trainmaster.daemon.response_models import BudgetRow, UserLimitsRow, amount
from trainmaster.model.quota import EVERYBODY, Budget, UserLimits
from trainmaster.model.units import HOUR, SECOND, WHOLE
from trainmaster.text.formatting import utc_time

WARN_PERCENT = 80
"""From here on it is said that a budget is nearly used up."""


class LowBudget(NamedTuple):
    """A budget of which little is left."""

    key: ScopeKey
    stage: tuple[float, bool]
    """When its period began, and whether it is used up."""
    warning: str


def budget_row(
    state: State, budget: Budget | None, queue: str, user: str, now: int
) -> BudgetRow | None:
    """A budget and what was used of it by now."""
    if budget is None:
        return None
    scope = None if state.quotas is None else state.quotas.scope(queue, user)
    used = 0 if scope is None or scope.account is None else scope.used(now)
    renews = budget.renews_ms(now)
    stated = budget_as_stated(budget)
    return BudgetRow(
        gpu_hours=stated["gpu_hours"],
        per=stated["per"],
        when_used_up=stated["when_used_up"],
        starting=stated.get("starting"),
        used_gpu_hours=round(used / (WHOLE * HOUR), 6),
        used_ratio=round(used / budget.amount, 6),
        began_s=budget.began_ms(now) / SECOND,
        renews_s=None if renews is None else renews / SECOND,
        warning=_warning(budget, used, f"queue {queue}" if queue else user, renews),
    )


def _warning(budget: Budget, used: int, whose: str, renews: int | None) -> str | None:
    percent = 100 * used // budget.amount
    if percent < WARN_PERCENT:
        return None
    then = "it is not renewed" if renews is None else f"it is renewed on {utc_time(renews)}"
    if used >= budget.amount:
        return f"The budget of {whose} is used up: new jobs wait; {then}."
    return f"{percent} % of the budget of {whose} is used; {then}."


def user_limits_rows(state: State, now: int, only: str | None = None) -> list[UserLimitsRow]:
    """Every user's limits, or those of one user and what holds for everybody."""
    users = [EVERYBODY, *sorted(set(state.user_limits) - {EVERYBODY})]
    if only is not None:
        users = [EVERYBODY, *([only] if only != EVERYBODY else [])]
    return [_row(state, each, now) for each in users if only == each or limits_of(state, each)]


def _row(state: State, user: str, now: int) -> UserLimitsRow:
    limits = limits_of(state, user) or UserLimits(user)
    records = state.jobs.values()
    theirs = [each for each in records if user in (EVERYBODY, each.job.user)]
    row = budget_row(state, limits.budget, "", user, now)
    return UserLimitsRow(
        user=user,
        max_gpus=None if limits.max_gpus is None else amount(limits.max_gpus),
        max_running=limits.max_running,
        max_jobs=limits.max_jobs,
        budget=row,
        gpus=amount(_gpus(state, theirs)),
        running=sum(each.phase in ALLOCATED for each in theirs),
        jobs=len(theirs),
    )


def _gpus(state: State, records: Sequence[JobRecord]) -> int:
    held = (each.placement for each in records if each.placement is not None)
    return sum(gpus_held(state.topology, each) for each in held)


def budget_warnings(state: State, now: int) -> list[str]:
    """What there is to say of all budgets of which little is left."""
    users = sorted(set(state.user_limits) - {EVERYBODY})
    return [warning for _, _, warning in _low(state, now, sorted(state.queues), users)]


def warnings_for(state: State, now: int, queue: str, user: str) -> list[LowBudget]:
    """The same of the budgets that a job of this queue and user is charged to."""
    return list(_low(state, now, sorted(state.queue_line(queue)), [user]))


def _low(
    state: State, now: int, queues: Iterable[str], users: Iterable[str]
) -> Iterator[LowBudget]:
    budgets = [(ScopeKey(name, ""), state.queues[name].budget) for name in queues]
    for user in users:
        limits = limits_of(state, user)
        budgets.append((ScopeKey("", user), None if limits is None else limits.budget))
    for key, budget in budgets:
        row = budget_row(state, budget, *key, now)
        if row is not None and row.warning is not None:
            yield LowBudget(key, (row.began_s, row.used_ratio >= 1), row.warning)
