"""Quotas: what each queue, each user and each user in a queue holds, and what is left of it.

A scope is what a bound applies to: a queue with those inside it, a user, or a user in a queue. Use follows
the jobs that changed, never all of them. Nothing of this exists where nothing is bounded.

GPU time is a job's attained service: a line over time between two changes of it. So the use of a scope is a
line too: what is settled in its account, and the sum over its live jobs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from trainmaster.core.lifecycle import ALLOCATED, WAITING
from trainmaster.core.state import Account, JobRecord, ScopeKey, State
from trainmaster.model.job import Demand
from trainmaster.model.placement import Placement
from trainmaster.model.quota import EVERYBODY, Budget, UserLimits, WhenUsedUp
from trainmaster.model.reasons import QueueStanding, QuotaUse, Reason, Why
from trainmaster.model.topology import CPU_TYPE, Topology
from trainmaster.model.units import WHOLE, ceil_div


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a scope may have; None = as much as there is."""

    gpus: int | None = None
    running: int | None = None
    budget: Budget | None = None


class Counted(NamedTuple):
    """What a job counts for in its scopes."""

    scopes: tuple[Scope, ...]
    gpus: int
    runs: int
    service: int
    """Attained service is this + `rate` x now."""
    rate: int


class Scope:
    """The use of one queue, user, or user in a queue, beside its bounds."""

    def __init__(self, key: ScopeKey, bounds: Bounds, account: Account | None) -> None:
        self.key = key
        self.bounds = bounds
        self.account = account
        self.gpus = 0
        self.running = 0
        self.service = 0
        self.rate = 0
        self.waiting: dict[int, JobRecord] = {}
        """Jobs that may be started, by seq."""
        self.allocated: dict[int, JobRecord] = {}
        self.gated: dict[int, JobRecord] = {}
        """Jobs that wait because of this scope."""
        self.is_spent = False
        """Whether its budget was used up when it was last looked at."""

    @property
    def is_maximum(self) -> bool:
        """Whether it is a queue: policies that divide between queues keep its maximum themselves."""
        return not self.key.user

    def add(self, record: JobRecord, counted: Counted, sign: int) -> None:
        self.gpus += sign * counted.gpus
        self.running += sign * counted.runs
        self.service += sign * counted.service
        self.rate += sign * counted.rate
        for jobs, phases in ((self.waiting, WAITING), (self.allocated, ALLOCATED)):
            if sign > 0 and record.phase in phases:
                jobs[record.seq] = record
            else:
                jobs.pop(record.seq, None)

    def used(self, now: int) -> int:
        """GPU time used in this period: thousandths of a GPU x ms."""
        settled = 0 if self.account is None else self.account.settled
        return settled + self.service + self.rate * now

    def has_room(self, gpus: int, runs: int) -> bool:
        """Whether so much more is within its bounds at this moment."""
        bounds = self.bounds
        return (bounds.gpus is None or self.gpus + gpus <= bounds.gpus or gpus <= 0) and (
            bounds.running is None or self.running + runs <= bounds.running or runs <= 0
        )

    def spent_at(self, now: int) -> int | None:
        """When its budget will be used up, if its runs go on."""
        budget = self.bounds.budget
        if budget is None or self.is_spent or not self.rate:
            return None
        return now + max(1, ceil_div(budget.amount - self.used(now), self.rate))


