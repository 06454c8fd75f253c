"""Jobs that are held: taken off their GPUs, hidden from policies, and let in again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.builders import a_job, a_policy, cluster
from tests.policies.cases import Scripted
from tests.unit.core.stage import Strings
from trainmaster.core.controller import Controller
from trainmaster.core.freeze_check import Obstacle, freeze_refusal
from trainmaster.core.frozen_memory import FROZEN_GPU_MEMORY
from trainmaster.core.invariants import check
from trainmaster.core.lifecycle import Phase
from trainmaster.core.snapshot import restored, snapshot_of
from trainmaster.model import actions as a
from trainmaster.model import events as e
from trainmaster.model.job import Demand, Run, Shape
from trainmaster.model.placement import Placement, Sharing, Slice
from trainmaster.model.profile import Profile
from trainmaster.model.reasons import Refused
from trainmaster.model.topology import GpuType, NodeSpec, build
from trainmaster.model.units import GIB, MIB, NOMINAL
from trainmaster.placement.placers import RELAXING


def test_a_waiting_job_is_held_at_once_and_no_policy_sees_it() -> None:
    stage = Strings().submit("a").submit("b")
    stage.tell(e.JobHeld("a"))
    assert stage.phase("a") is Phase.HELD
    assert stage.state.waiting == 1
    assert list(stage.controller.view.jobs) == ["b"]
    assert stage.last is not None
    assert stage.last.planned, "others may go first now"
    stage.tell(e.JobReleased("a"))
    assert stage.phase("a") is Phase.PENDING
    assert [record.id for record in stage.controller.view.waiting()] == ["a", "b"]


def test_a_job_may_be_held_from_the_start() -> None:
    stage = Strings()
    stage.tell(e.JobSubmitted(a_job("a"), held=True))
    assert stage.phase("a") is Phase.HELD
    assert stage.last is not None
    assert not stage.last.planned
    assert stage.refused(a.Start("a", stage.on(0)))
    stage.later(5).tell(e.JobReleased("a"))
    assert stage.last.planned
    assert stage.job("a").waiting_since_ms == 5_000
    stage.start("a", 0)


def test_a_running_job_is_suspended_first_and_that_is_no_preemption() -> None:
    stage = Strings().running("a", 0, 1)
    assert stage.later(3).tell(e.JobHeld("a")) == [a.Halt(Run("a", 1))]
    assert stage.phase("a") is Phase.SUSPENDING
    stage.tell(e.RunSuspended(Run("a", 1), 3_000 * NOMINAL))
    assert stage.phase("a") is Phase.HELD
    assert stage.job("a").preemptions == 0
    stage.later(9).tell(e.JobReleased("a"))
    assert stage.phase("a") is Phase.SUSPENDED
    stage.plan(a.Resume("a", stage.on(2, 3)))
    assert stage.job("a").run == Run("a", 2)


def test_a_frozen_run_keeps_its_room_and_is_thawed_where_it_is() -> None:
    stage = Strings(can_freeze=True).running("a", 0)
    assert stage.tell(e.JobHeld("a")) == [a.Freeze(Run("a", 1))]
    stage.tell(e.RunSuspended(Run("a", 1), 0, frozen=True))
    assert stage.phase("a") is Phase.HELD
    assert stage.job("a").frozen == stage.on(0)
    node = stage.topology.nodes[0]
    assert stage.state.occupancy.free_host[0] == node.memory - node.type.memory
    stage.tell(e.JobReleased("a"))
    assert stage.phase("a") is Phase.SUSPENDED
    assert stage.plan(a.Resume("a", stage.on(0))) == [a.Thaw(Run("a", 1))]


def test_released_before_it_has_left_it_is_suspended_and_asked_about() -> None:
    stage = Strings().running("a", 0)
    stage.tell(e.JobHeld("a"))
    stage.tell(e.JobReleased("a"))
    assert stage.phase("a") is Phase.SUSPENDING
    stage.tell(e.RunSuspended(Run("a", 1), 0))
    assert stage.phase("a") is Phase.SUSPENDED
    assert stage.last is not None
    assert stage.last.planned, "in the same instant, but it was not the policy's plan"


def test_a_job_that_is_on_its_way_out_is_held_when_it_is_off() -> None:
    stage = Strings().running("a", 0)
    stage.plan(a.Suspend("a"))
    assert stage.tell(e.JobHeld("a")) == []
    assert stage.phase("a") is Phase.SUSPENDING
    stage.tell(e.RunSuspended(Run("a", 1), 0))
    assert stage.phase("a") is Phase.HELD
    assert stage.job("a").preemptions == 1


def test_a_promised_launch_is_taken_back() -> None:
    stage = Strings("1x1").running("a", 0).submit("b")
    stage.plan(a.Suspend("a"), a.Start("b", stage.on(0)))
    assert stage.phase("b") is Phase.STARTING
    assert stage.tell(e.JobHeld("b")) == []
    assert stage.phase("b") is Phase.HELD
    assert not stage.state.pending_launches
    assert stage.tell(e.RunSuspended(Run("a", 1), 0)) == []


@pytest.mark.parametrize("is_off", [False, True], ids=["on its way", "arrived"])
def test_a_moving_job_gives_up_where_it_went(*, is_off: bool) -> None:
    stage = Strings("1x2").running("a", 0).running("b", 1)
    stage.plan(a.Suspend("b"), a.Migrate("a", stage.on(1)))
    if is_off:
        stage.tell(e.RunSuspended(Run("a", 1), 5))
        assert stage.phase("a") is Phase.STARTING, "promised: b is still there"
    stage.tell(e.JobHeld("a"))
    if not is_off:
        stage.tell(e.RunSuspended(Run("a", 1), 5))
    assert stage.phase("a") is Phase.HELD
    assert stage.job("a").placement is None
    assert stage.tell(e.RunSuspended(Run("b", 1), 5)) == []


LOST = {
    "lost": lambda run: e.RunLost(run, 7),
    "failed": lambda run: e.RunFailed(run, 7),
}


@pytest.mark.parametrize("fact", LOST.values(), ids=LOST)
@pytest.mark.parametrize("is_frozen", [False, True], ids=["while it leaves", "while frozen"])
def test_whatever_becomes_of_its_run_it_stays_held(fact: object, *, is_frozen: bool) -> None:
    stage = Strings(can_freeze=is_frozen).running("a", 0)
    stage.tell(e.JobHeld("a"))
    if is_frozen:
        stage.tell(e.RunSuspended(Run("a", 1), 50, frozen=True))
    stage.tell(fact(Run("a", 1)))  # type: ignore[operator]
    assert stage.phase("a") is Phase.HELD
    assert stage.job("a").work == 7
    assert stage.job("a").frozen is None
    stage.tell(e.JobReleased("a"))
    assert stage.phase("a") is Phase.SUSPENDED


def test_a_held_job_can_be_cancelled() -> None:
    stage = Strings(can_freeze=True).submit("a").running("b", 0)
    stage.tell(e.JobHeld("a"), e.JobHeld("b"))
    stage.tell(e.RunSuspended(Run("b", 1), 0, frozen=True))
    assert stage.tell(e.JobWithdrawn("a"), e.JobWithdrawn("b")) == [a.Kill(Run("b", 1))]
    assert stage.last is not None
    assert stage.last.ended_unsuccessfully == [("a", Phase.CANCELLED)]
    stage.tell(e.RunStopped(Run("b", 1)))
    assert not stage.state.jobs
    assert not stage.state.on_hold


def test_a_reservation_of_a_held_job_is_dropped() -> None:
    stage = Strings().submit("a", 4)
    stage.plan(a.Reserve("a", stage.on(0, 1).slices))
    stage.tell(e.JobHeld("a"))
    assert not stage.state.reservations
    assert stage.refused(a.Reserve("a", stage.on(0, 1).slices))


def test_held_jobs_do_not_count_in_the_job_time_integral() -> None:
    stage = Strings().submit("a").submit("b")
    stage.tell(e.JobHeld("a"))
    stage.later(10).tell(e.JobReleased("a"))
    stage.later(1).tell()
    view = stage.controller.view
    assert view.job_time_during(stage.job("b")) == 10_000 + 2_000
    assert view.job_time_during(stage.job("a")) == 2_000, "its time begins when it may run"


def test_what_changes_nothing() -> None:
    stage = Strings().submit("a").running("b", 0)
    assert stage.tell(e.JobReleased("a"), e.JobReleased("nobody"), e.JobHeld("nobody")) == []
    stage.tell(e.JobHeld("a"))
    assert stage.tell(e.JobHeld("a")) == []
    stage.tell(e.JobWithdrawn("b"))
    assert stage.tell(e.JobHeld("b")) == []
    assert stage.phase("b") is Phase.STOPPING


def test_a_frozen_run_is_halted_where_no_job_could_run_otherwise() -> None:
    """The first in line does not fit beside what is frozen, and that one is behind it in line."""
    topology = cluster("1x1")
    controller = Controller(topology, a_policy("fifo"), can_freeze=True)
    host = topology.nodes[0].memory
    greedy = Demand(Shape(1), 1, 1, host_memory=host)
    run = Run("b", 1)
    controller.step(0, [e.JobSubmitted(a_job("a", greedy), held=True)])
    controller.step(1, [e.JobSubmitted(a_job("b", at_s=1))])
    controller.step(2, [e.RunStarted(run, NOMINAL)])
    controller.step(3, [e.JobHeld("b")])
    controller.step(4, [e.RunSuspended(run, 5, frozen=True)])
    decision = controller.step(5, [e.JobReleased("a"), e.JobReleased("b")])
    assert decision.orders == [a.Halt(run)]
    assert controller.step(6, []).orders == (), "once"
    (launch,) = controller.step(7, [e.RunSuspended(run, 6)]).orders
    assert launch.run == Run("a", 1)
    check(controller.state)


# -- what a frozen run keeps ---------------------------------------------------------------------------

H200 = GpuType("H200", 40 * GIB)


def one_h200(host: int = 128 * GIB) -> Strings:
    specs = [NodeSpec("n0", 1, (0,), H200, memory=host)]
    return Strings(
        build(("cluster", "node", "gpu"), specs), can_freeze=True, cannot_save_at_first=True
    )


def needs(memory: int) -> Demand:
    return Demand(Shape(1, memory=memory), 1, 1, host_memory=8 * GIB)


def frozen(stage: Strings, name: str, **kept: int) -> None:
    run = stage.job(name).run
    assert stage.plan(a.Suspend(name)) == [a.Freeze(run)]
    stage.tell(e.RunSuspended(run, 0, frozen=True, **kept))


def kept(stage: Strings) -> tuple[int, int]:
    """Host memory and GPU memory that are booked where only a frozen run is left."""
    space = stage.state.occupancy
    return 128 * GIB - space.free_host[0], 40 * GIB - space.free_memory[0]


def test_until_it_is_reported_the_stated_memory_is_booked_and_then_what_it_keeps() -> None:
    stage = one_h200().submit("a", needs(24 * GIB)).start("a", 0, memory=24 * GIB)
    stage.plan(a.Suspend("a"))
    assert kept(stage) == (24 * GIB, FROZEN_GPU_MEMORY)
    stage.tell(e.RunSuspended(Run("a", 1), 0, frozen=True, host_bytes=GIB, gpu_bytes=500 * MIB))
    assert kept(stage) == (GIB, 500 * MIB)
    stage.plan(a.Resume("a", stage.on(0, memory=24 * GIB)))
    stage.tell(e.RunResumed(Run("a", 1), NOMINAL))
    stage.tell(e.RunSucceeded(Run("a", 1)))
    assert kept(stage) == (0, 0)


def test_measured_memory_comes_before_stated_memory() -> None:
    stage = one_h200().submit("a", needs(24 * GIB)).start("a", 0, memory=24 * GIB)
    stage.tell(e.JobProfiled("a", profile=Profile(gpu_memory=10 * GIB)))
    frozen(stage, "a")
    assert kept(stage) == (11 * GIB, FROZEN_GPU_MEMORY)
    stage.tell(e.JobProfiled("a", profile=Profile(gpu_memory=20 * GIB)))
    stage.tell(e.RunLost(Run("a", 1)))
    assert kept(stage) == (0, 0), "what was booked is unbooked, whatever was measured since"


def test_a_gpu_with_more_memory_than_the_host_cannot_be_freed_until_the_job_is_measured() -> None:
    stage = one_h200(host=32 * GIB).submit("a").start("a", 0).later(60)
    assert stage.try_plan(a.Suspend("a")) == []
    assert stage.job("a").is_protected
    stage.tell(e.JobProfiled("a", profile=Profile(gpu_memory=4 * GIB)))
    assert not stage.job("a").is_protected, "from now on, not when its protection would have ended"
    assert stage.plan(a.Suspend("a")) == [a.Freeze(Run("a", 1))]


def test_what_it_kept_the_last_time_is_expected_the_next_time_and_no_more_than_it_may_keep() -> (
    None
):
    """A cooperative freeze leaves the CUDA context on the GPU; a job that needs that too is told of."""
    stage = one_h200().submit("a", needs(24 * GIB)).start("a", 0, memory=24 * GIB)
    frozen(stage, "a", gpu_bytes=500 * MIB)
    stage.plan(a.Resume("a", stage.on(0, memory=24 * GIB)))
    stage.tell(e.RunResumed(Run("a", 1), NOMINAL))
    stage.plan(a.Suspend("a"))
    assert kept(stage)[1] == 500 * MIB
    stage.tell(e.RunSuspended(Run("a", 1), 0, frozen=True, gpu_bytes=500 * MIB))
    stage.plan(a.Resume("a", stage.on(0, memory=24 * GIB)))
    stage.tell(e.RunResumed(Run("a", 1), NOMINAL))
    large = stage.submit("b", needs(40 * GIB - 8 * MIB)).on(0, memory=40 * GIB - 8 * MIB)
    assert stage.plan(a.Suspend("a"), a.Start("b", large)) == [a.Freeze(Run("a", 1), 8 * MIB)]
    assert stage.state.occupancy.free_memory[0] == 8 * MIB - FROZEN_GPU_MEMORY
    report = e.RunSuspended(Run("a", 1), 0, frozen=True, gpu_bytes=4 * MIB)
    assert stage.tell(report) == [a.Launch(Run("b", 1), large, 0)]


def test_a_job_that_states_all_memory_of_its_gpu_can_be_frozen() -> None:
    stage = one_h200().submit("a", needs(40 * GIB)).start("a", 0, memory=40 * GIB)
    frozen(stage, "a")
    assert stage.phase("a") is Phase.SUSPENDED


def test_what_was_measured_of_the_job_that_comes_decides_where_it_states_nothing() -> None:
    stage = one_h200().submit("a").start("a", 0).submit("b")
    stage.tell(e.JobProfiled("a", profile=Profile(gpu_memory=10 * GIB)))
    swap = (a.Suspend("a"), a.Start("b", stage.on(0)))
    assert stage.plan(*swap) == [a.Freeze(Run("a", 1))], "nothing is known of it"
    stage.tell(e.RunNotFrozen(Run("a", 1)))
    stage.tell(e.JobProfiled("b", profile=Profile(gpu_memory=30 * GIB)))
    stage.later(60)
    assert stage.plan(*swap) == [a.Freeze(Run("a", 1), 7 * GIB)]
    stage.tell(e.RunNotFrozen(Run("a", 1)))
    stage.tell(e.JobProfiled("b", profile=Profile(gpu_memory=40 * GIB)))
    stage.later(120)
    assert stage.plan(*swap) == [a.Freeze(Run("a", 1), FROZEN_GPU_MEMORY)]


def test_a_frozen_run_that_comes_back_gives_back_what_it_kept() -> None:
    most = 40 * GIB - 500 * MIB
    stage = one_h200().submit("a", needs(most)).start("a", 0, memory=most)
    frozen(stage, "a", gpu_bytes=500 * MIB, host_bytes=GIB)
    stage.submit("b", needs(most - 500 * MIB)).start("b", 0, memory=most - 500 * MIB)
    stage.tell(e.JobProfiled("b", profile=Profile(gpu_memory=GIB)))
    back = (a.Suspend("b"), a.Resume("a", stage.on(0, memory=most)))
    assert stage.plan(*back) == [a.Freeze(Run("b", 1), 500 * MIB)]


def test_an_order_of_the_log_says_what_may_stay() -> None:
    stage = one_h200().submit("a", needs(24 * GIB)).start("a", 0, memory=24 * GIB)
    frozen(stage, "a", gpu_bytes=500 * MIB)
    stage.plan(a.Resume("a", stage.on(0, memory=24 * GIB)))
    stage.tell(e.RunResumed(Run("a", 1), NOMINAL))
    stage.controller.follow(stage.now, [], [a.Freeze(Run("a", 1), 8 * MIB)])
    assert kept(stage)[1] == FROZEN_GPU_MEMORY


def test_a_run_that_keeps_more_host_memory_than_there_is_is_booked_as_it_is() -> None:
    stage = one_h200().submit("a", needs(24 * GIB)).start("a", 0, memory=24 * GIB)
    frozen(stage, "a", host_bytes=200 * GIB)
    assert stage.state.occupancy.free_host[0] == -72 * GIB
    stage.tell(e.JobWithdrawn("a"))
    stage.tell(e.RunStopped(Run("a", 1)))
    assert kept(stage) == (0, 0)


@pytest.mark.parametrize(("is_older", "host"), [(False, 3 * GIB), (True, 24 * GIB)])
def test_what_a_frozen_run_keeps_is_in_the_snapshot(is_older: bool, host: int) -> None:
    stage = one_h200().submit("a", needs(24 * GIB)).start("a", 0, memory=24 * GIB)
    frozen(stage, "a", host_bytes=3 * GIB, gpu_bytes=0)
    body = snapshot_of(stage.controller)
    if is_older:
        del body["records"][0]["kept"]
    back = restored(body, stage.topology, Scripted(), can_freeze=True).controller
    check(back.state)
    assert 128 * GIB - back.state.occupancy.free_host[0] == host


@pytest.mark.parametrize("by_mps", [None, True, False])
def test_a_run_that_was_to_use_mps_and_does_not_can_be_frozen(by_mps: bool | None) -> None:
    stage = Strings("1x2", can_freeze=True, cannot_save_at_first=True)
    half = Placement((Slice(0, 0, 500, GIB),), 0, Sharing.MPS)
    demand = Demand(Shape(1, 500, GIB), 1, 1, sharing=Sharing.MPS)
    stage.tell(e.JobSubmitted(replace(a_job("a"), demand=demand)))
    stage.plan(a.Start("a", half))
    stage.tell(e.RunStarted(Run("a", 1), NOMINAL, by_mps))
    refused = freeze_refusal(stage.state, stage.job("a"), stage.now)
    assert (None if refused is None else refused.obstacle) == (
        None if by_mps is False else Obstacle.MPS
    )
    body = snapshot_of(stage.controller)
    back = restored(body, stage.topology, Scripted(), can_freeze=True).controller
    assert back.state.jobs["a"].is_without_mps is (by_mps is False)


# -- frozen runs that go on on other GPUs (not seen on hardware) -----------------------------------------


def two_gpus(*, can_move_frozen: bool) -> Strings:
    able = {"can_freeze": True, "can_move_frozen": can_move_frozen}
    stage = Strings("2x2", **able, cannot_save_at_first=True)
    stage.running("a", 0)
    frozen(stage, "a")
    return stage.running("b", 0)


def test_a_frozen_run_goes_on_on_another_gpu_of_its_node_where_the_driver_can() -> None:
    stage = two_gpus(can_move_frozen=True)
    found = RELAXING.place(stage.state.occupancy, stage.job("a"))
    assert found == stage.on(1)
    assert stage.plan(a.Resume("a", found)) == [a.Thaw(Run("a", 1), found)]
    stage.tell(e.RunResumed(Run("a", 1), NOMINAL))
    assert stage.job("a").placement == stage.on(1)
    stage.tell(e.RunSucceeded(Run("a", 1)))
    stage.running("c", 1)


def test_where_it_cannot_it_waits_for_its_own() -> None:
    stage = two_gpus(can_move_frozen=False)
    assert RELAXING.place(stage.state.occupancy, stage.job("a")) is None
    assert stage.refused(a.Resume("a", stage.on(1))) == [("a", Refused.WORK_WOULD_BE_LOST)]


@pytest.mark.parametrize(
    "said",
    [{"host_bytes": 0}, {"host_bytes": GIB, "is_all_on_gpus": False}, {"is_all_on_gpus": False}],
)
def test_one_of_which_a_rank_has_not_used_its_gpu_yet_waits_for_its_own(
    said: dict[str, Any],
) -> None:
    """The driver has nothing to move: it would begin to use the GPU that it was started with."""
    able = {"can_freeze": True, "can_move_frozen": True}
    stage = Strings("2x2", **able, cannot_save_at_first=True).running("a", 0)
    stage.plan(a.Suspend("a"))
    stage.tell(e.RunSuspended(Run("a", 1), 0, frozen=True, **said))
    stage.running("b", 0)
    assert RELAXING.place(stage.state.occupancy, stage.job("a")) is None
    assert stage.refused(a.Resume("a", stage.on(1))) == [("a", Refused.WORK_WOULD_BE_LOST)]
    stage.tell(e.RunSucceeded(Run("b", 1)))
    assert stage.plan(a.Resume("a", stage.on(0))) == [a.Thaw(Run("a", 1))]
    check(stage.state)


@pytest.mark.parametrize(("prefix", "can_go"), [("GPU-", True), ("MIG-", False)])
def test_it_never_goes_on_on_another_slice_of_a_gpu(prefix: str, can_go: bool) -> None:
    uuids = (f"{prefix}a", f"{prefix}b")
    spec = NodeSpec("n", 2, (0,), GpuType("H100", 80 * GIB), memory=512 * GIB, uuids=uuids)
    topology = build(("cluster", "node", "gpu"), [spec])
    stage = Strings(topology, can_freeze=True, can_move_frozen=True).running("a", 0)
    frozen(stage, "a")
    assert stage.state.can_thaw_at(stage.job("a"), stage.on(0))
    assert stage.state.can_thaw_at(stage.job("a"), stage.on(1)) is can_go


def test_it_never_goes_on_on_another_node() -> None:
    stage = two_gpus(can_move_frozen=True).running("c", 1)
    assert RELAXING.place(stage.state.occupancy, stage.job("a")) is None
    assert stage.refused(a.Resume("a", stage.on(2))) == [("a", Refused.WORK_WOULD_BE_LOST)]
