"""A running job gets company on its GPUs, and is alone again, without being launched again."""

from __future__ import annotations

import pytest

from tests.unit.core.stage import Strings
from trainmaster.core.lifecycle import Phase
from trainmaster.core.state import is_in_place
from trainmaster.model import actions as a
from trainmaster.model import events as e
from trainmaster.model.job import Demand, Run, Shape
from trainmaster.model.placement import Placement, Sharing
from trainmaster.model.profile import Profile
from trainmaster.model.reasons import Refused
from trainmaster.model.units import GIB, WHOLE

TIME, MPS = Sharing.TIME, Sharing.MPS


def a_world() -> Strings:
    """a runs alone on GPU 0 and has never shown that it saves; b waits."""
    world = Strings("1x2", cannot_save_at_first=True)
    return world.running("a", 0).submit("b", Demand(Shape(1, memory=4 * GIB), 1, 1))


def half(world: Strings, gib: int, sharing: Sharing = TIME) -> Placement:
    return world.on(0, share=WHOLE // 2, memory=gib * GIB, sharing=sharing)


def measured(world: Strings, job: str, gib: int) -> None:
    world.tell(e.JobProfiled(job, profile=Profile(gpu_memory=gib * GIB)))


def test_a_measured_job_gets_company_without_a_restart() -> None:
    world = a_world()
    measured(world, "a", 10)
    orders = world.plan(a.Resize("a", half(world, 11)), a.Start("b", half(world, 4)))
    assert orders == [
        a.Rebind(Run("a", 1), half(world, 11)),
        a.Launch(Run("b", 1), half(world, 4), 0),
    ]
    assert world.phase("a") is Phase.RUNNING
    assert world.state.occupancy.free_memory[0] == GIB


@pytest.mark.parametrize("gib", [None, 10])
def test_memory_that_is_not_booked_is_refused(gib: int | None) -> None:
    """All of the GPU's where it was never measured, else its peak with a margin."""
    world = a_world()
    if gib is not None:
        measured(world, "a", gib)
    assert world.refused(a.Resize("a", half(world, 10))) == [("a", Refused.NOT_ADMISSIBLE)]
    assert world.job("a").placement == world.on(0)


def test_a_run_is_alone_again_while_its_company_still_leaves() -> None:
    world = a_world()
    measured(world, "a", 10)
    world.plan(a.Resize("a", half(world, 11)), a.Start("b", half(world, 4)))
    world.started("b")
    world.tell(e.RunCanSave(Run("b", 1)))
    orders = world.plan(a.Suspend("b"), a.Resize("a", world.on(0)))
    assert orders == [a.Halt(Run("b", 1)), a.Rebind(Run("a", 1), world.on(0))]
    assert world.refused(a.Start("b", half(world, 4))) == [("b", Refused.WRONG_PHASE)]


def test_to_mps_it_must_be_launched_again() -> None:
    world = a_world()
    measured(world, "a", 10)
    refusal = [("a", Refused.WORK_WOULD_BE_LOST)]
    assert world.refused(a.Resize("a", half(world, 11, MPS))) == refusal
    world.tell(e.RunCanSave(Run("a", 1)))
    assert world.plan(a.Resize("a", half(world, 11, MPS))) == [
        a.Reshape(Run("a", 1), half(world, 11, MPS))
    ]


@pytest.mark.parametrize(
    ("old", "new", "wanted"),
    [
        (("exclusive", 1000, 0), ("time", 500, 4), True),
        (("time", 500, 4), ("exclusive", 1000, 0), True),
        (("time", 500, 4), ("time", 250, 2), True),
        (("mps", 1000, 4), ("mps", 500, 4), True),
        (("mps", 1000, 4), ("mps", 500, 2), False),
        (("exclusive", 1000, 0), ("mps", 500, 4), False),
        (("mps", 500, 4), ("time", 500, 4), False),
    ],
)
def test_what_its_processes_do_not_notice(
    old: tuple[str, int, int], new: tuple[str, int, int], wanted: bool
) -> None:
    one, other = (
        Strings("1x2").on(0, share=share, memory=gib * GIB, sharing=Sharing(mode))
        for mode, share, gib in (old, new)
    )
    assert is_in_place(one, other) is wanted
    assert not is_in_place(one, Strings("1x2").on(1))
