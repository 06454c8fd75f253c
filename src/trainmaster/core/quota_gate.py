"""Keeps jobs that are over a quota away from policies, until there is room for them again.

A policy does not see such a job, so it plans around it and nobody waits behind it. Where the jobs that a plan
starts are over a quota only together, those that the policy put last are taken out and it is asked again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from trainmaster.core.change_log import Changes
from trainmaster.core.freeze_check import NOTHING_PLANNED, will_freeze
from trainmaster.core.holds import hold_if_waiting, show
from trainmaster.core.lifecycle import ALLOCATED, WAITING
from trainmaster.core.quotas import Quotas, Scope, gpus_held, is_bounded
from trainmaster.core.state import JobRecord, ScopeKey, State
from trainmaster.core.suspension import suspend
from trainmaster.model import actions as a
from trainmaster.model.placement import Placement, Sharing
from trainmaster.model.plan import Plan
from trainmaster.model.quota import WhenUsedUp
from trainmaster.model.topology import Topology
from trainmaster.model.units import WHOLE


def rebuild(state: State, now: int) -> None:
    """Follow the quotas of the queues and users as they are now."""
    before = state.quotas
    if before is not None:
        before.sync(now)
    if not is_bounded(state):
        state.quotas = state.log.quota_changes = None
        state.accounts.clear()
        show_all_over_quota(state, now)
        return
    state.log.quota_changes = Changes()
    state.quotas = Quotas(state, now)
    if before is not None:
        state.quotas.keep_use(before)


def regulate(state: State, quotas: Quotas, now: int) -> None:
    """Hide the jobs that are over a quota now, and show those that are no more."""
    quotas.sync(now)
    for spent in list(quotas.find_spent(now)):
        budget = spent.bounds.budget
        if budget is not None and budget.when_used_up is WhenUsedUp.SUSPEND:
            for record in list(spent.allocated.values()):
                _suspend(state, record, spent, now)
    found = quotas.changed
    for scope in quotas.eased.values():
        found |= scope.gated
    for scope in quotas.tightened.values():
        found |= scope.waiting
    quotas.changed, quotas.eased, quotas.tightened = {}, {}, {}
    for _, record in sorted(found.items()):
        _judge(state, quotas, record, now)


def _judge(state: State, quotas: Quotas, record: JobRecord, now: int) -> None:
    if not record.is_live:
        return
    if record.phase in ALLOCATED:
        record.over_quota = None
        return
    is_hidden = record.over_quota is not None
    if not is_hidden and record.phase not in WAITING:
        return
    blocker = quotas.blocker(record)
    if blocker is not None:
        _gate(state, record, blocker)
    elif is_hidden:
        _let_through(state, record, now)


def _gate(state: State, record: JobRecord, scope: Scope) -> None:
    """Keep a waiting job from the policy until that scope has room for it."""
    if record.over_quota == scope.key:
        return
    record.over_quota = scope.key
    hold_if_waiting(state, record)
    state.log.note_job(record)
    state.log.needs_pass = True


def _let_through(state: State, record: JobRecord, now: int) -> None:
    if record.over_quota is not None:
        record.over_quota = None
        show(state, record, now)
        state.log.note_job(record)


def _suspend(state: State, record: JobRecord, scope: Scope, now: int) -> None:
    """Suspend a run whose budget is used up, unless work would be lost or it must not be suspended."""
    is_kept = will_freeze(state, record, NOTHING_PLANNED, now) or not record.cannot_save
    if is_kept and not record.is_protected and record.phase in ALLOCATED:
        record.over_quota = scope.key
        suspend(state, record, now)
        record.is_unplanned = True
        hold_if_waiting(state, record)
        state.log.needs_pass = True


# -- plans -----------------------------------------------------------------------------------------------


class Use(NamedTuple):
    """What is used of a scope besides what was used before the plan."""

    gpus: int = 0
    runs: int = 0


class Checked(NamedTuple):
    """A plan without what is over a quota."""

    plan: Plan
    over: list[tuple[JobRecord, Scope, a.Action]]


class PlanCheck:
    """Adds up what a plan's actions use of each scope."""

    def __init__(self, state: State, quotas: Quotas) -> None:
        self._state = state
        self._quotas = quotas
        self._use: dict[ScopeKey, Use] = {}
        self._started: set[int] = set()

    def checked(self, plan: Plan) -> Checked:
        kept: list[a.Action] = []
        over: list[tuple[JobRecord, Scope, a.Action]] = []
        for action in plan.actions:
            record = self._state.jobs.get(action.job)
            if record is None:
                kept.append(action)
                continue
            fitting, blocker = self._fitting(record, action)
            if fitting is not None:
                kept.append(fitting)
            if blocker is not None:
                over.append((record, blocker, action))
        if len(kept) == len(plan.actions) and all(map(_is_same, kept, plan.actions)):
            return Checked(plan, over)
        return Checked(replace(plan, actions=tuple(kept)), over)

    def gate_excess(self, over: list[tuple[JobRecord, Scope, a.Action]]) -> bool:
        """Hide waiting jobs that the plan leaves no room for; whether there were any."""
        is_any = False
        for record, scope, _ in over:
            if record.placement is None and record.phase in WAITING:
                _gate(self._state, record, scope)
                is_any = True
        crowded = {scope.key: scope for _, scope, _ in over}
        self._quotas.crowded.update(crowded)
        for scope in crowded.values():
            for record in list(scope.waiting.values()):
                need = self._quotas.least(record.demand)
                if record.seq not in self._started and not self._has_room(scope, need, 1):
                    _gate(self._state, record, scope)
                    is_any = True
        return is_any

    def _fitting(self, record: JobRecord, action: a.Action) -> tuple[a.Action | None, Scope | None]:
        """The action, or as much of it as there is room for; and the scope that has none for all."""
        held = 0 if record.placement is None else self._gpus(record.placement)
        if isinstance(action, a.Suspend | a.Stop):
            if record.placement is not None:
                self._add(record, -held, -1)
            return action, None
        if not isinstance(action, a.Start | a.Resume | a.Migrate | a.Resize):
            return action, None
        runs = 0 if isinstance(action, a.Migrate | a.Resize) else 1
        more = self._gpus(action.placement) - held
        blocker = self._blocker(record, more, runs)
        if blocker is None:
            self._add(record, more, runs)
            self._started.add(record.seq)
            return action, None
        smaller = self._smaller(record, action, held, runs)
        if smaller is None:
            return None, blocker
        self._add(record, self._gpus(smaller.placement) - held, runs)
        self._started.add(record.seq)
        return smaller, None

    def _smaller(
        self,
        record: JobRecord,
        action: a.Start | a.Resume | a.Migrate | a.Resize,
        held: int,
        runs: int,
    ) -> a.Start | a.Resume | a.Migrate | a.Resize | None:
        """The same for an elastic job on fewer GPUs, as many as there is room for."""
        demand, placement = record.demand, action.placement
        is_whole = demand.nominal.is_whole and placement.sharing is Sharing.EXCLUSIVE
        if not demand.is_elastic or not is_whole or isinstance(action, a.Migrate):
            return None
        own = set(record.placement.gpus()) if record.placement is not None else set()
        least = demand.min_count if self._quotas.is_moldable else demand.nominal.count
        least = len(own) + 1 if own else least
        for count in range(len(placement.slices) - 1, least - 1, -1):
            if self._blocker(record, count * WHOLE - held, runs) is None:
                return replace(action, placement=_part(self._state.topology, placement, own, count))
        return None

    def _blocker(self, record: JobRecord, gpus: int, runs: int) -> Scope | None:
        for scope in self._quotas.scopes_of(record):
            if (runs and scope.is_spent) or not self._has_room(scope, gpus, runs):
                return scope
        return None

    def _has_room(self, scope: Scope, gpus: int, runs: int) -> bool:
        use = self._use.get(scope.key, Use())
        return scope.has_room(gpus, runs) if use == Use() else _fits(scope, use, gpus, runs)

    def _add(self, record: JobRecord, gpus: int, runs: int) -> None:
        for scope in self._quotas.scopes_of(record):
            use = self._use.get(scope.key, Use())
            self._use[scope.key] = Use(use.gpus + gpus, use.runs + runs)

    def _gpus(self, placement: Placement) -> int:
        return gpus_held(self._state.topology, placement)


