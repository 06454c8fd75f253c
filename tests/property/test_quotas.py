"""No plan of any policy exceeds the maximum of a queue or a user's limit; budgets are charged exactly."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import a_policy
from tests.property.drive import Drive, Step
from tests.property.test_invariants import every_contender, some
from tests.property.test_snapshot import LIVE, begun, made
from tests.property.worlds import CONTENDERS, among, scenarios
from trainmaster.core.controller import Controller
from trainmaster.core.invariants import check
from trainmaster.core.quotas import gpus_held
from trainmaster.core.state import JobRecord, ScopeKey, State
from trainmaster.model.queue import Queue
from trainmaster.model.quota import EVERYBODY, Budget, Period, UserLimits, WhenUsedUp
from trainmaster.model.topology import CPU_TYPE
from trainmaster.model.trace import Trace
from trainmaster.model.units import MINUTE, SECOND, WHOLE
from trainmaster.sim.driver import Scenario

LARGEST = 6 * WHOLE
"""No job of these workloads needs more: every one can run alone within a bound like this."""


@st.composite
def bounded_scenarios(draw: st.DrawFn, *, budgets: bool = False) -> Scenario:
    """With queues inside each other, and limits on what a user, and a user in a queue, may have."""
    scenario = draw(scenarios())
    users = draw(st.lists(among("ada", "ada", "bob", "eve", ""), min_size=10, max_size=10))
    jobs = tuple(
        replace(each, job=replace(each.job, user=user))
        for each, user in zip(scenario.trace.jobs, users, strict=False)
    )
    most, few = among(None, LARGEST, LARGEST + WHOLE), among(None, 1, 2)
    queues = {
        "all": Queue("all", maximum=draw(most), max_gpus_per_user=draw(most)),
        "default": Queue("default", parent=draw(among(None, "all")), maximum=draw(most)),
        "other": Queue("other", parent="all", max_running_per_user=draw(few)),
    }
    limits = [UserLimits("ada", draw(most), draw(few)), UserLimits(EVERYBODY, draw(most))]
    if budgets:
        amount, rule = among(20, 90, 400), among(*WhenUsedUp)
        budget = Budget(draw(amount) * SECOND * WHOLE, Period.DAY, 0, draw(rule))
        queues["other"] = replace(queues["other"], budget=budget)
        queues["all"] = replace(queues["all"], budget=replace(budget, amount=4 * budget.amount))
        limits[0] = replace(limits[0], budget=Budget(draw(amount) * SECOND * WHOLE, Period.DAY, 0))
    return replace(
        scenario,
        trace=Trace(jobs),
        queues=queues,
        user_limits=tuple(limits),
    )


@dataclass
class BoundedDrive(Drive):
    """A run in which the bounds are added up again after each step."""

    may_refuse: bool = True

    def look(self) -> None:
        super().look()
        for refusal in self.steps[-1].decision.refusals:
            assert refusal.why.name != "POLICY_RAISED", refusal.detail
        check_bounds(self.simulation.controller.state)


def check_bounds(state: State) -> None:
    """By looking at all jobs, and not at what the controller counts."""
    for queue in state.queues.values():
        inside = [each for each in state.jobs.values() if queue.name in _line(state, each)]
        assert queue.maximum is None or _gpus(state, inside) <= queue.maximum, queue.name
        assert _is_queue_counted(state, queue.name, inside)
        for user, theirs in _by_user(inside).items():
            most, few = queue.max_gpus_per_user, queue.max_running_per_user
            assert most is None or _gpus(state, theirs) <= most, (queue.name, user)
            assert few is None or _running(theirs) <= few, (queue.name, user)
    for user, theirs in _by_user(state.jobs.values()).items():
        limits = state.user_limits.get(user) or state.user_limits.get(EVERYBODY)
        if limits is not None:
            assert limits.max_gpus is None or _gpus(state, theirs) <= limits.max_gpus, user
            assert limits.max_running is None or _running(theirs) <= limits.max_running, user


def _is_queue_counted(state: State, name: str, inside: list[JobRecord]) -> bool:
    """Whether the controller counts what its jobs hold once, whoever's they are."""
    scope = None if state.quotas is None else state.quotas.scope(name, "")
    return scope is None or scope.gpus == _gpus(state, inside)


def _line(state: State, record: JobRecord) -> list[str]:
    found, name = [], record.job.queue
    while name:
        found.append(name)
        name = state.queues[name].parent or ""
    return found


