"""After failures at random: jobs avoid devices, ask for more memory, and still all of them end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.builders import a_policy
from tests.property.drive import Drive
from tests.property.meddling import Meddler
from tests.property.worlds import CONTENDERS, scenarios
from trainmaster.core.snapshot import restored, snapshot_of
from trainmaster.core.state import State
from trainmaster.model import actions as a
from trainmaster.model import events as e
from trainmaster.model.units import SECOND
from trainmaster.sim.driver import Scenario


@dataclass
class Consequences(Meddler):
    """Failures and losses speak against devices, or ask for more memory."""

    def meddled(self, state: State, events: Sequence[e.Event]) -> list[e.Event]:
        return [self._with_consequences(state, event) for event in events]

    def _with_consequences(self, state: State, event: e.Event) -> e.Event:
        if not isinstance(event, e.RunFailed | e.RunLost):
            return event
        chance, record = self._chance, state.jobs.get(event.run.job)
        if record is None or record.placement is None or chance.random() < 0.2:
            return event
        self.count += 1
        pairs = [(piece.node, piece.gpu) for piece in record.placement.slices]
        avoid = tuple(chance.sample(pairs, chance.randint(1, len(pairs))))
        if isinstance(event, e.RunLost):
            return replace(event, avoid=avoid)
        kind = state.topology.type_of_gpu[pairs[0][1]]
        node = state.topology.nodes[pairs[0][0]]
        return replace(
            event,
            avoid=avoid,
            retry_in_ms=chance.choice([0, SECOND]),
            gpu_memory=chance.choice([0, 0, kind.memory, kind.memory + 1]),
            memory=chance.choice([0, 0, node.memory // max(1, node.gpus), node.memory * 2]),
        )


SOME = ("fifo", "philly", "optimus", "gandiva", "antman", "big-brain", "trainmaster")
"""Each has placements of its own."""


@pytest.mark.parametrize("contender", SOME)
@settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(scenario=scenarios(), seed=st.integers(0, 1 << 16))
def test_jobs_that_avoid_devices_end_and_never_start_on_them(
    contender: str, scenario: Scenario, seed: int
) -> None:
    name, options = CONTENDERS[contender]
    drive = Drive(scenario, a_policy(name, **options), meddler=Consequences(seed), may_refuse=True)
    controller, chance = drive.simulation.controller, Random(seed)
    step = controller.step

    def watched(now: int, events: Sequence[e.Event]) -> object:
        decision = step(now, events)
        for order in decision.orders:
            if isinstance(order, a.Launch):
                demand = controller.state.jobs[order.run.job].demand
                assert not any(map(demand.forbids, order.placement.gpus())), order
        if controller.state.avoiding and chance.random() < 0.2:
            body = snapshot_of(controller)
            policy = a_policy(name, **options)
            again = restored(body, controller.state.topology, policy, can_freeze=False).controller
            assert snapshot_of(again)["records"] == body["records"]
            assert set(again.state.avoiding) == set(controller.state.avoiding)
        return decision

    controller.step = watched  # type: ignore[method-assign, assignment]
    drive.run().everything_ended()
