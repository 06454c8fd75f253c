"""Whatever a policy remembers or a log holds comes back from its text as it was."""

from __future__ import annotations

from random import Random
from typing import get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.builders import a_policy
from tests.property.drive import Drive
from tests.property.worlds import CONTENDERS, scenarios, topologies
from trainmaster.catalog import policy_class
from trainmaster.model import actions, events
from trainmaster.model import engine_reports as reports
from trainmaster.model.codec import dumps, loads
from trainmaster.model.launch_spec import LaunchSpec
from trainmaster.model.memory_estimate import MemoryEstimate, MemorySource
from trainmaster.model.topology import Topology
from trainmaster.sim.driver import Scenario

KINDS = [
    *get_args(events.Event),
    *get_args(actions.Action),
    *get_args(actions.Order),
    *get_args(reports.Report),
    LaunchSpec,
]
st.register_type_strategy(
    MemoryEstimate,
    st.builds(
        lambda sizes, source, runs: MemoryEstimate(*sorted(sizes), source, runs),
        st.lists(st.integers(1), min_size=3, max_size=3),
        st.sampled_from(MemorySource),
        st.integers(0),
    ),
)
LIVE = [name for name, (policy, _) in CONTENDERS.items() if not policy_class(policy).needs_oracle]


def is_same(one: object, other: object) -> bool:
    """Equal in content and in every type: 1 is not 1.0, and nan is nan."""
    return type(one) is type(other) and repr(one) == repr(other)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(chance=st.data())
def test_every_kind_of_fact_order_and_report(kind: type, chance: st.DataObject) -> None:
    value = chance.draw(st.from_type(kind))
    assert is_same(loads(dumps(value)), value)


@settings(max_examples=20, deadline=None)
@given(topology=topologies())
def test_topologies(topology: Topology) -> None:
    assert loads(dumps(topology)) == topology


@pytest.mark.parametrize("contender", LIVE)
@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(scenario=scenarios(), seed=st.integers(0, 1 << 16))
def test_a_memo_that_was_written_down_gives_the_same_plans(
    contender: str, scenario: Scenario, seed: int
) -> None:
    name, options = CONTENDERS[contender]
    known = Drive(scenario, a_policy(name, **options), checked=False).run()
    read = Drive(scenario, a_policy(name, **options), checked=False)
    controller, chance = read.simulation.controller, Random(seed)
    step = controller.step

    def reading(now: int, facts: object) -> object:
        if chance.random() < 0.5:
            memo = loads(dumps(controller.memo))
            assert memo == controller.memo
            assert type(memo) is type(controller.memo)
            controller.memo = memo
        return step(now, facts)  # type: ignore[arg-type]

    controller.step = reading  # type: ignore[method-assign, assignment]
    read.run()
    assert read.orders() == known.orders()
