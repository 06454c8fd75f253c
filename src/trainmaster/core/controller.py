"""Facts in, orders out: one pure step around which the simulator and the daemon are thin drivers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from trainmaster.core import followed_orders
from trainmaster.core.adopted_runs import adopt_runs
from trainmaster.core.followed_orders import Followed
from trainmaster.core.freeze_check import PlannedMemory
from trainmaster.core.frozen_clearance import clear_frozen
from trainmaster.core.holds import end_delays
from trainmaster.core.invariants import rebuilt
from trainmaster.core.last_resort import end_protection, protect, runs_to_protect
from trainmaster.core.lifecycle import Phase
from trainmaster.core.next_attempt import end_avoidance
from trainmaster.core.pending_launches import expire_late_launches, send_ready_launches
from trainmaster.core.plan_check import admit, without_nonsense
from trainmaster.core.policy import Policy
from trainmaster.core.quota_gate import PlanCheck, rebuild, regulate
from trainmaster.core.reducer import REDUCERS
from trainmaster.core.reservations import (
    begin_and_end,
    keep_free,
    kept_free_reason,
    next_time,
)
from trainmaster.core.slot_choice import keep_slots
from trainmaster.core.state import State
from trainmaster.core.view import View
from trainmaster.model.actions import Order, Suspend
from trainmaster.model.deadline_notices import DeadlineNotice
from trainmaster.model.events import Event
from trainmaster.model.packing_score import PackingScore
from trainmaster.model.plan import Plan
from trainmaster.model.policy_spec import PolicySpec
from trainmaster.model.reasons import Reason, Refusal, Refused
from trainmaster.model.topology import Topology
from trainmaster.model.units import MINUTE

MOST_PLANS = 8
"""How often a policy is asked in one pass; what it still must not do is refused then."""
PACKAGE = __file__.rpartition("core")[0]
"""Where our own code is: other files are users' policies."""
MakePolicy = Callable[[PolicySpec], Policy]


class Decision(NamedTuple):
    """What a step decided."""

    orders: Sequence[Order]
    refusals: Sequence[Refusal]
    wake_at: int | None
    """The latest time of the next step, even if nothing happens."""
    planned: bool
    """Whether the policy was asked."""
    ended_unsuccessfully: Sequence[tuple[str, Phase]] = ()
    """Jobs that ended in this step without success: failed for good, or cancelled."""
    notices: Sequence[DeadlineNotice] = ()
    """What the owners of jobs should be told of their deadlines."""


