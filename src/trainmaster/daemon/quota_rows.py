"""Limits and budgets with what is used of them, as they are shown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from trainmaster.config.quotas import budget_as_stated
from trainmaster.core.lifecycle import ALLOCATED
from trainmaster.core.quotas import gpus_held, limits_of
from trainmaster.core.state import JobRecord, State
from trainmaster.daemon.response_models import BudgetRow, UserLimitsRow, amount
from trainmaster.model.quota import EVERYBODY, Budget, UserLimits
from trainmaster.model.units import HOUR, SECOND, WHOLE
from trainmaster.text.formatting import utc_time

WARN_PERCENT = 80
"""From here on it is said that a budget is nearly used up."""


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
    return f"{percent} % of the budget of {whose} are used; {then}."


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


def budget_warnings(state: State, now: int, jobs: Iterable[tuple[str, str]] = ()) -> list[str]:
    """Budgets of which little is left: all, or those that jobs of these queues and users are charged to."""
    rows = (row for row in _budgets(state, now, tuple(jobs)) if row is not None)
    return list(dict.fromkeys(row.warning for row in rows if row.warning is not None))


def _budgets(state: State, now: int, jobs: Sequence[tuple[str, str]]) -> Iterator[BudgetRow | None]:
    queues = {name for queue, _ in jobs for name in state.queue_line(queue)} or set(state.queues)
    for name in sorted(queues):
        yield budget_row(state, state.queues[name].budget, name, "", now)
    for user in sorted({user for _, user in jobs} or set(state.user_limits) - {EVERYBODY}):
        limits = limits_of(state, user)
        yield budget_row(state, None if limits is None else limits.budget, "", user, now)