class Quotas:
    """Every scope that a live job, or an account, is in."""

    def __init__(self, state: State, now: int) -> None:
        self._state = state
        self._now = now
        self._scopes: dict[ScopeKey, Scope] = {}
        self._scopes_of: dict[tuple[str, str], tuple[Scope, ...]] = {}
        self._counted: dict[int, Counted] = {}
        self.eased: dict[ScopeKey, Scope] = {}
        """Scopes where there may be more room than when their jobs were last looked at."""
        self.tightened: dict[ScopeKey, Scope] = {}
        self.changed: dict[int, JobRecord] = {}
        """Jobs that changed since they were last looked at."""
        self.crowded: dict[ScopeKey, Scope] = {}
        """Scopes where the jobs of the last plan were too many together."""
        self.leaves_maxima = False
        """Whether the policy keeps maxima of queues itself: its waiting jobs stay visible."""
        self.is_moldable = False
        """Whether the policy may start elastic jobs below their nominal size."""
        known = set(state.accounts)
        for record in state.jobs.values():
            self._count(record, known)
        for key in (*state.accounts, *(ScopeKey(name, "") for name in state.queues)):
            self._make(key)
        for key in known - {each.key for each in self._scopes.values() if each.account is not None}:
            del state.accounts[key]
        self.eased.update(self._scopes)
        self.tightened.update(self._scopes)

    # -- scopes --------------------------------------------------------------------------------------

    def scopes(self) -> Iterable[Scope]:
        return self._scopes.values()

    def scope(self, queue: str, user: str) -> Scope | None:
        return self._scopes.get(ScopeKey(queue, user))

    def scopes_of(self, record: JobRecord) -> tuple[Scope, ...]:
        """All that bounds a job: its queue and those around it, its user, its user in those queues."""
        queue, user = record.job.queue, record.job.user
        found = self._scopes_of.get((queue, user))
        if found is None:
            line = list(self._state.queue_line(queue))
            keys = [ScopeKey(name, "") for name in line]
            if user:  # traces may not name one
                keys += [ScopeKey(name, user) for name in ("", *line)]
            made = [self._make(key) for key in keys]
            found = self._scopes_of[queue, user] = tuple(each for each in made if each is not None)
        return found

    def _make(self, key: ScopeKey) -> Scope | None:
        """The scope of that key; None where nothing bounds it."""
        known = self._scopes.get(key)
        if known is not None:
            return known
        bounds = self._bounds(key)
        if bounds == Bounds():
            return None
        account, budget = None, bounds.budget
        if budget is not None:
            account = self._state.accounts.get(key)
            if account is None:
                account = self._state.accounts[key] = Account(budget.began_ms(self._now), 0)
        found = self._scopes[key] = Scope(key, bounds, account)
        return found

    def _bounds(self, key: ScopeKey) -> Bounds:
        if key.queue:
            queue = self._state.queues.get(key.queue)
            if queue is None:
                return Bounds()
            if key.user:
                return Bounds(queue.max_gpus_per_user, queue.max_running_per_user)
            return Bounds(queue.maximum, budget=queue.budget)
        limits = limits_of(self._state, key.user)
        if limits is None:
            return Bounds()
        return Bounds(limits.max_gpus, limits.max_running, limits.budget)

    # -- following the jobs --------------------------------------------------------------------------

    def sync(self, now: int) -> None:
        """Count the jobs that have changed."""
        self._now = now
        changes = self._state.log.quota_changes
        for record in changes.read_jobs() if changes is not None else ():
            self._count(record)

    def _count(self, record: JobRecord, included: Collection[ScopeKey] = ()) -> None:
        """Count a job as it is now. What it has used is in the accounts `included` already."""
        before = self._counted.pop(record.seq, None)
        scopes = self.scopes_of(record) if record.is_live else ()
        after = Counted(scopes, *self._shares(record))
        for scope in () if before is None else before.scopes:
            assert before is not None
            scope.add(record, before, -1)
            scope.gated.pop(record.seq, None)
            if scope.account is not None:
                scope.account.settled += before.service + before.rate * self._now
        for scope in scopes:
            scope.add(record, after, 1)
            if record.over_quota == scope.key:
                scope.gated[record.seq] = record
            if scope.account is not None and scope.key not in included:
                scope.account.settled -= after.service + after.rate * self._now
        self._note(before, after)
        if scopes:
            self._counted[record.seq] = after
        if record.is_live and (scopes or record.over_quota is not None):
            self.changed[record.seq] = record

    def _note(self, before: Counted | None, after: Counted) -> None:
        """Which scopes have more room, or less."""
        if before is None:
            if after.gpus or after.runs:
                self.tightened.update((each.key, each) for each in after.scopes)
            return
        if before.gpus > after.gpus or before.runs > after.runs or before.scopes != after.scopes:
            self.eased.update((each.key, each) for each in before.scopes)
        if before.gpus < after.gpus or before.runs < after.runs or before.scopes != after.scopes:
            self.tightened.update((each.key, each) for each in after.scopes)

    def _shares(self, record: JobRecord) -> tuple[int, int, int, int]:
        """GPUs held, whether it runs, and its attained service as a line."""
        gpus, runs = 0, 0
        if record.placement is not None:
            gpus, runs = gpus_held(self._state.topology, record.placement), 1
        if record.demand.gpu_type == CPU_TYPE:
            return gpus, runs, 0, 0
        if record.since_ms is None:
            return gpus, runs, record.attained, 0
        return gpus, runs, record.attained - record.since_ms * record.rate, record.rate

    # -- budgets -------------------------------------------------------------------------------------

    def roll(self, now: int) -> None:
        """Begin new periods; before anything of this instant changes, since what runs is a line until now."""
        self._now = now
        for scope in self._scopes.values():
            budget, account = scope.bounds.budget, scope.account
            if budget is None or account is None:
                continue
            began = budget.began_ms(now)
            if began > account.began_ms:
                account.settled = -(scope.service + scope.rate * began)
                account.began_ms = began

    def count_late(self, record: JobRecord, gpu_ms: int, now: int) -> None:
        """Count GPU time that is learned of late, as far as it is of this period; below 0: it was none."""
        if record.demand.gpu_type == CPU_TYPE:
            return
        for scope in self.scopes_of(record):
            if scope.account is not None:
                most = record.rate * (now - scope.account.began_ms)
                least = -min(most, scope.used(now))
                scope.account.settled += max(least, min(most, gpu_ms))

    def keep_use(self, before: Quotas) -> None:
        """Keep what was used in the present periods, although queues and bounds have changed."""
        for scope in self._scopes.values():
            budget, account, old = scope.bounds.budget, scope.account, before._scopes.get(scope.key)
            if budget is None or account is None or old is None or old.account is None:
                continue
            began = budget.began_ms(self._now)
            used = old.used(self._now) if began <= account.began_ms else 0
            account.began_ms = began
            account.settled = used - scope.service - scope.rate * self._now

    def find_spent(self, now: int) -> Iterator[Scope]:
        """Scopes whose budget was used up just now; those that have some again are eased."""
        for scope in self._scopes.values():
            budget = scope.bounds.budget
            is_spent = budget is not None and scope.used(now) >= budget.amount
            if is_spent != scope.is_spent:
                scope.is_spent = is_spent
                (self.tightened if is_spent else self.eased)[scope.key] = scope
                if is_spent:
                    yield scope

    def wake_at(self, now: int) -> int | None:
        """When a budget is renewed that jobs wait for, or used up where its runs are suspended then."""
        times: list[int | None] = []
        for scope in self._scopes.values():
            budget = scope.bounds.budget
            if budget is None:
                continue
            if scope.gated and scope.is_spent:
                times.append(budget.renews_ms(now))
            if budget.when_used_up is WhenUsedUp.SUSPEND and scope.allocated:
                times.append(scope.spent_at(now))
        return min((at for at in times if at is not None), default=None)

    # -- room ----------------------------------------------------------------------------------------

    def least(self, demand: Demand) -> int:
        """The least GPUs that a job needs to start."""
        if demand.gpu_type == CPU_TYPE:
            return 0
        shares = [demand.nominal.total_share, *(split.total_share for split in demand.splits)]
        if self.is_moldable:
            shares.append(demand.sized(demand.min_count).total_share)
        return min(shares)

    def blocker(self, record: JobRecord, gpus: int | None = None) -> Scope | None:
        """The scope that has no room for a waiting job now, if it needs so much."""
        need = self.least(record.demand) if gpus is None else gpus
        for scope in self.scopes_of(record):
            if scope.is_spent:
                return scope
            is_left = gpus is None and scope.is_maximum and self.leaves_maxima
            if not is_left and not scope.has_room(need, 1):
                return scope
        return None

    def review(self) -> bool:
        """Look at jobs again that were too many together; whether one of them has room by itself."""
        crowded, self.crowded = self.crowded, {}
        self.eased.update(crowded)
        gated = (record for scope in crowded.values() for record in scope.gated.values())
        return any(self.blocker(record) is None for record in gated)

    # -- reasons -------------------------------------------------------------------------------------

    def reason(self, record: JobRecord, now: int) -> Reason | None:
        """Why a job waits that a scope has no room for."""
        key = record.over_quota
        scope = None if key is None else self._scopes.get(key)
        if scope is None:
            return None
        need, bounds = self.least(record.demand), scope.bounds
        space = self._state.occupancy
        free = WHOLE * sum(space.free_gpus[kind] for kind in space.kinds_for(record.demand))
        named = sorted(scope.allocated.values(), key=lambda each: (-_size(each), each.seq))
        held_by = tuple(each.id for each in named[:NAMED])
        if bounds.budget is not None and scope.used(now) >= bounds.budget.amount:
            budget = bounds.budget
            use = QuotaUse(*scope.key, scope.used(now), budget.amount, budget.period)
            until = budget.renews_ms(now)
            return Reason(Why.BUDGET_USED_UP, need, free, quota=use, until_ms=until)
        if bounds.running is not None and scope.running >= bounds.running:
            use = QuotaUse(*scope.key, scope.running, bounds.running)
            return Reason(Why.USER_RUNNING_LIMIT, need, free, held_by=held_by, quota=use)
        most = bounds.gpus or 0
        if scope.is_maximum:
            queue = self._state.queues[scope.key.queue]
            standing = QueueStanding(queue.name, scope.gpus, most, queue.guaranteed, most)
            why = Why.NEVER_FITS if need > most else Why.SHARE_USED_UP
            return Reason(why, need, free, held_by=held_by, queue=standing)
        use = QuotaUse(*scope.key, scope.gpus, most)
        return Reason(Why.USER_GPU_LIMIT, need, free, held_by=held_by, quota=use)


NAMED = 5
"""The most jobs that a reason names."""


def limits_of(state: State, user: str) -> UserLimits | None:
    """A user's own limits, or everybody's."""
    return state.user_limits.get(user) or state.user_limits.get(EVERYBODY)


def gpus_held(topology: Topology, placement: Placement) -> int:
    """Thousandths of a GPU; CPU slots are none."""
    is_on_cpus = topology.type_of_gpu[placement.slices[0].gpu].name == CPU_TYPE
    return 0 if is_on_cpus else placement.total_share


def _size(record: JobRecord) -> int:
    return 0 if record.placement is None else record.placement.total_share


def is_bounded(state: State) -> bool:
    """Whether anything is bounded."""
    return bool(state.user_limits) or any(
        any(
            bound is not None
            for bound in (
                *(queue.maximum, queue.budget),
                *(queue.max_gpus_per_user, queue.max_running_per_user),
            )
        )
        for queue in state.queues.values()
    )
