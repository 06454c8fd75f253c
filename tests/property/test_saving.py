"""Failures that nobody notices at once, and checkpoints that decide what is lost: for every policy."""

from __future__ import annotations

import pickle
from dataclasses import replace
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.builders import a_policy
from tests.property.drive import Drive
from tests.property.worlds import CONTENDERS, FRAIL, FREEZING, scenarios
from trainmaster.core.controller import Controller
from trainmaster.model import events as e
from trainmaster.model.units import SECOND
from trainmaster.perf.perf_model import DEFAULT, IDEAL, FailureModel, PerfModel, PreemptionCost
from trainmaster.sim.driver import Scenario

UNNOTICED = replace(
    FRAIL,
    name="unnoticed",
    node_failures=replace(FRAIL.node_failures, detection_ms=9 * SECOND),
    profiling_ms=2 * SECOND,
)


def periodic(world: PerfModel, every_s: int, detection_s: int | None = None) -> PerfModel:
    node_failures = FailureModel(checkpoint_ms=every_s * SECOND)
    if detection_s is not None:
        node_failures = replace(
            node_failures,
            mtbf_ms=100 * SECOND,
            repair_ms=10 * SECOND,
            detection_ms=detection_s * SECOND,
        )
    switching = replace(world.preemption_cost, saves_on_demand=False)
    return replace(world, name="periodic", preemption_cost=switching, node_failures=node_failures)


PERIODIC = (
    periodic(IDEAL, 3),
    periodic(DEFAULT, 2),
    periodic(FREEZING, 5),
    periodic(FREEZING, 2, detection_s=6),
)
some = settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
ONE_OF_EACH = {name: contender for contender, (name, _) in reversed(CONTENDERS.items())}
every_contender = pytest.mark.parametrize("contender", CONTENDERS)
every_policy = pytest.mark.parametrize("contender", ONE_OF_EACH.values())


def in_world(scenario: Scenario, world: PerfModel) -> Scenario:
    return replace(scenario, perf=world)


def driven(scenario: Scenario, contender: str, **how: object) -> Drive:
    name, options = CONTENDERS[contender]
    return Drive(scenario, a_policy(name, **options), **how).run()  # type: ignore[arg-type]


@every_contender
@some
@given(scenario=scenarios())
def test_what_fails_unnoticed_is_neither_lost_nor_overbooked(
    contender: str, scenario: Scenario
) -> None:
    drive = driven(in_world(scenario, UNNOTICED), contender)
    drive.everything_ended()
    drive.work_is_conserved()


def books_are_in_order(drive: Drive) -> None:
    """Work done = work kept + work lost, for every job, at whatever instant the run is looked at."""
    simulation = drive.simulation
    while simulation.engine.has_facts():
        simulation.step()
    simulation.engine.settle_all(simulation.now)
    records, runs = simulation.controller.state.jobs, simulation.engine.runs
    for name, account in simulation.ledger.accounts.items():
        assert (
            account.held + account.holding * (simulation.now - account.holding_since_ms)
            == account.trained + account.charged
        ), f"GPU time of {name}"
        if account.status is None and name in records:
            kept = runs[name].work if name in runs else records[name].work
            assert account.credited == kept + account.lost, f"work of {name}"
            assert records[name].saved_work <= kept, f"{name} has saved what it has not done"


@every_policy
@settings(some, max_examples=10)
@given(scenario=scenarios(), world=st.sampled_from(PERIODIC))
def test_nothing_is_lost_twice_where_suspending_does_not_save(
    contender: str, scenario: Scenario, world: PerfModel
) -> None:
    drive = driven(in_world(scenario, world), contender, checked=False)
    books_are_in_order(drive)


@every_policy
@some
@given(scenario=scenarios(), world=st.sampled_from((*PERIODIC, UNNOTICED)), seed=st.integers(0, 99))
def test_dropping_every_cache_changes_no_order(
    contender: str, scenario: Scenario, world: PerfModel, seed: int
) -> None:
    scenario = in_world(scenario, world)
    remembering = driven(scenario, contender, checked=False)
    forgetting = driven(scenario, contender, checked=False, forgetful=Random(seed))
    assert forgetting.orders() == remembering.orders()


@every_policy
@settings(some, max_examples=5)
@given(scenario=scenarios(), world=st.sampled_from((*PERIODIC, UNNOTICED)))
def test_a_replayed_log_gives_the_same_decisions(
    contender: str, scenario: Scenario, world: PerfModel
) -> None:
    log = driven(in_world(scenario, world), contender, checked=False).steps
    stored = pickle.loads(pickle.dumps([(step.now, step.events) for step in log]))
    name, options = CONTENDERS[contender]
    controller = Controller(
        scenario.topology,
        a_policy(name, **options),
        can_freeze=world.preemption_cost.can_freeze,
        saves_on_demand=world.preemption_cost.saves_on_demand,
    )
    for (now, events), step in zip(stored, log, strict=True):
        assert controller.step(now, events) == step.decision, f"at {now}"


KEEPING = replace(
    IDEAL,
    name="keeping",
    preemption_cost=PreemptionCost(
        *(2_000, 3_000, 4_000, 1_500, 2_500),
        can_freeze=True,
        saves_on_demand=False,
        saves_ever=False,
        refuse_every=2,
    ),
)
"""Runs lose their work when they are ended, and every second freeze fails."""


@pytest.mark.parametrize("contender", ["las", "gandiva", "themis", "tiresias-l", "trainmaster"])
@settings(some, max_examples=8)
@given(scenario=scenarios())
def test_runs_that_could_not_be_frozen_go_on_and_all_jobs_end(
    contender: str, scenario: Scenario
) -> None:
    drive = driven(
        in_world(replace(scenario, node_changes=()), KEEPING), contender, may_refuse=True
    )
    drive.everything_ended()
    drive.work_is_conserved()


@settings(some, max_examples=30)
@given(scenario=scenarios(), world=st.sampled_from(PERIODIC[:2]))
def test_policies_that_never_suspend_end_all_jobs_and_lose_work_only_by_node_failures(
    scenario: Scenario, world: PerfModel
) -> None:
    drive = driven(in_world(scenario, world), "fifo skip")
    drive.everything_ended()
    drive.work_is_conserved()
    if not scenario.node_changes:
        facts = [fact for step in drive.steps for fact in step.events]
        assert not any(isinstance(fact, e.RunSuspended) for fact in facts)
