"""Sharing GPUs, waiting for locality, migrating and resizing: nothing is over-booked, all jobs end, no cache.

One property, over policies that do these things and workloads that call for them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.builders import a_policy, a_scenario, traced
from tests.policies.ours import ours
from tests.property.drive import Drive
from tests.property.worlds import CONTENDERS, WORLDS, changes, topologies
from trainmaster.core.policy import Policy
from trainmaster.model import actions as a
from trainmaster.model.job import Demand, Shape
from trainmaster.model.placement import Sharing
from trainmaster.model.units import GIB, NOMINAL, SECOND
from trainmaster.perf.default_parameters import LOCALITY, NEIGHBOURS
from trainmaster.perf.gpu_interference import SharedGpu
from trainmaster.policies.trainmaster.options import LocalityTerms, PackingTerms, ResizingTerms
from trainmaster.sim.driver import Estimates, Scenario

PAIRS = SharedGpu(
    pairs={
        ("good", "good"): 9 * NOMINAL // 10,
        ("good", "bad"): 4 * NOMINAL // 10,
        ("bad", "good"): 5 * NOMINAL // 10,
        ("bad", "bad"): 3 * NOMINAL // 10,
    }
)
NEAR = LocalityTerms(look_ms=2 * SECOND, rest_ms=SECOND)
PACKED = PackingTerms(Sharing.TIME, 700_000, trial_ms=2 * SECOND, move_ms=SECOND)
GROWN = ResizingTerms(rest_ms=4 * SECOND, rest_switches=0)
QUEUES = {"queues": "default:1,other:3", "half_life_s": 30}


def gandiva(name: str) -> Callable[[], Policy]:
    policy, options = CONTENDERS[name]
    return lambda: a_policy(policy, **options)


POLICIES: dict[str, Callable[[], Policy]] = {
    "all stages": lambda: ours(locality=NEAR, packing=PACKED, resizing=GROWN, min_run_s=3),
    "all stages, queues": lambda: ours(
        locality=NEAR, packing=PACKED, resizing=GROWN, min_run_s=3, **QUEUES
    ),
    "four on a GPU, restless": lambda: ours(
        locality=replace(NEAR, look_ms=1, rest_ms=1, ignored_ppm=0),
        packing=replace(PACKED, most=4, gain_ppm=100_000),
        resizing=replace(GROWN, rest_ms=1_000),  # each ms would be too many steps to watch
        min_run_s=0,
    ),
    "patient, MPS, guarded": lambda: ours(
        locality=replace(NEAR, patience_ppm=9 * NOMINAL),
        packing=replace(PACKED, sharing=Sharing.MPS, most=3),
        starve_after_s=20,
        min_run_s=3,
    ),
    **{name: gandiva(name) for name in CONTENDERS if name.startswith("gandiva")},
}

some = settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@st.composite
def gangs(draw: st.DrawFn) -> Demand:
    size = draw(st.sampled_from([1, 1, 1, 2, 2, 3, 4]))
    return Demand(Shape(size), size, size)


@st.composite
def small_jobs(draw: st.DrawFn) -> Demand:
    size = draw(st.sampled_from([1, 1, 1, 1, 1, 2]))
    memory = draw(st.sampled_from([0, 1, 3, 3, 7, 8])) * GIB
    return Demand(Shape(size, memory=memory), size, size)


@st.composite
def elastic_jobs(draw: st.DrawFn) -> Demand:
    size = draw(st.sampled_from([1, 1, 2, 2, 3, 4]))
    low, high = draw(st.sampled_from([1, size])), size * draw(st.sampled_from([1, 2, 4]))
    return Demand(Shape(size), low, high)


KINDS = {"gangs": gangs(), "small": small_jobs(), "elastic": elastic_jobs()}
MODELS = ["good", "bad", "vgg16", "vgg19", "resnet50", ""]


@st.composite
def workloads(draw: st.DrawFn, kind: st.SearchStrategy[Demand]) -> Scenario:
    jobs = [
        traced(
            f"j{index}",
            draw(kind),
            draw(st.sampled_from([3, 20, 60])),
            at_s=draw(st.sampled_from([0, 0, 4, 15, 31])),
            model=draw(st.sampled_from(MODELS)),
            queue=draw(st.sampled_from(["default", "other"])),
            priority=draw(st.sampled_from([0, 0, 1])),
            gpu_util_ppm=draw(st.sampled_from([100_000, 500_000, None])),
            failed_s=draw(st.sampled_from([(), (), (), (2,)])),
        )
        for index in range(draw(st.integers(2, 13)))
    ]
    world = replace(draw(st.sampled_from(WORLDS)), interferes=True, shared_gpu=PAIRS)
    if draw(st.booleans()):
        world = replace(world, locality=LOCALITY, neighbours=NEIGHBOURS)
    topology = draw(topologies(uniform=draw(st.booleans())))
    moves = draw(st.one_of(st.just(()), changes(topology)))
    scenario = a_scenario(jobs, topology, world, node_changes=moves)
    return replace(scenario, estimates=Estimates(known=draw(st.booleans())))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("policy", POLICIES)
@some
@given(data=st.data(), seed=st.integers(0, 1 << 16))
def test_nothing_is_overbooked_and_no_cache_is_needed(
    kind: str, policy: str, data: st.DataObject, seed: int
) -> None:
    scenario = data.draw(workloads(KINDS[kind]))
    drive = Drive(scenario, POLICIES[policy]()).run()
    drive.everything_ended()
    drive.work_is_conserved()
    forgetful = Drive(scenario, POLICIES[policy](), forgetful=Random(seed), checked=False).run()
    assert drive.orders()[: len(forgetful.orders())] == forgetful.orders()


@some
@given(scenario=workloads(elastic_jobs()))
def test_a_run_rests_before_it_grows(scenario: Scenario) -> None:
    """So that no two resizings of a run end in growth within the rest: nothing goes to and fro."""
    sizes: dict[str, tuple[int, int]] = {}
    for now, orders in Drive(scenario, POLICIES["all stages"]()).run().orders():
        for order in orders:
            if not isinstance(order, a.Launch | a.Reshape | a.Thaw):
                continue
            job = order.run.job
            if isinstance(order, a.Thaw):
                sizes.pop(job, None)
                continue
            count = len(order.placement.slices)
            if isinstance(order, a.Reshape) and job in sizes and count > sizes[job][1]:
                assert now - sizes[job][0] >= GROWN.rest_ms
            sizes[job] = (now, count)
