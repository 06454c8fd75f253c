"""A plan is checked before it is applied: each refusal is a value with its reason."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import (
    a_job,
    fraction,
)
from tests.unit.core.stage import Strings
from trainmaster.core.draft import Draft
from trainmaster.core.invariants import check
from trainmaster.core.lifecycle import Phase
from trainmaster.core.plan_check import PlannedMemory
from trainmaster.core.view import View
from trainmaster.model import actions as a
from trainmaster.model import events as e
from trainmaster.model.job import Demand, Part, Run, Shape, gpus
from trainmaster.model.placement import Placement, Sharing, Slice
from trainmaster.model.plan import Plan
from trainmaster.model.reasons import Refused
from trainmaster.model.topology import GpuType, NodeSpec, build, parse_shorthand
from trainmaster.model.units import GIB, NOMINAL, SECOND


def test_unknown_jobs_are_refused() -> None:
    world = Strings()
    for action in (
        a.Start("x", world.on(0)),
        a.Suspend("x"),
        a.Migrate("x", world.on(0)),
        a.Stop("x"),
    ):
        assert world.refused(action) == [("x", Refused.UNKNOWN_JOB)]


def test_phases_are_respected() -> None:
    world = Strings().running("runs", 0).submit("waits")
    wrong = Refused.WRONG_PHASE
    assert world.refused(a.Start("runs", world.on(1))) == [("runs", wrong)]
    assert world.refused(a.Resume("runs", world.on(1))) == [("runs", wrong)]
    assert world.refused(a.Suspend("waits")) == [("waits", wrong)]
    assert world.refused(a.Migrate("waits", world.on(1))) == [("waits", wrong)]
    assert world.refused(a.Resize("waits", world.on(1))) == [("waits", wrong)]
    assert world.refused(a.Reserve("runs", world.on(1).slices)) == [("runs", wrong)]
    assert world.phase("runs") is Phase.RUNNING


SHAPES = {
    "too few": (gpus(2), (0,), {}),
    "too many": (gpus(2), (0, 1, 2), {}),
    "one GPU twice": (gpus(2), (0, 0), {}),
    "too small a share": (fraction(0.5), (0,), {"share": 400, "sharing": Sharing.MPS}),
    "too little memory": (fraction(0.5, 2 * GIB), (0,), {"share": 500, "sharing": Sharing.MPS}),
    "another sharing mode": (gpus(1), (0,), {"sharing": Sharing.MPS}),
}


@pytest.mark.parametrize(("demand", "devices", "how"), SHAPES.values(), ids=SHAPES)
def test_placements_that_are_not_a_shape_of_the_job(
    demand: Demand, devices: tuple[int, ...], how: dict[str, object]
) -> None:
    world = Strings().submit("a", demand)
    assert world.refused(a.Start("a", world.on(*devices, **how))) == [("a", Refused.NOT_ADMISSIBLE)]
    assert world.state.occupancy.total_free() == 8


def test_a_slice_that_names_the_wrong_node() -> None:
    world = Strings().submit("a")
    lie = Placement((Slice(1, 0),), 2)
    assert world.refused(a.Start("a", lie)) == [("a", Refused.NOT_ADMISSIBLE)]


def test_elastic_bounds_and_splits_are_shapes() -> None:
    parts = (Part(1_000, 0), Part(300, 0), Part(300, 0))
    demand = Demand(Shape(1), 1, 2, splits=(Shape(3, parts=parts),))
    for devices in ((0,), (0, 1), (0, 1, 2)):
        Strings().submit("a", demand).start("a", *devices)
    world = Strings().submit("a", demand)
    assert world.refused(a.Start("a", world.on(0, 1, 2, 3))) == [("a", Refused.NOT_ADMISSIBLE)]


def test_a_split_that_is_the_nominal_shape_is_one_of_the_shapes() -> None:
    parts = (Part(500, GIB), Part(300, GIB))
    world = Strings().submit("a", Demand(Shape(2, parts=parts), 2, 2, sharing=Sharing.MPS))
    slices = (Slice(0, 0, 500, GIB), Slice(0, 1, 300, GIB, 1))
    world.plan(a.Start("a", Placement(slices, 2, Sharing.MPS)))


def test_taken_gpus() -> None:
    world = Strings().running("busy", 0).submit("a").submit("half", fraction(0.5))
    assert world.refused(a.Start("a", world.on(0))) == [("a", Refused.GPU_TAKEN)]
    shared = world.on(0, share=500, memory=1, sharing=Sharing.MPS)
    assert world.refused(a.Start("half", shared)) == [("half", Refused.GPU_TAKEN)]


def test_one_sharing_mode_per_gpu() -> None:
    world = (
        Strings().submit("mps", fraction(0.5)).submit("time", fraction(0.5, sharing=Sharing.TIME))
    )
    world.start("mps", 0, share=500, sharing=Sharing.MPS)
    other = world.on(0, share=500, sharing=Sharing.TIME)
    assert world.refused(a.Start("time", other)) == [("time", Refused.GPU_TAKEN)]


def test_shares_and_memory_are_never_overbooked() -> None:
    world = (
        Strings("1x1")
        .submit("a", fraction(0.5))
        .submit("b", fraction(0.6))
        .submit("c", fraction(0.5))
    )
    world.start("a", 0, share=500, memory=12 * GIB, sharing=Sharing.MPS)
    big = world.on(0, share=600, memory=GIB, sharing=Sharing.MPS)
    assert world.refused(a.Start("b", big)) == [("b", Refused.GPU_TAKEN)]
    fat = world.on(0, share=500, memory=5 * GIB, sharing=Sharing.MPS)
    assert world.refused(a.Start("c", fat)) == [("c", Refused.MEMORY_TAKEN)]
    world.start("c", 0, share=500, memory=4 * GIB, sharing=Sharing.MPS)


def test_closed_nodes() -> None:
    world = Strings("2x1").submit("a")
    for fact in (e.NodeDraining(0), e.NodeLeft(0)):
        world.tell(fact)
        assert world.refused(a.Start("a", world.on(0))) == [("a", Refused.NODE_UNAVAILABLE)]


def test_host_memory_and_cpus() -> None:
    specs = [NodeSpec("n", 2, (0,), GpuType(), cpus=8_000, memory=64 * GIB)]
    for demand in (
        Demand(Shape(1), 1, 1, cpus=8_001),
        Demand(Shape(1), 1, 1, host_memory=65 * GIB),
    ):
        world = Strings(build(("cluster", "node", "gpu"), specs)).submit("a", demand)
        assert world.refused(a.Start("a", world.on(0))) == [("a", Refused.HOST_TAKEN)]
    world = Strings(build(("cluster", "node", "gpu"), specs))
    world.submit("a", Demand(Shape(1), 1, 1, cpus=8_000, host_memory=GIB)).start("a", 0)
    assert world.state.occupancy.free_cpus == [0]


def test_the_rest_of_a_plan_holds() -> None:
    world = Strings().submit("a").submit("b")
    orders = world.try_plan(
        a.Start("a", world.on(0)), a.Start("x", world.on(1)), a.Start("b", world.on(1))
    )
    assert len(orders) == 2
    assert world.last is not None
    assert [(r.job, r.detail) for r in world.last.refusals] == [("x", "")]


# -- migrations and resizes ------------------------------------------------------------------------


def test_moves_happen_together_or_not_at_all() -> None:
    world = Strings("4x1").running("a", 0).running("b", 1).running("busy", 2)
    refused = world.refused(a.Migrate("a", world.on(3)), a.Migrate("b", world.on(2)))
    assert refused == [("a", Refused.GPU_TAKEN), ("b", Refused.GPU_TAKEN)]
    assert world.job("a").placement == world.on(0)
    assert world.job("b").placement == world.on(1)
    assert world.phase("a") is Phase.RUNNING


def test_an_elastic_job_shrinks_and_grows() -> None:
    world = Strings("1x4").submit("a", Demand(Shape(2), 1, 4)).start("a", 0, 1).submit("b")
    assert world.later(5).plan(a.Resize("a", world.on(0))) == [a.Reshape(Run("a", 1), world.on(0))]
    assert world.phase("a") is Phase.RESIZING
    assert world.plan(a.Start("b", world.on(1))) == [], "promised until the shrinking is a fact"
    orders = world.later(1).tell(e.RunResized(Run("a", 1), 5 * SECOND * NOMINAL, NOMINAL // 2))
    assert orders == [a.Launch(Run("b", 1), world.on(1), 0)]
    assert world.plan(a.Resize("a", world.on(0, 2, 3))) == [
        a.Reshape(Run("a", 1), world.on(0, 2, 3))
    ]
    world.tell(e.RunResized(Run("a", 1), 5 * SECOND * NOMINAL, NOMINAL))
    assert world.job("a").rate == 3_000


def test_a_resize_that_does_not_hold_changes_nothing() -> None:
    world = Strings("1x4").submit("a", Demand(Shape(2), 1, 4)).start("a", 0, 1).running("b", 2)
    record = world.job("a")
    world.later(5)
    assert world.refused(a.Resize("a", world.on(0, 2))) == [("a", Refused.GPU_TAKEN)]
    assert record.placement == world.on(0, 1)
    assert world.phase("a") is Phase.RUNNING
    assert record.work_at(world.now) == 5 * SECOND * NOMINAL


def test_a_resize_does_not_take_gpus_that_are_still_being_released() -> None:
    world = Strings("1x4").submit("a", Demand(Shape(2), 1, 4)).start("a", 0, 1).running("b", 2)
    world.plan(a.Suspend("b"))
    assert world.refused(a.Resize("a", world.on(0, 1, 2))) == [("a", Refused.GPU_TAKEN)]


def test_a_plan_can_stop_a_job() -> None:
    world = Strings().running("a", 0)
    assert world.plan(a.Stop("a")) == [a.Kill(Run("a", 1))]


# -- reservations ----------------------------------------------------------------------------------


def test_reserved_gpus_are_hidden_from_others_and_free_for_the_holder() -> None:
    world = Strings("1x2").submit("big", 2).submit("small")
    world.plan(a.Reserve("big", world.on(0).slices))
    assert world.state.occupancy.total_free() == 1
    assert world.refused(a.Start("small", world.on(0))) == [("small", Refused.GPU_TAKEN)]
    world.start("big", 0, 1)
    assert not world.state.reservations


def test_reservations_expire_and_the_policy_is_asked_again() -> None:
    world = Strings("1x2").submit("big", 2)
    world.plan(a.Reserve("big", world.on(0).slices, until_ms=10 * SECOND))
    assert world.last is not None
    assert world.last.wake_at == 10 * SECOND
    world.later(9.999).tell()
    assert world.state.reservations
    world.later(0.001).tell()
    assert not world.state.reservations
    assert world.last.planned
    assert world.state.occupancy.total_free() == 2


def test_a_new_reservation_replaces_the_last() -> None:
    world = Strings("1x2").submit("big", 2)
    world.plan(a.Reserve("big", world.on(0).slices))
    world.plan(a.Reserve("big", world.on(1).slices))
    assert world.state.occupancy.total_free() == 1
    world.plan(a.Release("big"))
    assert world.state.occupancy.total_free() == 2


def test_reservations_go_with_their_job_and_with_their_node() -> None:
    world = Strings("2x1").submit("a", 2)
    world.plan(a.Reserve("a", world.on(0).slices))
    world.tell(e.JobWithdrawn("a"))
    assert world.state.occupancy.total_free() == 2
    world.submit("b", 2)
    for fact, back in ((e.NodeLeft(0), e.NodeJoined(0)), (e.NodeDraining(0), e.NodeUndrained(0))):
        world.plan(a.Reserve("b", world.on(0).slices))
        world.tell(fact)
        assert not world.state.reservations
        world.tell(back)
        assert world.state.occupancy.total_free() == 2


def test_what_a_run_grows_by_is_claimed_before_others_are_frozen() -> None:
    """Its host's part for the GPU that it gets, not for the one that it has."""
    world = Strings("1x4").submit("grows", gpus(1, minimum=1, maximum=2))
    world.plan(a.Start("grows", world.on(0)))
    part = world.state.occupancy.host_per_gpu[0]
    claims = PlannedMemory.of(Plan((a.Resize("grows", world.on(0, 1)),)), world.state)
    assert claims.host == {0: part}


