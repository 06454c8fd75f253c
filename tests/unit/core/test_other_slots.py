"""A manager that comes back with another number of CPU slots: a slot is only a number."""

from __future__ import annotations

from tests.unit.core.stage import Strings
from trainmaster.core.invariants import check
from trainmaster.core.snapshot import Restored, restored, snapshot_of
from trainmaster.model import actions as a
from trainmaster.model import events as e
from trainmaster.model.job import Demand, Run, Shape
from trainmaster.model.placement import Sharing
from trainmaster.model.topology import SLOT_TYPE, GpuType, NodeSpec, Topology, build
from trainmaster.model.units import GIB


def slots(*counts: int, kind: str = SLOT_TYPE) -> Topology:
    nodes = (
        NodeSpec(f"n{index}", count, (0,), GpuType(kind, GIB), memory=64 * GIB)
        for index, count in enumerate(counts)
    )
    return build(("cluster", "node", "gpu"), list(nodes))


def on(world: Strings, topology: Topology) -> Restored:
    """The same world on these devices; its tables agree with its records."""
    found = restored(snapshot_of(world.controller), topology, world.script, can_freeze=True)
    check(found.controller.state)
    return found


def gpus_of(found: Restored, job: str) -> list[int]:
    placement = found.controller.state.jobs[job].placement
    assert placement is not None
    return list(placement.gpus())


def frozen_on(found: Restored, job: str) -> list[int]:
    frozen = found.controller.state.jobs[job].frozen
    assert frozen is not None
    return list(frozen.gpus())


def world(*counts: int, kind: str = SLOT_TYPE) -> Strings:
    return Strings(slots(*counts, kind=kind), can_freeze=True)


def freeze(stage: Strings, job: str) -> Strings:
    assert stage.plan(a.Suspend(job)) == [a.Freeze(Run(job, 1))]
    stage.tell(e.RunSuspended(Run(job, 1), 5, frozen=True))
    return stage


def test_runs_on_slots_that_are_gone_get_free_ones_of_their_node() -> None:
    found = on(world(4).running("a", 0).running("b", 3), slots(2))
    assert (found.lost, gpus_of(found, "a"), gpus_of(found, "b")) == ((), [0], [1])


def test_a_gang_moves_as_a_whole() -> None:
    found = on(world(4).running("a", 2, 3), slots(2))
    assert (found.lost, sorted(gpus_of(found, "a"))) == ((), [0, 1])


def test_what_does_not_fit_is_lost_and_a_gang_takes_nothing_from_those_that_do() -> None:
    found = on(world(5).running("gang", 2, 3).running("a", 0).running("b", 4), slots(2))
    assert found.lost == (Run("gang", 1),)
    assert (gpus_of(found, "a"), gpus_of(found, "b")) == ([0], [1])


def test_slots_of_another_node_are_not_as_good() -> None:
    found = on(world(2, 2).running("a", 3), slots(2, 1))
    assert (found.lost, gpus_of(found, "a")) == ((), [2])
    assert on(world(2, 2).running("a", 2).running("b", 3), slots(3, 1)).lost == (Run("b", 1),)


def test_runs_that_share_a_slot_go_on_sharing_it() -> None:
    stage = world(4).running("a", 0)
    for job in ("b", "c"):
        stage.submit(job, Demand(Shape(1, 500), 1, 1)).start(job, 3, share=500, sharing=Sharing.MPS)
    found = on(stage, slots(2))
    assert (found.lost, gpus_of(found, "b"), gpus_of(found, "c")) == ((), [1], [1])


def test_a_frozen_run_needs_a_slot_of_its_node_and_not_a_free_one() -> None:
    stage = freeze(world(4).running("a", 3), "a").running("b", 0).running("c", 1)
    found = on(stage, slots(2))
    assert found.lost == ()
    assert len(frozen_on(found, "a")) == 1
    gang = freeze(world(4).running("a", 1, 3), "a")
    assert sorted(frozen_on(on(gang, slots(2)), "a")) == [0, 1]
    assert on(gang, slots(1)).lost == (Run("a", 1),)


def test_a_slot_is_no_gpu() -> None:
    stage = world(2, kind="H100").running("a", 0)
    assert on(stage, slots(2)).lost == (Run("a", 1),)
    assert on(stage, slots(2, kind="H100")).lost == ()
    assert on(world(2).running("a", 0), slots(2, kind="H100")).lost == (Run("a", 1),)


def test_a_run_that_is_being_ended_needs_no_device_to_end() -> None:
    stage = world(2).running("a", 0).running("b", 1)
    assert stage.tell(e.JobWithdrawn("b")) == [a.Kill(Run("b", 1))]
    found = on(stage, slots(1))
    assert (found.lost, gpus_of(found, "a")) == ((), [0])
    found.controller.step(stage.now, [e.RunStopped(Run("b", 1))])
    assert list(found.controller.state.jobs) == ["a"]
