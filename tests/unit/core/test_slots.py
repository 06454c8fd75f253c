"""CPU slots that stand in for GPUs: what a run stopped there keeps is its host memory alone."""

from __future__ import annotations

import pytest

from tests.unit.core.stage import Strings
from trainmaster.core.lifecycle import Phase
from trainmaster.model import actions as a
from trainmaster.model import events as e
from trainmaster.model.job import Demand, Run, Shape
from trainmaster.model.placement import Placement, Sharing, Slice
from trainmaster.model.reasons import Refused
from trainmaster.model.topology import SLOT_TYPE, GpuType, NodeSpec, Topology, build
from trainmaster.model.units import GIB, SECOND


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


def frozen(*places: int, nodes: int = 1) -> Strings:
    """Jobs a, b, ... frozen on these slots, one each."""
    stage = Strings(two_nodes() if nodes == 2 else slots(), can_freeze=True)
    for name, slot in zip("abcdef", places, strict=False):
        stage.running(name, slot)
    names = [name for name, _ in zip("abcdef", places, strict=False)]
    stage.plan(*(a.Suspend(name) for name in names))
    stage.tell(*(e.RunSuspended(Run(name, 1), 5, frozen=True) for name in names))
    return stage


def two_nodes() -> Topology:
    kind = GpuType(SLOT_TYPE, 4 * GIB)
    specs = [NodeSpec(f"n{n}", 2, (0,), kind, memory=32 * GIB) for n in range(2)]
    return build(("cluster", "node", "gpu"), specs)


def test_a_frozen_run_goes_on_at_any_slot_of_its_node() -> None:
    stage = frozen(0)
    assert stage.plan(a.Resume("a", stage.on(1))) == [a.Thaw(Run("a", 1), stage.on(1))]
    stage.tell(e.RunResumed(Run("a", 1), 1_000_000))
    assert stage.job("a").placement == stage.on(1)
    assert stage.job("a").attempt == 1


def test_on_another_node_it_is_saved_and_started_again() -> None:
    stage = frozen(0, nodes=2)
    assert stage.plan(a.Resume("a", stage.on(2))) == [a.Halt(Run("a", 1))]


def test_two_frozen_runs_that_a_plan_swaps_stay_in_their_places() -> None:
    stage = frozen(0, 1)
    orders = stage.plan(a.Resume("a", stage.on(1)), a.Resume("b", stage.on(0)))
    assert orders == [a.Thaw(Run("a", 1)), a.Thaw(Run("b", 1))]


def test_a_run_is_not_moved_so_that_another_job_can_have_its_slot() -> None:
    stage = frozen(0).running("b", 0)
    orders = stage.plan(a.Migrate("b", stage.on(1)), a.Resume("a", stage.on(0)))
    assert orders == [a.Thaw(Run("a", 1), stage.on(1))]
    assert stage.job("b").placement == stage.on(0)
    assert stage.job("b").migrations == 0


def test_a_plan_that_hands_out_a_slot_twice_is_refused_beside_a_frozen_run() -> None:
    stage = frozen(0).submit("x").submit("y")
    starts = [a.Start("x", stage.on(1)), a.Start("y", stage.on(1))]
    assert stage.refused(a.Resume("a", stage.on(0)), *starts) == [("y", Refused.GPU_TAKEN)]


@pytest.mark.parametrize("kind", [a.Start, a.Migrate, a.Resize])
def test_a_placement_on_nothing_is_refused(kind: type[a.Start | a.Migrate | a.Resize]) -> None:
    stage = Strings(slots(), can_freeze=True).running("a", 0).submit("b")
    job = "b" if kind is a.Start else "a"
    assert stage.refused(kind(job, Placement((), 0))) == [(job, Refused.NOT_ADMISSIBLE)]
    nowhere = Placement((Slice(5, 99),), 0)
    assert stage.refused(kind(job, nowhere)) == [(job, Refused.NOT_ADMISSIBLE)]


def test_a_move_between_slots_of_a_node_is_no_move() -> None:
    stage = Strings(slots(), can_freeze=True).running("a", 0)
    assert stage.plan(a.Migrate("a", stage.on(1))) == []
    assert stage.job("a").placement == stage.on(0)


def test_a_run_that_is_to_share_its_slot_does_not_notice() -> None:
    stage = Strings(slots(), can_freeze=True).running("a", 0).later(10)
    half = stage.on(1, share=500, memory=4 * GIB, sharing=Sharing.TIME)
    assert stage.plan(a.Migrate("a", half)) == [a.Rebind(Run("a", 1), half)]
    assert stage.phase("a") is Phase.RUNNING
    stage.later(10)
    assert stage.job("a").attained_at(stage.now) == 10 * SECOND * 1500
    assert stage.plan(a.Suspend("a")) == [a.Freeze(Run("a", 1))]


def test_a_run_whose_start_is_not_yet_known_is_frozen_too() -> None:
    """Its program may have begun, and what it has done would be done again."""
    stage = Strings(slots(), can_freeze=True).submit("a")
    stage.plan(a.Start("a", stage.on(0)))
    assert stage.plan(a.Suspend("a")) == [a.Freeze(Run("a", 1))]
    stage.tell(e.RunStarted(Run("a", 1), 1_000_000))
    stage.tell(e.RunSuspended(Run("a", 1), 0, frozen=True))
    assert stage.phase("a") is Phase.SUSPENDED
    assert stage.plan(a.Resume("a", stage.on(1))) == [a.Thaw(Run("a", 1), stage.on(1))]


def test_ranks_stay_on_their_nodes() -> None:
    stage = Strings(two_nodes(), can_freeze=True).running("a", 0, 2)
    stage.plan(a.Suspend("a"))
    stage.tell(e.RunSuspended(Run("a", 1), 5, frozen=True))
    assert stage.plan(a.Resume("a", stage.on(3, 1))) == [a.Thaw(Run("a", 1), stage.on(1, 3))]