def _by_user(records: object) -> dict[str, list[JobRecord]]:
    found: dict[str, list[JobRecord]] = {}
    for record in records:  # type: ignore[attr-defined]
        if record.job.user:  # traces may not name one
            found.setdefault(record.job.user, []).append(record)
    return found


def _gpus(state: State, records: list[JobRecord]) -> int:
    placed = [each.placement for each in records if each.placement is not None]
    return sum(gpus_held(state.topology, each) for each in placed)


def _running(records: list[JobRecord]) -> int:
    return sum(each.placement is not None for each in records)


def driven(scenario: Scenario, contender: str, **how: object) -> BoundedDrive:
    name, options = CONTENDERS[contender]
    return BoundedDrive(scenario, a_policy(name, **options), **how).run()  # type: ignore[arg-type,return-value]


@every_contender
@settings(some, max_examples=5)
@given(scenario=bounded_scenarios())
def test_no_plan_exceeds_a_bound_and_every_job_ends(contender: str, scenario: Scenario) -> None:
    driven(scenario, contender).everything_ended()


@every_contender
@settings(some, max_examples=3)
@given(scenario=bounded_scenarios(), seed=st.integers(0, 1 << 16))
def test_dropping_every_cache_changes_no_order(
    contender: str, scenario: Scenario, seed: int
) -> None:
    remembering = driven(scenario, contender, checked=False)
    forgetting = driven(scenario, contender, checked=False, forgetful=Random(seed))
    assert forgetting.orders() == remembering.orders()


@dataclass
class ChargedDrive(BoundedDrive):
    """A run in which what budgets were charged is added up again from every job that there ever was."""

    records: dict[str, JobRecord] = field(default_factory=dict)

    def run(self) -> ChargedDrive:
        """For ten minutes: jobs that wait for tomorrow's budget are not waited for."""
        self.simulation.define_queues()
        while self.simulation.step() and self.simulation.now < 10 * MINUTE:
            self.look()
        return self

    def look(self) -> None:
        super().look()
        state, now = self.simulation.controller.state, self.steps[-1].now
        self.records |= state.jobs
        assert state.quotas is not None
        for scope in state.quotas.scopes():
            if scope.bounds.budget is not None:
                assert scope.used(now) == self._charged(state, scope.key, now), scope.key

    def _charged(self, state: State, key: ScopeKey, now: int) -> int:
        return sum(
            each.attained_at(now)
            for each in self.records.values()
            if each.demand.gpu_type != CPU_TYPE
            and (not key.queue or key.queue in _line(state, each))
            and (not key.user or key.user == each.job.user)
        )


@every_contender
@settings(some, max_examples=5)
@given(scenario=bounded_scenarios(budgets=True))
def test_budgets_are_charged_what_their_jobs_attained(contender: str, scenario: Scenario) -> None:
    name, options = CONTENDERS[contender]
    assert ChargedDrive(scenario, a_policy(name, **options)).run().steps


@pytest.mark.parametrize("contender", LIVE)
@settings(some, max_examples=2)
@given(scenario=bounded_scenarios(budgets=True), seed=st.integers(0, 1 << 16))
def test_stored_orders_are_followed_past_quotas_and_charged_alike(
    contender: str, scenario: Scenario, seed: int
) -> None:
    live, followed = begun(scenario, contender), begun(scenario, contender)
    chance, is_following = Random(seed), False
    for step in short_run(scenario, contender):
        live.step(step.now, step.events)
        if not is_following and chance.random() < 0.9:
            followed.step(step.now, step.events)
            continue
        if not is_following:
            is_following = True
            followed.begin_following()
        assert followed.follow(step.now, step.events, step.decision.orders) == ([], [], [])
        assert charged(followed) == charged(live)
    followed.decide_by(made(contender))
    check(followed.state)
    followed.step(live.now, ())
    check(followed.state)
    assert charged(followed) == charged(live)


def short_run(scenario: Scenario, contender: str) -> list[Step]:
    name, options = CONTENDERS[contender]
    return ChargedDrive(scenario, a_policy(name, **options)).run().steps


def charged(controller: Controller) -> dict[ScopeKey, int]:
    quotas = controller.state.quotas
    scopes = () if quotas is None else quotas.scopes()
    return {each.key: each.used(controller.now) for each in scopes if each.account is not None}