def test_a_reservation_holds_gpus_and_no_part_of_the_host() -> None:
    """CPUs that others have taken meanwhile are asked for when the job starts."""
    all_cpus = Demand(Shape(1), 1, 1, cpus=parse_shorthand("1x2").nodes[0].cpus)
    world = Strings("1x2").submit("greedy", all_cpus).submit("gang", 2)
    world.plan(a.Start("greedy", world.on(0)))
    assert world.refused(a.Reserve("gang", world.on(1).slices)) == []


def test_only_free_gpus_can_be_reserved() -> None:
    world = Strings("1x2").running("a", 0).submit("b", 2)
    assert world.refused(a.Reserve("b", world.on(0).slices)) == [("b", Refused.GPU_TAKEN)]


# -- a policy that raises --------------------------------------------------------------------------


def test_a_policy_that_raises_leaves_running_jobs_alone_and_is_reported() -> None:
    world = Strings("1x2").running("a", 0)

    def broken(view: View, memo: object, now: int) -> Plan:
        draft = Draft(view)
        draft.suspend(world.job("a"))
        draft.start(world.job("b"), world.on(1))
        draft.reserve(world.job("b"), world.on(0).slices, None)
        raise ZeroDivisionError("by nobody")

    world.script.plan = broken  # type: ignore[method-assign, assignment]
    world.state.log.needs_pass = True
    assert world.tell(e.JobSubmitted(a_job("b"))) == []
    assert world.last is not None
    (refusal,) = world.last.refusals
    assert refusal.why is Refused.POLICY_RAISED
    assert refusal.detail.startswith("ZeroDivisionError: by nobody (")
    assert "test_plan_check.py" in refusal.detail
    assert world.phase("a") is Phase.RUNNING
    assert world.state.occupancy.total_free() == 1
    check(world.state)


