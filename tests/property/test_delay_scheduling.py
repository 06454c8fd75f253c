"""Gangs that wait for nearness, and runs that move for it: nothing is over-booked, all end, no cache."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.builders import a_scenario, traced
from tests.policies.closeness_hosts import NearFifo, NearGittins
from tests.property.drive import Drive
from tests.property.worlds import WORLDS, changes, topologies
from trainmaster.core.policy import Policy
from trainmaster.model.units import NOMINAL, SECOND
from trainmaster.perf.default_parameters import LOCALITY, NEIGHBOURS
from trainmaster.policies.trainmaster.delay_scheduling import Terms
from trainmaster.sim.driver import Scenario

SHORT = Terms(look_ms=2 * SECOND, rest_ms=SECOND)
HOSTS = {
    "fifo": lambda: NearFifo(SHORT, left_s=30),
    "fifo, patient": lambda: NearFifo(replace(SHORT, patience_ppm=9 * NOMINAL), left_s=60),
    "fifo, restless": lambda: NearFifo(replace(SHORT, look_ms=1, rest_ms=1, ignored_ppm=0)),
    "gittins": lambda: NearGittins(SHORT, quantum_s=7),
    "gittins, guarded": lambda: NearGittins(SHORT, quantum_s=3, starve_after_s=20, min_run_s=3),
}
MODELS = ["vgg16", "resnet50", "resnet101", "inception3", ""]

some = settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@st.composite
def gangs_far_and_near(draw: st.DrawFn) -> Scenario:
    jobs = [
        traced(
            f"j{index}",
            draw(st.sampled_from([1, 1, 1, 2, 2, 3, 4])),
            draw(st.sampled_from([3, 20, 60])),
            at_s=draw(st.sampled_from([0, 0, 4, 15, 31])),
            model=draw(st.sampled_from(MODELS)),
            priority=draw(st.sampled_from([0, 0, 1])),
            failed_s=draw(st.sampled_from([(), (), (), (2,)])),
        )
        for index in range(draw(st.integers(2, 14)))
    ]
    world = draw(st.sampled_from(WORLDS))
    if draw(st.booleans()):
        world = replace(world, locality=LOCALITY, neighbours=NEIGHBOURS, interferes=True)
    topology = draw(topologies(uniform=draw(st.booleans())))
    moves = draw(st.one_of(st.just(()), changes(len(topology.nodes))))
    return a_scenario(jobs, topology, world, node_changes=moves)


def a_host(name: str) -> Policy:
    return HOSTS[name]()


@pytest.mark.parametrize("host", HOSTS)
@some
@given(scenario=gangs_far_and_near(), seed=st.integers(0, 1 << 16))
def test_nearness_overbooks_nothing_and_needs_no_cache(
    host: str, scenario: Scenario, seed: int
) -> None:
    drive = Drive(scenario, a_host(host)).run()
    drive.everything_ended()
    drive.work_is_conserved()
    forgetful = Drive(scenario, a_host(host), forgetful=Random(seed), checked=False).run()
    assert drive.orders()[: len(forgetful.orders())] == forgetful.orders()
