"""Single-GPU jobs that join others under a policy with ranks: nothing is over-booked, all end."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.builders import a_scenario, traced
from tests.policies.packing_hosts import PackingFifo, PackingGittins
from tests.property.drive import Drive
from tests.property.worlds import WORLDS, changes, topologies
from trainmaster.core.policy import Policy
from trainmaster.model.job import Demand, Shape
from trainmaster.model.placement import Sharing
from trainmaster.model.units import GIB, NOMINAL, SECOND
from trainmaster.perf.gpu_interference import SharedGpu
from trainmaster.policies.trainmaster.colocation_state import Terms
from trainmaster.sim.driver import Scenario

PAIRS = SharedGpu(
    pairs={
        ("good", "good"): 9 * NOMINAL // 10,
        ("good", "bad"): 4 * NOMINAL // 10,
        ("bad", "good"): 5 * NOMINAL // 10,
        ("bad", "bad"): 3 * NOMINAL // 10,
    }
)
SHORT = Terms(trial_ms=2 * SECOND, move_ms=SECOND)
HOSTS = {
    "fifo": lambda: PackingFifo(SHORT),
    "fifo, four": lambda: PackingFifo(replace(SHORT, most=4, gain_ppm=100_000)),
    "gittins": lambda: PackingGittins(SHORT, quantum_s=7),
    "gittins, mps": lambda: PackingGittins(replace(SHORT, sharing=Sharing.MPS), quantum_s=3),
    "gittins, guarded": lambda: PackingGittins(
        replace(SHORT, most=3), quantum_s=7, starve_after_s=20, min_run_s=3
    ),
    "gittins, some exempt": lambda: PackingGittins(
        SHORT, lambda record: record.attained > 4_000_000 or record.seq % 4 == 1, quantum_s=7
    ),
}

some = settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@st.composite
def crowded_scenarios(draw: st.DrawFn) -> Scenario:
    jobs = []
    for index in range(draw(st.integers(2, 14))):
        size = draw(st.sampled_from([1, 1, 1, 1, 1, 2]))
        memory = draw(st.sampled_from([0, 1, 3, 3, 7, 8])) * GIB
        jobs.append(
            traced(
                f"j{index}",
                Demand(Shape(size, memory=memory), size, size),
                draw(st.sampled_from([3, 20, 60])),
                at_s=draw(st.sampled_from([0, 0, 4, 15, 31])),
                model=draw(st.sampled_from(["good", "bad", ""])),
                gpu_util_ppm=draw(st.sampled_from([100_000, 500_000, None])),
                failed_s=draw(st.sampled_from([(), (), (), (2,)])),
            )
        )
    world = replace(draw(st.sampled_from(WORLDS)), interferes=True, shared_gpu=PAIRS)
    topology = draw(topologies(uniform=draw(st.booleans())))
    moves = draw(st.one_of(st.just(()), changes(len(topology.nodes))))
    return a_scenario(jobs, topology, world, node_changes=moves)


def a_host(name: str) -> Policy:
    return HOSTS[name]()


@pytest.mark.parametrize("host", HOSTS)
@some
@given(scenario=crowded_scenarios(), seed=st.integers(0, 1 << 16))
def test_company_overbooks_nothing_and_needs_no_cache(
    host: str, scenario: Scenario, seed: int
) -> None:
    drive = Drive(scenario, a_host(host)).run()
    drive.everything_ended()
    drive.work_is_conserved()
    forgetful = Drive(scenario, a_host(host), forgetful=Random(seed), checked=False).run()
    assert drive.orders()[: len(forgetful.orders())] == forgetful.orders()
