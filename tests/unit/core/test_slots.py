"""CPU slots that stand in for GPUs: what a run stopped there keeps is its host memory alone."""

from __future__ import annotations

import pytest

from tests.unit.core.stage import Strings
from trainmaster.model import actions as a
from trainmaster.model import events as e
from trainmaster.model.job import Demand, Run, Shape
from trainmaster.model.topology import SLOT_TYPE, GpuType, NodeSpec, Topology, build
from trainmaster.model.units import GIB


def slots(memory: int = 4 * GIB, host: int = 32 * GIB, count: int = 2) -> Topology:
    spec = NodeSpec("here", count, (0,), GpuType(SLOT_TYPE, memory), memory=host)
    return build(("cluster", "node", "gpu"), [spec])


def test_slots_count_as_gpus_and_any_job_may_have_one() -> None:
    assert slots().training_gpus == 2
    Strings(slots()).running("a", 0)


@pytest.mark.parametrize(
    ("stated", "kept"), [(None, 4 * GIB), (3 * GIB, 3 * GIB)], ids=["as its type", "as stated"]
)
def test_a_run_that_is_stopped_there_keeps_its_host_memory(stated: int | None, kept: int) -> None:
    demand = Demand(Shape(2), 2, 2, host_memory=stated)
    stage = Strings(slots(), can_freeze=True).submit("a", demand).start("a", 0, 1)
    assert stage.plan(a.Suspend("a")) == [a.Freeze(Run("a", 1))]
    stage.tell(e.RunSuspended(Run("a", 1), 5, frozen=True))
    space = stage.state.occupancy
    assert space.free_host == [32 * GIB - 2 * kept]
    assert space.free_memory == [4 * GIB] * 2, "nothing of it is left on the devices"
    assert stage.plan(a.Resume("a", stage.on(0, 1))) == [a.Thaw(Run("a", 1))]


def test_slots_without_memory_of_their_own_can_be_left_frozen_too() -> None:
    stage = Strings(slots(memory=0), can_freeze=True).running("a", 0)
    assert stage.plan(a.Suspend("a")) == [a.Freeze(Run("a", 1))]


def test_what_it_keeps_is_where_it_is_already() -> None:
    """Unlike a GPU's memory, which has to be moved to the host before the GPU is free."""
    demand = Demand(Shape(1), 1, 1, host_memory=20 * GIB)
    stage = Strings(slots(), can_freeze=True).submit("a", demand).start("a", 0)
    assert stage.plan(a.Suspend("a")) == [a.Freeze(Run("a", 1))]


def test_what_is_in_the_way_of_others_in_host_memory_is_saved_and_ended() -> None:
    demand = Demand(Shape(1), 1, 1, host_memory=20 * GIB)
    stage = Strings(slots(), can_freeze=True).submit("a", demand).start("a", 0).submit("b", demand)
    assert stage.plan(a.Suspend("a"), a.Start("b", stage.on(0))) == [a.Halt(Run("a", 1))]
