"""Jobs that can be packed, in worlds where some pairs pay and some do not: nothing is over-booked."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.builders import a_policy, a_scenario, traced
from tests.property.drive import Drive
from tests.property.worlds import CONTENDERS, WORLDS, topologies
from trainmaster.model.job import Demand, Shape
from trainmaster.model.units import GIB, NOMINAL
from trainmaster.perf.gpu_interference import SharedGpu
from trainmaster.sim.driver import Scenario

PAIRS = SharedGpu(
    pairs={
        ("good", "good"): 9 * NOMINAL // 10,
        ("good", "bad"): 4 * NOMINAL // 10,
        ("bad", "good"): 5 * NOMINAL // 10,
        ("bad", "bad"): 3 * NOMINAL // 10,
    }
)

some = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@st.composite
def packable_scenarios(draw: st.DrawFn) -> Scenario:
    jobs = []
    for index in range(draw(st.integers(2, 12))):
        size = draw(st.sampled_from([1, 1, 1, 2]))
        demand = Demand(Shape(size, memory=draw(st.sampled_from([3, 7, 8])) * GIB), size, size)
        jobs.append(
            traced(
                f"j{index}",
                demand,
                draw(st.sampled_from([3, 20, 60])),
                at_s=draw(st.sampled_from([0, 0, 4, 15])),
                model=draw(st.sampled_from(["good", "bad"])),
                gpu_util_ppm=draw(st.sampled_from([100_000, 500_000, None])),
            )
        )
    world = replace(draw(st.sampled_from(WORLDS)), interferes=True, shared_gpu=PAIRS)
    return a_scenario(jobs, draw(topologies(uniform=True)), world)


@pytest.mark.parametrize("contender", [name for name in CONTENDERS if name.startswith("gandiva")])
@some
@given(scenario=packable_scenarios(), seed=st.integers(0, 1 << 16))
def test_packing_overbooks_nothing_and_needs_no_cache(
    contender: str, scenario: Scenario, seed: int
) -> None:
    name, options = CONTENDERS[contender]
    drive = Drive(scenario, a_policy(name, **options)).run()
    drive.everything_ended()
    drive.work_is_conserved()
    forgetful = Drive(
        scenario, a_policy(name, **options), forgetful=Random(seed), checked=False
    ).run()
    assert drive.orders()[: len(forgetful.orders())] == forgetful.orders()