def test_a_refused_move_of_a_promised_thaw_leaves_the_books_as_they_were() -> None:
    world = Strings("2x2", can_freeze=True).running("a", 0)
    world.plan(a.Suspend("a"))
    world.tell(e.RunSuspended(Run("a", 1), 0, frozen=True))
    world.running("b", 0).running("c", 2)
    world.plan(a.Suspend("b"), a.Resume("a", world.on(0)))
    assert world.refused(a.Migrate("a", world.on(2)))
    check(world.state)


def test_a_policy_that_raises_within_a_booking_leaves_no_trace() -> None:
    """What it had half booked is in no undo log."""
    world = Strings("2x2").running("a", 0)
    good = world.on(1, 2)
    bad = replace(good, slices=(good.slices[0], good.slices[1]._replace(gpu=99)))

    def broken(view: View, memo: object, now: int) -> Plan:
        Draft(view).start(world.job("b"), bad)
        raise AssertionError

    world.script.plan = broken  # type: ignore[method-assign, assignment]
    world.state.log.needs_pass = True
    world.tell(e.JobSubmitted(a_job("b", 2)))
    assert world.last is not None
    assert [refusal.why for refusal in world.last.refusals] == [Refused.POLICY_RAISED]
    check(world.state)
    assert world.state.occupancy.total_free() == 3
