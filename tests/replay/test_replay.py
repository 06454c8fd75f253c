"""A recorded run, fed into a fresh controller, gives the same orders: crash recovery rests on it."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import HealthCheck, given, settings

from tests.builders import a_policy
from tests.property.drive import Drive, Step
from tests.property.worlds import CONTENDERS, scenarios
from trainmaster.core.controller import Controller
from trainmaster.sim.driver import Scenario


def recorded(scenario: Scenario, contender: str) -> list[Step]:
    name, options = CONTENDERS[contender]
    return Drive(scenario, a_policy(name, **options), checked=False).run().steps


def fresh(scenario: Scenario, contender: str) -> Controller:
    name, options = CONTENDERS[contender]
    switching = scenario.perf.preemption_cost
    return Controller(
        scenario.topology,
        a_policy(name, **options),
        can_freeze=switching.can_freeze,
        saves_on_demand=switching.saves_on_demand,
    )


@pytest.mark.parametrize("contender", CONTENDERS)
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(scenario=scenarios())
def test_a_replayed_log_gives_the_same_decisions(contender: str, scenario: Scenario) -> None:
    log = recorded(scenario, contender)
    stored = pickle.loads(pickle.dumps([(step.now, step.events) for step in log]))
    controller = fresh(scenario, contender)
    for (now, events), step in zip(stored, log, strict=True):
        assert controller.step(now, events) == step.decision, f"at {now}"
