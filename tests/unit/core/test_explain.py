"""Why a job waits: one reason, with its numbers in thousandths of a GPU."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import a_policy
from tests.unit.core.stage import Strings
from trainmaster.model import actions as a
from trainmaster.model import events as e
from trainmaster.model.device_aside import AsideCause
from trainmaster.model.job import Demand, Run, Shape
from trainmaster.model.placement import Sharing
from trainmaster.model.reasons import HostShortage, HostUse, PartShortage, Reason, Why
from trainmaster.model.topology import SLOT_TYPE, GpuType, NodeSpec, build
from trainmaster.model.units import GIB


def explained(world: Strings, name: str, policy: str = "fifo") -> Reason:
    asked = a_policy(policy)
    return asked.explain(world.controller.view, asked.first_memo(), world.job(name), world.now)


def test_too_few_are_free() -> None:
    world = Strings("2x4").running("big", 0, 1, 2, 3).running("small", 4).submit("me", 4)
    found = Reason(
        Why.NOT_ENOUGH_FREE, need=4_000, free=3_000, largest_block=3_000, held_by=("big", "small")
    )
    assert explained(world, "me", "las") == found
    for never in ("fifo", "yarn-cs", "qssf"):
        assert explained(world, "me", never) == replace(found, never_preempts=never)


def test_gpus_on_drained_nodes_are_counted() -> None:
    world = Strings("2x4").running("big", 0, 1, 2, 3).submit("me", 4)
    world.tell(e.NodeDraining(1))
    found = Reason(Why.NOT_ENOUGH_FREE, 4_000, held_by=("big",), drained=4_000)
    assert explained(world, "me", "las") == found


def test_gpus_of_nodes_that_are_away_or_forgotten_are_neither_drained_nor_set_aside() -> None:
    world = Strings("3x4").running("big", 0, 1, 2, 3).submit("me", 4)
    world.tell(e.NodeDraining(1), e.NodeLeft(1), e.GpuSetAside(1, 4, cause=AsideCause.USER))
    world.tell(e.NodeLeft(2), e.GpuSetAside(2, 8, cause=AsideCause.USER))
    found = Reason(Why.NOT_ENOUGH_FREE, 4_000, held_by=("big",), away=8_000)
    assert explained(world, "me", "las") == found
    world.tell(e.NodeForgotten(2))
    assert explained(world, "me", "las") == replace(found, away=4_000)
    world.submit("large", 12)
    assert explained(world, "large", "las").total == 8_000


@pytest.mark.parametrize(
    ("need", "drained", "protected"),
    [
        (4, (), ["b", "a"]),
        (4, (0,), []),
        (2, (0,), ["b"]),
        (2, (1,), ["a"]),
    ],
    ids=["nothing is drained", "too few are left", "a is on a drained node", "b is"],
)
def test_rules_are_named_only_of_jobs_whose_gpus_would_help(
    need: int, drained: tuple[int, ...], protected: list[str]
) -> None:
    world = Strings("2x2").submit("a", 2, preemptible=False).start("a", 0, 1)
    world.submit("b", 2, preemptible=False).start("b", 2, 3).submit("me", need)
    world.tell(*map(e.NodeDraining, drained))
    found = explained(world, "me", "las")
    assert found.why is Why.NOT_ENOUGH_FREE
    assert sorted(each.job for each in found.protections) == sorted(protected)


def test_enough_are_free_but_not_together() -> None:
    world = Strings("2x4").running("a", 0, 1).running("b", 4, 5).submit("me", 4)
    reason = explained(world, "me", "yarn-cs")
    assert reason == Reason(Why.FRAGMENTED, 4_000, 4_000, 2_000, ("a", "b"))
    assert explained(world, "me", "fifo").why is Why.BEHIND_OTHERS, "fifo may spread it"


def frozen_on_slots(nodes: int, each: int, memory: int | None = None) -> Strings:
    """A program that cannot save, stopped in memory on the first of these nodes of 24 GiB."""
    kind = GpuType(SLOT_TYPE, 4 * GIB)
    specs = [NodeSpec(f"n{n}", each, (0,), kind, memory=24 * GIB) for n in range(nodes)]
    world = Strings(
        build(("cluster", "node", "gpu"), specs), can_freeze=True, cannot_save_at_first=True
    )
    world.submit("a", Demand(Shape(1), 1, 1, host_memory=memory)).start("a", 0)
    world.tell(e.JobHeld("a"))
    world.tell(e.RunSuspended(Run("a", 1), 0, frozen=True))
    return world


def test_host_memory_that_a_suspended_job_keeps() -> None:
    world = frozen_on_slots(1, 2, 14 * GIB)
    world.submit("me", Demand(Shape(1), 1, 1, host_memory=14 * GIB))
    used = (HostUse("a", 14 * GIB, is_frozen=True),)
    host = HostShortage(True, 14 * GIB, 1, 10 * GIB, used)
    assert explained(world, "me") == Reason(
        Why.HOST_TAKEN, 1_000, 2_000, 2_000, held_by=("a",), host=host
    )


def test_host_memory_and_cpus_that_a_running_job_holds() -> None:
    world = Strings("1x2")
    (node,) = world.topology.nodes
    world.submit("a", Demand(Shape(1), 1, 1, host_memory=node.memory // 2 + 1, cpus=0)).start(
        "a", 0
    )
    world.submit("me", Demand(Shape(1), 1, 1, host_memory=node.memory // 2, cpus=0))
    world.submit("more", Demand(Shape(1), 1, 1, host_memory=0, cpus=node.cpus + 1))
    found = explained(world, "me")
    assert (found.why, found.host and found.host.used) == (
        Why.HOST_TAKEN,
        (HostUse("a", node.memory // 2 + 1),),
    )
    found = explained(world, "more")
    assert found.host == HostShortage(False, node.cpus + 1, 1, node.cpus)


def test_its_processes_are_stopped_where_they_cannot_go_on() -> None:
    world = frozen_on_slots(2, 1)
    world.tell(e.NodeDraining(0))
    world.tell(e.JobReleased("a"))
    found = Reason(Why.STOPPED_ON_NODE, 1_000, 1_000, 1_000, drained=1_000, detail="n0")
    assert explained(world, "a") == found
    world.tell(e.NodeUndrained(0))
    world = frozen_on_slots(2, 1).running("b", 0)
    world.tell(e.JobReleased("a"))
    assert explained(world, "a") == replace(found, drained=0, held_by=("b",))


def test_the_cluster_has_become_too_small_for_it() -> None:
    world = Strings("1x2").submit("me", 3)
    found = Reason(Why.NEVER_FITS, 3_000, 2_000, 2_000, total=2_000)
    assert explained(world, "me") == found


def test_it_would_fit_but_others_go_first() -> None:
    world = Strings("1x4").running("a", 0).submit("head", 4).submit("me")
    assert explained(world, "me") == Reason(Why.BEHIND_OTHERS, 1_000, 3_000, 3_000)


def test_what_it_could_use_is_held_for_another() -> None:
    world = Strings("1x2").submit("head", 2).submit("me", 2)
    world.plan(a.Reserve("head", world.on(0).slices))
    assert explained(world, "me") == Reason(Why.RESERVED, 2_000, 1_000, 1_000, ("head",))


def test_its_gpus_are_still_being_released() -> None:
    world = Strings("1x1").running("old", 0).submit("me")
    world.plan(a.Suspend("old"), a.Start("me", world.on(0)))
    assert explained(world, "me").why is Why.WAITING_FOR_RELEASE


def test_the_controller_passes_the_question_on() -> None:
    world = Strings("1x1").running("old", 0).submit("me")
    world.controller.policy = a_policy("fifo")
    assert world.controller.explain("me").why is Why.NOT_ENOUGH_FREE
    with pytest.raises(KeyError):
        world.controller.explain("nobody")


def part(share: int, gib: int, sharing: Sharing | None = None) -> Demand:
    return Demand(Shape(1, share, gib * GIB), 1, 1, sharing=sharing, host_memory=0, cpus=0)


@pytest.mark.parametrize(
    ("mine", "found"),
    [
        (part(600, 1), Reason(Why.NOT_ENOUGH_FREE, 600, 500, 500, ("other",))),
        (
            part(500, 9),
            Reason(
                *(Why.GPU_MEMORY_TAKEN, 500, 500, 500, ("other",)),
                part=PartShortage(9 * GIB, 8 * GIB, Sharing.MPS, Sharing.MPS),
            ),
        ),
        (
            part(500, 1, Sharing.TIME),
            Reason(
                *(Why.SHARED_OTHERWISE, 500, 0, 0, ("other",)),
                part=PartShortage(GIB, 8 * GIB, Sharing.TIME, Sharing.MPS),
            ),
        ),
        (
            replace(part(500, 1), host_memory=100 * GIB),
            Reason(Why.HOST_TAKEN, 500, 500, 500, ("other",)),
        ),
    ],
    ids=["too small", "too little memory", "shared otherwise", "host"],
)
def test_why_a_part_of_a_gpu_is_not_enough(mine: Demand, found: Reason) -> None:
    spec = NodeSpec("n", 1, (0,), GpuType("H200", 16 * GIB), memory=24 * GIB)
    world = Strings(build(("cluster", "node", "gpu"), [spec]))
    world.submit("other", part(500, 8))
    world.start("other", 0, share=500, memory=8 * GIB, sharing=Sharing.MPS)
    world.submit("me", mine)
    assert explained(world, "me", "las") == found