def _fits(scope: Scope, use: Use, gpus: int, runs: int) -> bool:
    bounds = scope.bounds
    more = scope.gpus + use.gpus + gpus
    return (bounds.gpus is None or more <= bounds.gpus or gpus <= 0) and (
        bounds.running is None or scope.running + use.runs + runs <= bounds.running or runs <= 0
    )


def _is_same(one: a.Action, other: a.Action) -> bool:
    return one is other


def _part(topology: Topology, placement: Placement, own: set[int], count: int) -> Placement:
    """So many of its slices; those that the job has already first, in their order."""
    chosen = sorted(placement.slices, key=lambda piece: piece.gpu not in own)[:count]
    gpus = {piece.gpu for piece in chosen}
    slices = tuple(piece for piece in placement.slices if piece.gpu in gpus)
    return replace(placement, slices=slices, span=topology.span_of_gpus([s.gpu for s in slices]))


def over_quota(state: State, record: JobRecord, placement: Placement, now: int) -> bool:
    """Whether a job's start, move or growth to this placement is over a quota, as things are now."""
    quotas = state.quotas
    if quotas is None:
        return False
    quotas.sync(now)
    held = 0 if record.placement is None else gpus_held(state.topology, record.placement)
    more, runs = gpus_held(state.topology, placement) - held, record.placement is None
    return any(
        (runs and scope.is_spent) or not scope.has_room(more, int(runs))
        for scope in quotas.scopes_of(record)
    )


def show_all_over_quota(state: State, now: int) -> None:
    """Let policies see all jobs that a quota kept from them."""
    for record in list(state.jobs.values()):
        _let_through(state, record, now)
