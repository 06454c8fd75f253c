"""Elastic runs that breathe under a policy with ranks: nothing is over-booked, all jobs end."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.builders import a_scenario, traced
from tests.policies.breathing_hosts import BreathingFifo, BreathingGittins
from tests.property.drive import Drive
from tests.property.worlds import WORLDS, changes, scenarios, topologies
from trainmaster.core.policy import Policy
from trainmaster.model import actions as a
from trainmaster.model.job import Demand, Shape
from trainmaster.model.units import SECOND
from trainmaster.placement.placers import CONSOLIDATED
from trainmaster.policies.trainmaster.resizing import Terms
from trainmaster.sim.driver import Estimates, Scenario

QUICK = Terms(shrinks=True, rest_ms=4 * SECOND, rest_switches=0)
HOSTS = {
    "fifo": lambda: BreathingFifo(QUICK),
    "fifo, at any price": lambda: BreathingFifo(replace(QUICK, margin=0.0), min_run_s=3),
    "fifo, together or not at all": lambda: BreathingFifo(QUICK, placer=CONSOLIDATED),
    "gittins": lambda: BreathingGittins(QUICK, quantum_s=7, min_run_s=3),
    "gittins, only growing": lambda: BreathingGittins(replace(QUICK, shrinks=False), quantum_s=3),
    "gittins, only shrinking": lambda: BreathingGittins(replace(QUICK, grows=False), quantum_s=7),
    "gittins, rested": lambda: BreathingGittins(Terms(shrinks=True), quantum_s=7, min_run_s=0),
}

some = settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@st.composite
def elastic_scenarios(draw: st.DrawFn) -> Scenario:
    jobs = []
    for index in range(draw(st.integers(2, 12))):
        size = draw(st.sampled_from([1, 1, 2, 2, 3, 4]))
        low = draw(st.sampled_from([1, size]))
        high = size * draw(st.sampled_from([1, 2, 4]))
        jobs.append(
            traced(
                f"j{index}",
                Demand(Shape(size), low, high),
                draw(st.sampled_from([3, 20, 60])),
                at_s=draw(st.sampled_from([0, 0, 4, 15, 31])),
                model=draw(st.sampled_from(["vgg19", "resnet50", ""])),
                failed_s=draw(st.sampled_from([(), (), (), (2,)])),
            )
        )
    topology = draw(topologies(uniform=draw(st.booleans())))
    moves = draw(st.one_of(st.just(()), changes(len(topology.nodes))))
    scenario = a_scenario(jobs, topology, draw(st.sampled_from(WORLDS)), node_changes=moves)
    return replace(scenario, estimates=Estimates(known=False))


def a_host(name: str) -> Policy:
    return HOSTS[name]()


@pytest.mark.parametrize("host", HOSTS)
@some
@given(scenario=st.one_of(elastic_scenarios(), scenarios()), seed=st.integers(0, 1 << 16))
def test_breathing_overbooks_nothing_and_needs_no_cache(
    host: str, scenario: Scenario, seed: int
) -> None:
    drive = Drive(scenario, a_host(host)).run()
    drive.everything_ended()
    drive.work_is_conserved()
    forgetful = Drive(scenario, a_host(host), forgetful=Random(seed), checked=False).run()
    assert drive.orders()[: len(forgetful.orders())] == forgetful.orders()


@pytest.mark.parametrize("host", ["fifo", "gittins"])
@some
@given(scenario=elastic_scenarios())
def test_a_run_rests_before_it_grows(host: str, scenario: Scenario) -> None:
    """So that no two resizings of a run end in growth within the rest: nothing goes to and fro."""
    sizes: dict[str, tuple[int, int]] = {}
    for now, orders in Drive(scenario, a_host(host)).run().orders():
        for order in orders:
            if not isinstance(order, a.Launch | a.Reshape | a.Thaw):
                continue
            job = order.run.job
            if isinstance(order, a.Thaw):
                sizes.pop(job, None)
                continue
            count = len(order.placement.slices)
            if isinstance(order, a.Reshape) and job in sizes and count > sizes[job][1]:
                assert now - sizes[job][0] >= QUICK.rest_ms
            sizes[job] = (now, count)
