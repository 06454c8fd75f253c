"""Deadlines on random clusters and workloads: promises are kept, or broken with a warning."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.policies.ours import punctual
from tests.property.drive import Drive
from tests.property.worlds import calm_scenarios, scenarios
from trainmaster.core.policy import Policy
from trainmaster.model.deadline_notices import DeadlineOutcome
from trainmaster.model.result import DeadlineResult, Verdict
from trainmaster.model.trace import Trace
from trainmaster.sim.driver import Scenario
from trainmaster.sim.metrics import result_of

some = settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@st.composite
def with_deadlines(draw: st.DrawFn, scenario: Scenario) -> Scenario:
    """Some of the jobs ask for one: tight, fair or easy."""
    jobs = []
    for traced in scenario.trace.jobs:
        slack = draw(st.sampled_from([None, 1.0, 1.2, 1.5, 2, 3, 5, 10]))
        job = traced.job
        if slack is not None:
            deadline = job.submit_ms + round(slack * max(1_000, traced.service_ms))
            job = replace(job, deadline_ms=deadline)
        jobs.append(replace(traced, job=job))
    return replace(scenario, trace=Trace(tuple(jobs)))


calm = calm_scenarios().flatmap(with_deadlines)
wild = scenarios().flatmap(with_deadlines)
guards = st.sampled_from([{}, {"min_run_s": 4.0}, {"starve_after_s": 9.0, "min_run_s": 2.0}])


def deadlines(drive: Drive) -> list[tuple[str, DeadlineResult]]:
    found = result_of(drive.simulation).jobs
    return [(job.job_id, job.deadline) for job in found if job.deadline is not None]


def driven(scenario: Scenario, policy: Policy, **how: object) -> Drive:
    return Drive(scenario, policy, **how).run()  # type: ignore[arg-type]


@some
@given(scenario=calm, chosen=guards)
def test_with_exact_estimates_in_an_ideal_world_nobody_accepted_is_late(
    scenario: Scenario, chosen: dict[str, float]
) -> None:
    drive = driven(scenario, punctual(**chosen))
    drive.everything_ended()
    for name, found in deadlines(drive):
        if found.verdict is Verdict.ACCEPTED:
            assert found.is_met, f"{name} was promised"
            assert [notice.what for _, notice in found.notices] == [DeadlineOutcome.ACCEPTED], name


@some
@given(scenario=calm)
def test_a_feasible_deadline_would_have_been_accepted_and_an_earlier_one_not(
    scenario: Scenario,
) -> None:
    for name, found in deadlines(driven(scenario, punctual(), checked=False)):
        if found.verdict is Verdict.DECLINED:
            assert found.feasible_ms is not None
            assert found.feasible_ms > found.deadline_ms
            for deadline_ms, verdict in (
                (found.feasible_ms, Verdict.ACCEPTED),
                (found.feasible_ms - 1, Verdict.DECLINED),
            ):
                again = driven(_moved(scenario, name, deadline_ms), punctual(), checked=False)
                assert dict(deadlines(again))[name].verdict is verdict
            break


def _moved(scenario: Scenario, name: str, deadline_ms: int) -> Scenario:
    jobs = [
        replace(each, job=replace(each.job, deadline_ms=deadline_ms))
        if each.job.id == name
        else each
        for each in scenario.trace.jobs
    ]
    return replace(scenario, trace=Trace(tuple(jobs)))


@some
@given(scenario=wild, margin=st.sampled_from([0.0, 0.3]), chosen=guards)
def test_whatever_breaks_nobody_accepted_is_late_in_silence(
    scenario: Scenario, margin: float, chosen: dict[str, float]
) -> None:
    drive = driven(scenario, punctual(margin=margin, **chosen))
    drive.everything_ended()
    drive.work_is_conserved()
    for name, found in deadlines(drive):
        is_taken = name in drive.simulation.ledger.accounts
        assert (found.verdict is not Verdict.NONE) == is_taken, f"{name} got no answer"
        assert not found.is_silently_late, f"{name}: {found}"


@settings(some, max_examples=40)
@given(scenario=wild, seed=st.integers(0, 1 << 16), chosen=guards)
def test_dropping_every_cache_changes_no_order_and_no_notice(
    scenario: Scenario, seed: int, chosen: dict[str, float]
) -> None:
    remembering = driven(scenario, punctual(**chosen), checked=False)
    forgetting = driven(scenario, punctual(**chosen), checked=False, forgetful=Random(seed))
    assert forgetting.orders() == remembering.orders()
    assert forgetting.simulation.ledger.notices == remembering.simulation.ledger.notices