class Controller:
    """State, policy and memo; `step` is a function of them, the time and the facts alone."""

    def __init__(
        self,
        topology: Topology,
        policy: Policy,
        *,
        can_freeze: bool = False,
        can_move_frozen: bool = False,
        saves_on_demand: bool = True,
        cannot_save_at_first: bool = False,
        make_policy: MakePolicy | None = None,
    ) -> None:
        self.state = State(
            topology,
            can_freeze=can_freeze,
            can_move_frozen=can_move_frozen,
            saves_on_demand=saves_on_demand,
            cannot_save_at_first=cannot_save_at_first,
        )
        self.view = View(self.state)
        self.policy = policy
        self.memo = policy.first_memo()
        self.make_policy = make_policy
        self.policy_error: Exception | None = None
        """What the policy raised when it was asked last."""
        self._wake_at: int | None = None
        self._now = 0

    @property
    def now(self) -> int:
        """The time of the last step."""
        return self._now

    @property
    def wake_at(self) -> int | None:
        """The latest time at which the policy wants to be asked again."""
        return self._wake_at

    def resume(self, memo: object, now: int, wake_at: int | None) -> None:
        """Go on from there: with what the policy remembered then, if it is one of its own memos."""
        first = self.policy.first_memo()
        is_own = first is None or type(memo) is type(first)
        self.memo, self._now, self._wake_at = memo if is_own else first, now, wake_at

    def step(self, now: int, events: Sequence[Event]) -> Decision:
        """Take the facts of an instant in, and decide once."""
        self._advance(now)
        state, log = self.state, self.state.log
        had_kept_free = bool(state.kept_free)
        if had_kept_free:
            begin_and_end(state, now)
        for event in events:
            REDUCERS[type(event)](state, event, now)
        if state.topology_changed:
            state.topology_changed, self.view = False, View(state)
        if state.adopted:
            adopt_runs(state, now)
        if state.delayed:
            end_delays(state, now)
        if state.avoiding:
            end_avoidance(state, now)
        if had_kept_free or state.kept_free or state.kept_free_stale:
            keep_free(state, now)
        if state.pending_launches:
            send_ready_launches(state, now)
            expire_late_launches(state, now)
        if state.reservations:
            self._expire_reservations(now)
        if state.protected and end_protection(state, now):
            state.log.caches_stale = state.log.needs_pass = True
        if state.log.caches_stale or state.new_policy is not None:
            self._start_over()
        if state.quotas_stale or state.quotas is not None:
            self._regulate(now)
        asked = self._do_requests(now) if state.requests else ()
        refusals: Sequence[Refusal] = ()
        notices: Sequence[DeadlineNotice] = ()
        planned = log.needs_pass or (self._wake_at is not None and now >= self._wake_at)
        if planned:
            refusals, notices = self._pass(now)
        elif log.has_dirty_jobs:
            log.has_dirty_jobs = False
            self._wake_by(self.policy.wake(self.view, self.memo, now), now)
        if state.quotas is not None:
            state.quotas.sync(now)
            if state.quotas.crowded and state.quotas.review():
                self._wake_by(now + MINUTE, now)
        orders: Sequence[Order] = ()
        if state.outbox:
            orders, state.outbox = state.outbox, []
        wake = self._wake_at
        timed = (state.pending_launches, state.reservations, state.delayed, state.protected)
        if any(timed) or state.avoiding or state.kept_free or state.quotas is not None:
            wake = self.next_step_at
        if asked:
            refusals = [*asked, *refusals]
        return Decision(orders, refusals, wake, planned, log.take_ended_unsuccessfully(), notices)

    def _advance(self, now: int) -> None:
        assert now >= self._now, "time never goes backwards"
        self.view.begin_step()
        state = self.state
        state.job_time_integral += (len(state.jobs) - len(state.on_hold)) * (now - self._now)
        self._now = now
        if state.quotas is not None:
            state.quotas.roll(now)

    def _regulate(self, now: int) -> None:
        """Hide jobs that are over a quota from the policy, and show those that are no more."""
        state = self.state
        if state.quotas_stale:
            state.quotas_stale = False
            rebuild(state, now)
        quotas = state.quotas
        if quotas is None:
            return
        quotas.leaves_maxima = getattr(self.policy, "obeys_queues", False)
        quotas.is_moldable = self.policy.is_moldable
        regulate(state, quotas, now)

    def begin_following(self) -> None:
        """From here on stored steps are followed, until a policy decides again."""
        followed_orders.forget_starts(self.state, self._now)

    def follow(self, now: int, events: Sequence[Event], orders: Sequence[Order]) -> Followed:
        """Take a stored step in without deciding: its facts, and the orders that were given then."""
        self._advance(now)
        return followed_orders.follow(self.state, now, events, orders)

    def decide_by(self, policy: Policy) -> None:
        """After steps were followed: this policy decides from here on, as after a change of policy."""
        state = self.state
        state.occupancy = rebuilt(state, is_checked=False)
        self.view = View(state)
        self.policy, self.memo, self._wake_at = policy, policy.first_memo(), None
        state.log.dirty_queues.update(record.job.queue for record in state.jobs.values())
        state.quotas_stale = state.log.needs_pass = True
        self.forget()

    def _start_over(self) -> None:
        """Drop caches of before this step: of another policy, or of a state that no longer holds."""
        state = self.state
        change, state.new_policy, state.log.caches_stale = state.new_policy, None, False
        self.forget()
        if change is None:
            return
        if self.make_policy is None:
            raise ValueError(
                f"this controller was not told how to make the policy {change.name!r}."
            )
        self.policy = self.make_policy(change.spec)
        self.memo = self.policy.first_memo()
        self._wake_at = None
        for job in list(state.reservations):
            state.drop_reservation(job)
        state.log.dirty_queues.update(record.job.queue for record in state.jobs.values())
        state.quotas_stale = state.log.needs_pass = True

    def _do_requests(self, now: int) -> Sequence[Refusal]:
        """Do what people asked for, each by itself, before the policy is asked."""
        state = self.state
        requests, state.requests = state.requests, []
        refusals: list[Refusal] = []
        for action in requests:
            refusals += admit(Plan((action,)), state, now, is_requested=True)
            record = state.jobs.get(action.job)
            if isinstance(action, Suspend) and record is not None:
                record.is_unplanned = True
        state.log.needs_pass = True
        return refusals

    def _pass(self, now: int) -> tuple[Sequence[Refusal], Sequence[DeadlineNotice]]:
        """Ask the policy; one that raises leaves running jobs alone and is reported."""
        state = self.state
        state.log.begin_pass()
        self._wake_at = None
        try:
            plan, refusals = self._plan(now)
        except Exception as error:
            return [Refusal("", Refused.POLICY_RAISED, self._note_raised(error))], ()
        self.policy_error = None
        self.memo = plan.memo
        is_noop = not plan.actions and not refusals
        state.log.end_pass(was_noop=is_noop)
        self._wake_by(plan.wake_at, now)
        if is_noop:
            if plan.wake_at is None and state.waiting and self.view.is_idle():
                clear_frozen(state, now)
            return (), plan.notices
        refusals += admit(plan, state, now)
        if refusals:
            self.policy.forget()
        return refusals, plan.notices

    def _note_raised(self, error: Exception) -> str:
        """What the policy raised; what it was booking then is in no log."""
        self.state.occupancy = rebuilt(self.state)
        self.view = View(self.state)
        self.policy.forget()
        self.policy_error = error
        return _describe(error, self.policy)

    def raises_now(self) -> str:
        """What the policy raises where it is asked without anything being done; empty if nothing."""
        try:
            self.policy.plan(self.view, self.memo, self._now)
        except Exception as error:
            return self._note_raised(error)
        self.state.occupancy.undo()
        self.forget()
        return ""

    def _plan(self, now: int) -> tuple[Plan, list[Refusal]]:
        """The policy's plan without what makes no sense, which is refused.

        It is asked again while it would end runs that are to be protected, or start more than quotas allow.
        """
        state = self.state
        for _ in range(MOST_PLANS):
            plan = self.policy.plan(self.view, self.memo, now)
            state.occupancy.undo()
            plan, refusals = without_nonsense(plan, state.topology)
            if state.has_slots and plan.actions:
                plan = replace(plan, actions=keep_slots(plan.actions, state))
            if state.quotas is not None and plan.actions:
                check = PlanCheck(state, state.quotas)
                plan, over = check.checked(plan)
                if over and check.gate_excess(over):
                    state.quotas.sync(now)
                    self.forget()
                    state.log.woken_by_event = True
                    continue
            if not state.cannot_save_at_first or not plan.actions:
                break
            planned = PlannedMemory.of(plan, state)
            is_new = [
                protect(state, run, now) for run in runs_to_protect(plan, state, now, planned)
            ]
            if not any(is_new):
                break
            self.forget()
        return plan, refusals

    def _wake_by(self, time: int | None, now: int) -> None:
        """Ask again no later than then, and never in the same instant."""
        if time is not None and (self._wake_at is None or time < self._wake_at):
            self._wake_at = max(time, now + 1)

    def _expire_reservations(self, now: int) -> None:
        for job, held in list(self.state.reservations.items()):
            if held.until_ms is not None and held.until_ms <= now:
                self.state.drop_reservation(job)
                self.state.log.needs_pass = True

    @property
    def next_step_at(self) -> int | None:
        """The latest time of the next step, as the last decision said."""
        state = self.state
        launches = [each.expires_ms for each in state.pending_launches.values()]
        reservations = [held.until_ms for held in state.reservations.values()]
        retries = [record.retry_at_ms for record in state.delayed.values()]
        protections = [record.protected_until_ms for record in state.protected.values()]
        avoidances = [record.avoid_until_ms for record in state.avoiding.values()]
        budgets = None if state.quotas is None else state.quotas.wake_at(self._now)
        times = (
            *(self._wake_at, *launches, *reservations, *retries, *protections, *avoidances),
            *(budgets, next_time(state, self._now)),
        )
        return min((at for at in times if at is not None), default=None)

    def explain(self, job: str) -> Reason:
        """Why this job waits: a quota is used up, devices are kept free, or the policy's own reason."""
        quotas, record = self.state.quotas, self.state.jobs[job]
        over = None if quotas is None else quotas.reason(record, self._now)
        if over is None and self.state.kept_free:
            over = kept_free_reason(self.state, record, self._now)
        return over or self.policy.explain(self.view, self.memo, record, self._now)

    def packing_scores(self, job: str) -> Sequence[PackingScore]:
        """Why this job shares a GPU with others, or joins none of them."""
        return self.policy.packing_scores(self.view, self.memo, self.state.jobs[job], self._now)

    def forget(self) -> None:
        """Drop every cache of the view and the policy: plans must not change (the amnesia rule)."""
        self.view.forget()
        self.policy.forget()


def _describe(error: Exception, policy: Policy) -> str:
    """What was raised, and where: in the policy's own file, if it is a user's and was still in it."""
    places: list[tuple[str, int]] = []
    trace = error.__traceback__
    while trace is not None:
        places.append((trace.tb_frame.f_code.co_filename, trace.tb_lineno))
        trace = trace.tb_next
    users = [place for place in places if not place[0].startswith(PACKAGE)]
    is_users = not type(policy).__module__.startswith("trainmaster.")
    file, line = (users or places)[-1]
    after = f", with what {policy.name} returned" if is_users and not users else ""
    return f"{type(error).__name__}: {error} ({file}:{line}{after})"
