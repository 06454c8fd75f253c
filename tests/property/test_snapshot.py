"""A controller that was written down and read again goes on as the first one would have."""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.builders import a_policy
from tests.property.drive import Drive, Step
from tests.property.meddling import Meddler
from tests.property.worlds import CONTENDERS, scenarios
from trainmaster.catalog import policy_class
from trainmaster.core.controller import Controller
from trainmaster.core.invariants import check
from trainmaster.core.policy import Policy
from trainmaster.core.snapshot import restored, snapshot_of
from trainmaster.model.topology import NodeSpec, Topology, build
from trainmaster.sim.driver import Scenario

LIVE = [name for name, (policy, _) in CONTENDERS.items() if not policy_class(policy).needs_oracle]


def made(contender: str) -> Policy:
    name, options = CONTENDERS[contender]
    return a_policy(name, **options)


def recorded(
    scenario: Scenario, contender: str, seed: int, *, may_ask: bool = True
) -> Sequence[Step]:
    meddler = Meddler(seed, may_ask=may_ask)
    drive = Drive(scenario, made(contender), checked=False, meddler=meddler)
    return drive.run().steps


def begun(scenario: Scenario, contender: str) -> Controller:
    switching = scenario.perf.preemption_cost
    return Controller(
        scenario.topology,
        made(contender),
        can_freeze=switching.can_freeze,
        saves_on_demand=switching.saves_on_demand,
    )


def again(controller: Controller, scenario: Scenario, contender: str) -> Controller:
    body = json.loads(json.dumps(snapshot_of(controller)))
    switching = scenario.perf.preemption_cost
    other, lost = restored(
        body,
        scenario.topology,
        made(contender),
        can_freeze=switching.can_freeze,
        saves_on_demand=switching.saves_on_demand,
    )
    assert not lost
    check(other.state)
    assert snapshot_of(other) == body, "it can be written down again"
    return other


@pytest.mark.parametrize("contender", LIVE)
@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(scenario=scenarios(), seed=st.integers(0, 1 << 16))
def test_what_was_restored_decides_alike(contender: str, scenario: Scenario, seed: int) -> None:
    chance, controller = Random(seed), begun(scenario, contender)
    for step in recorded(scenario, contender, seed):
        if chance.random() < 0.2:
            controller = again(controller, scenario, contender)
        assert controller.step(step.now, step.events) == step.decision, f"at {step.now}"


def without(topology: Topology, chance: Random) -> Topology:
    """Some nodes gone, some smaller, one new, in another order."""
    specs = [
        NodeSpec(node.name, chance.randint(1, node.gpus), node.domains[:-1], node.type)
        for node in topology.nodes
        if chance.random() < 0.7
    ]
    specs.append(NodeSpec("new", 2, topology.nodes[0].domains[:-1], topology.nodes[0].type))
    chance.shuffle(specs)
    return build(topology.levels, specs)


@pytest.mark.parametrize("contender", ["trainmaster", "philly", "gandiva", "fair", "big-brain"])
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(scenario=scenarios(), seed=st.integers(0, 1 << 16))
def test_on_another_topology_what_is_gone_is_lost_and_the_rest_goes_on(
    contender: str, scenario: Scenario, seed: int
) -> None:
    steps, controller, chance = (
        recorded(scenario, contender, seed),
        begun(scenario, contender),
        Random(seed),
    )
    for step in steps[: chance.randint(0, len(steps))]:
        controller.step(step.now, step.events)
    topology = without(scenario.topology, chance)
    can_freeze = scenario.perf.preemption_cost.can_freeze
    other, lost = restored(
        snapshot_of(controller), topology, made(contender), can_freeze=can_freeze
    )
    assert list(other.state.jobs) == [
        job for job in controller.state.jobs if job in other.state.jobs
    ], "in the same order"
    for job, old in controller.state.jobs.items():
        new = other.state.jobs.get(job)
        if old.run in lost or new is None:
            assert new is None or (new.placement is None and new.work == new.saved_work)
        elif new.placement is not None:
            assert old.placement is not None
            assert named(scenario.topology, old.placement) == named(topology, new.placement)
    decision = other.step(controller.now, [])
    assert decision.planned
    assert not decision.refusals


def named(topology: Topology, placement: object) -> list[tuple[str, int]]:
    return [
        (topology.nodes[piece.node].name, piece.gpu - topology.nodes[piece.node].first_gpu)
        for piece in placement.slices  # type: ignore[attr-defined]
    ]
