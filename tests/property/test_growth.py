"""Nodes that nobody knew come while jobs run: whatever decides, nothing is over-booked and every job ends."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.property.drive import Drive, Step
from tests.property.test_snapshot import LIVE, made
from tests.property.worlds import CONTENDERS, scenarios
from trainmaster.core.controller import Controller
from trainmaster.core.invariants import check
from trainmaster.core.snapshot import restored, snapshot_of
from trainmaster.core.state import State
from trainmaster.model import codec
from trainmaster.model import events as e
from trainmaster.model.engine_reports import ClusterNode
from trainmaster.model.topology import Topology
from trainmaster.model.topology_growth import topology_of
from trainmaster.sim.driver import Scenario

few = settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))


def found_nodes(topology: Topology) -> list[ClusterNode]:
    """Its nodes as an engine would report them."""
    return [
        ClusterNode(
            *(node.name, "host", node.gpus, node.type, node.cpus, node.memory),
            domains=(("rack", f"r{node.domains[1]}"),),
        )
        for node in topology.nodes
    ]


@dataclass
class Growth:
    """Adds the unknown nodes to the facts of random steps, tells of known ones again, and measures some."""

    unknown: list[ClusterNode]
    seed: int
    is_over: bool = False
    known: list[ClusterNode] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._chance = Random(self.seed)

    def meddled(self, state: State, events: Sequence[e.Event]) -> list[e.Event]:
        found, chance = list(events), self._chance
        if self.known and chance.random() < 0.05:
            found.append(e.NodesAdded((chance.choice(self.known),)))
        if state.topology.nodes and chance.random() < 0.1:
            node = chance.randrange(len(state.topology.nodes))
            found.append(e.NodeMeasured(node, chance.choice((100, 1_000, 1_050, 20_000))))
        if self.unknown and (self.is_over or chance.random() < 0.3):
            count = len(self.unknown) if self.is_over else 1
            new, self.unknown = self.unknown[:count], self.unknown[count:]
            self.known += new
            found.insert(chance.randint(0, len(found)), e.NodesAdded(tuple(new)))
        return found


class GrowingDrive(Drive):
    """A run that begins on the first nodes of its cluster, or on none."""

    def __init__(self, scenario: Scenario, contender: str, seed: int, **how: Any) -> None:
        nodes = found_nodes(scenario.topology)
        self.first = topology_of(nodes[: Random(seed).randint(0, len(nodes) - 1)])
        scenario = replace(scenario, topology=topology_of(nodes))
        growth: Any = Growth(nodes[len(self.first.nodes) :], seed)
        super().__init__(scenario, made(contender), meddler=growth, **how)
        self.simulation.controller.state.__init__(  # type: ignore[misc]
            self.first, **switching(scenario)
        )
        self.simulation.controller.view.__init__(  # type: ignore[misc]
            self.simulation.controller.state
        )

    def _is_let_in(self) -> bool:
        """Whether nodes are left to come when nothing else happens."""
        growth = self.meddler
        assert isinstance(growth, Growth)
        growth.is_over = True
        if growth.unknown:
            self.simulation.take(self.simulation.now, [])
            return True
        return False


def switching(scenario: Scenario) -> dict[str, bool]:
    cost = scenario.perf.preemption_cost
    return {
        "can_freeze": cost.can_freeze,
        "saves_on_demand": cost.saves_on_demand,
        "cannot_save_at_first": not cost.saves_ever,
    }


@pytest.mark.parametrize("contender", CONTENDERS)
@few
@given(scenario=scenarios(), seed=st.integers(0, 1 << 16))
def test_nodes_that_come_are_used_and_nothing_is_overbooked(
    contender: str, scenario: Scenario, seed: int
) -> None:
    drive = GrowingDrive(scenario, contender, seed).run()
    drive.everything_ended()
    assert isinstance(drive, GrowingDrive)


@pytest.mark.parametrize("contender", CONTENDERS)
@few
@given(scenario=scenarios(), seed=st.integers(0, 1 << 16))
def test_dropping_every_cache_changes_no_order(
    contender: str, scenario: Scenario, seed: int
) -> None:
    remembering = GrowingDrive(scenario, contender, seed, checked=False).run()
    forgetful = Random(seed)
    forgetting = GrowingDrive(scenario, contender, seed, checked=False, forgetful=forgetful).run()
    assert forgetting.orders() == remembering.orders()


def recorded(scenario: Scenario, contender: str, seed: int) -> tuple[Topology, list[Step]]:
    """The steps of a run, and the topology that it began on."""
    drive = GrowingDrive(scenario, contender, seed, checked=False)
    drive.run()
    return drive.first, drive.steps


@pytest.mark.parametrize("contender", LIVE)
@few
@given(scenario=scenarios(), seed=st.integers(0, 1 << 16))
def test_a_log_is_played_again_through_text_and_snapshots(
    contender: str, scenario: Scenario, seed: int
) -> None:
    first, steps = recorded(scenario, contender, seed)
    chance = Random(seed)
    controller = Controller(first, made(contender), **switching(scenario))
    for step in steps:
        if chance.random() < 0.2:
            body = json.loads(json.dumps(snapshot_of(controller)))
            topology = codec.loads(codec.dumps(controller.state.topology))
            back = restored(body, topology, made(contender), **switching(scenario))
            assert not back.lost
            controller = back.controller
            check(controller.state)
        events = codec.loads(codec.dumps(tuple(step.events)))
        assert controller.step(step.now, events) == step.decision, f"at {step.now}"


@pytest.mark.parametrize("contender", LIVE)
@few
@given(scenario=scenarios(), seed=st.integers(0, 1 << 16))
def test_stored_steps_are_followed(contender: str, scenario: Scenario, seed: int) -> None:
    first, steps = recorded(scenario, contender, seed)
    followed = Controller(first, made(contender), **switching(scenario))
    followed.begin_following()
    for step in steps:
        assert followed.follow(step.now, step.events, step.decision.orders) == ([], [], [])
    followed.decide_by(made(contender))
    check(followed.state)
