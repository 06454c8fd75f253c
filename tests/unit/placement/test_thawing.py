"""Frozen runs go on where they lie, if their nodes can carry them again."""

from __future__ import annotations

from tests.builders import (
    a_job,
    a_policy,
    a_scenario,
    cluster,
    costly,
    on,
    traced,
)
from tests.property.drive import Drive
from trainmaster.core.occupancy import Occupancy
from trainmaster.core.state import JobRecord
from trainmaster.model.job import Demand, Shape
from trainmaster.model.units import GIB
from trainmaster.placement.placers import RELAXING, can_thaw


def frozen_on_half_a_node(space: Occupancy, host_memory: int | None = None) -> JobRecord:
    """A job of two GPUs that lies frozen on the first two of four."""
    demand = Demand(Shape(2, memory=GIB), 2, 2, host_memory=host_memory)
    record = JobRecord(a_job("cold", demand), 0, 0, None, None)
    record.frozen = on(space.topology, 0, 1, memory=GIB)
    space.book_frozen(record.frozen.gpus(), GIB, GIB)
    return record


def test_a_frozen_run_is_thawed_where_it_lies() -> None:
    space = Occupancy(cluster("n1[4]"))
    record = frozen_on_half_a_node(space)
    assert RELAXING.place(space, record) is record.frozen


def test_a_frozen_run_is_not_thawed_where_others_have_the_cpus() -> None:
    """Its GPUs are idle, but a neighbour has taken more than its part of the node's CPUs."""
    space = Occupancy(cluster("n1[4]"))
    record = frozen_on_half_a_node(space)
    greedy = Demand(Shape(2), 2, 2, cpus=space.topology.nodes[0].cpus // 2)
    space.book(on(space.topology, 2, 3), greedy)
    assert record.frozen is not None
    assert not can_thaw(space, record, record.frozen)
    assert RELAXING.place(space, record) is None


def test_a_frozen_run_may_use_the_host_memory_that_it_holds() -> None:
    space = Occupancy(cluster("n1[4]"))
    node = space.topology.nodes[0]
    record = frozen_on_half_a_node(space, host_memory=node.memory // 2)
    assert record.frozen is not None
    assert can_thaw(space, record, record.frozen)


def test_a_freezing_leaves_the_gpu_memory_that_the_newcomer_states() -> None:
    """`b` wants all 16 GiB of the GPUs on which `a` would leave 4 MiB: `a` is halted instead."""
    full = Demand(Shape(2, memory=16 * GIB), 2, 2)
    jobs = [traced("a", 2, 100), traced("b", full, 10, at_s=10)]
    world = costly(can_freeze=True, resume_ms=25_000, thaw_ms=1_000)
    run = Drive(a_scenario(jobs, "1x3", world), a_policy("srtf")).run()
    run.everything_ended()
