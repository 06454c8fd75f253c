"""Runs that can be neither frozen nor save are ended only as the last resort, whatever a policy plans."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.builders import a_job, cluster
from tests.unit.core.stage import Strings
from trainmaster.catalog import policy_class, policy_names
from trainmaster.config.options import read_options
from trainmaster.core.controller import Controller
from trainmaster.core.invariants import check
from trainmaster.core.lifecycle import Phase
from trainmaster.core.policy import Policy
from trainmaster.core.snapshot import restored, snapshot_of
from trainmaster.model import actions as a
from trainmaster.model import events as e
from trainmaster.model.job import Demand, Run, Shape, gpus
from trainmaster.model.placement import Sharing
from trainmaster.model.plan import Plan
from trainmaster.model.reasons import Refused
from trainmaster.model.topology import SLOT_TYPE, GpuType, NodeSpec, Topology, build
from trainmaster.model.units import GIB, MINUTE, NOMINAL, SECOND

LIVE_POLICIES = [name for name in policy_names() if not policy_class(name).needs_oracle]
LOST = Refused.WORK_WOULD_BE_LOST


def gpu_world() -> Strings:
    """GPUs that no run can be frozen on, and programs that have not shown that they save."""
    return Strings("1x2", cannot_save_at_first=True)


def swap(stage: Strings, out: str, into: str) -> tuple[a.Action, ...]:
    """Make room for a job of two GPUs."""
    return a.Suspend(out), a.Start(into, stage.on(0, 1))


def is_protected(stage: Strings, *actions: a.Action) -> bool:
    """Whether the policy is asked again, and the run goes on."""
    assert stage.try_plan(*actions) == []
    return stage.job(actions[0].job).is_protected


def test_it_is_not_ended_for_a_job_that_has_waited_less_than_it_would_lose() -> None:
    stage = gpu_world().running("a", 0).later(1200).submit("b", 2).later(1199)
    assert is_protected(stage, *swap(stage, "a", "b"))


def test_it_is_never_ended_for_a_job_that_has_waited_less_than_ten_minutes() -> None:
    stage = gpu_world().submit("b", 2).running("a", 0).later(599)
    assert is_protected(stage, *swap(stage, "a", "b"))


def test_it_is_ended_for_a_larger_job_that_has_waited_as_long() -> None:
    stage = gpu_world().submit("b", 2).later(60).running("a", 0).later(600)
    assert stage.plan(*swap(stage, "a", "b")) == [a.Halt(Run("a", 1))]


def test_it_is_never_ended_for_a_job_of_its_own_size() -> None:
    stage = gpu_world().submit("b").later(60).running("a", 0).later(86_400)
    assert is_protected(stage, a.Suspend("a"), a.Start("b", stage.on(0)))


def test_it_is_not_ended_for_a_job_that_starts_elsewhere() -> None:
    stage = Strings("1x4", cannot_save_at_first=True).submit("big", 2).later(60).running("a", 0)
    stage.later(700)
    assert is_protected(stage, a.Suspend("a"), a.Start("big", stage.on(2, 3)))
    assert is_protected(stage, a.Suspend("a"))


def test_it_is_not_ended_for_a_job_that_runs_already() -> None:
    stage = (
        Strings("1x4", cannot_save_at_first=True).running("big", 2, 3).running("a", 0).later(7000)
    )
    assert is_protected(stage, a.Suspend("a"), a.Start("big", stage.on(0, 1)))


def test_it_is_ended_at_last_for_a_job_that_came_when_it_ran() -> None:
    """What it does while the other waits is not counted: that would never be outwaited."""
    stage = gpu_world().running("a", 0).later(3600).submit("b", 2).later(3599)
    assert is_protected(stage, *swap(stage, "a", "b"))
    stage.later(600)
    assert stage.plan(*swap(stage, "a", "b")) == [a.Halt(Run("a", 1))]


@pytest.mark.parametrize("speed_ppm", [NOMINAL // 4, 3 * NOMINAL])
def test_so_it_is_at_any_speed(speed_ppm: int) -> None:
    stage = gpu_world().submit("a")
    stage.plan(a.Start("a", stage.on(0)))
    stage.started("a", speed_ppm)
    stage.later(3600).submit("b", 2).later(3600)
    assert stage.plan(*swap(stage, "a", "b")) == [a.Halt(Run("a", 1))]


@pytest.mark.parametrize("gpu_count", [1, 2])
def test_it_is_never_ended_for_an_elastic_job_that_can_do_with_as_few(gpu_count: int) -> None:
    """Else two of them could end each other in turns, each nominally larger than the other is now."""
    either = gpus(2, minimum=1, maximum=2)
    stage = gpu_world().submit("b", either).submit("a", either).start("a", 0).later(86_400)
    assert is_protected(stage, a.Suspend("a"), a.Start("b", stage.on(*range(gpu_count))))


def test_an_elastic_run_that_has_grown_is_as_large_as_what_it_holds() -> None:
    stage = Strings("1x4", cannot_save_at_first=True).submit("b", 3)
    stage.submit("a", gpus(1, minimum=1, maximum=4)).start("a", 0, 1, 2).later(86_400)
    assert is_protected(stage, a.Suspend("a"), a.Start("b", stage.on(0, 1, 2)))


def test_a_run_that_shares_its_gpu_is_as_large_as_what_it_needs() -> None:
    stage = Strings("1x1", cannot_save_at_first=True).submit("b").submit("a")
    kind = stage.topology.type_of_gpu[0]
    stage.start("a", 0, share=500, memory=kind.memory, sharing=Sharing.TIME).later(86_400)
    assert is_protected(stage, a.Suspend("a"), a.Start("b", stage.on(0)))


def test_each_time_it_was_ended_the_next_must_wait_twice_as_long() -> None:
    stage = gpu_world().submit("b", 2).submit("c", 2).running("a", 0).later(600)
    stage.plan(*swap(stage, "a", "b"))
    stage.tell(e.RunSuspended(Run("a", 1), 0))
    stage.started("b")
    stage.tell(e.RunSucceeded(Run("b", 1)))
    stage.plan(a.Resume("a", stage.on(0)))
    stage.started("a")
    assert (stage.job("a").endings, stage.job("a").lost_work) == (1, 600 * SECOND * NOMINAL)
    stage.later(500)
    assert is_protected(stage, *swap(stage, "a", "c")), "1,100 s are less than 2 x 600 s"


@pytest.mark.parametrize("preemptible", [True, False], ids=["has much to lose", "not preemptible"])
def test_no_run_is_ended_in_vain_beside_one_that_must_not_be(preemptible: bool) -> None:
    """A policy that insists on both runs gets neither: with one of them the job cannot start."""
    stage = Strings("1x4", cannot_save_at_first=True).running("b", 1, preemptible=preemptible)
    stage.later(3600).submit("big", 3).running("a", 0).later(700)
    plan = (a.Suspend("a"), a.Suspend("b"), a.Start("big", stage.on(0, 1, 2)))
    stage.script.plan = lambda view, memo, now: Plan(plan, memo)  # type: ignore[method-assign]
    assert stage.try_plan() == []
    assert stage.last is not None
    refused = {each.job: each.why for each in stage.last.refusals}
    why = LOST if preemptible else Refused.NOT_PREEMPTIBLE
    assert refused == {"a": LOST, "b": why, "big": Refused.GPU_TAKEN}
    assert not stage.job("a").is_protected, "for another place of the job it may go at once"
    assert stage.job("b").is_protected


def mistaken(stage: Strings, mistake: str) -> tuple[a.Action, ...]:
    """A plan that ends `v` for `big`, which it cannot start."""
    out, start = a.Suspend("v"), a.Start("big", stage.on(0, 1))
    return {
        "its other GPU is taken": (out, start),
        "its other GPU is left too late": (out, start, a.Suspend("other")),
        "a run that cannot save would have to move": (out, a.Migrate("v2", stage.on(3)), start),
        "it has one GPU too few": (out, a.Start("big", stage.on(0))),
        "it starts before the run has left": (a.Start("big", stage.on(0, 3)), out),
        "another job starts there first": (
            *(out, a.Start("small", stage.on(3)), a.Start("big", stage.on(0, 3))),
        ),
        "its other GPU is reserved": (out, a.Start("big", stage.on(0, 4))),
        "its other GPU is on a drained node": (out, a.Start("big", stage.on(0, 6))),
    }[mistake]


@pytest.mark.parametrize(
    ("mistake", "refused"),
    [
        ("its other GPU is taken", {"v", "big"}),
        ("its other GPU is left too late", {"v", "big", "other"}),
        ("a run that cannot save would have to move", {"v", "v2", "big"}),
        ("it has one GPU too few", {"v", "big"}),
        ("it starts before the run has left", {"v", "big"}),
        ("another job starts there first", {"v", "big"}),
        ("its other GPU is reserved", {"v", "big"}),
        ("its other GPU is on a drained node", {"v", "big"}),
    ],
)
def test_no_run_is_ended_for_a_start_that_does_not_hold(mistake: str, refused: set[str]) -> None:
    stage = Strings("2x6", cannot_save_at_first=True).submit("big", 2).submit("small")
    stage.submit("next").running("v", 0).running("other", 1).running("v2", 2).later(1500)
    stage.plan(a.Reserve("next", stage.on(4).slices, None))
    stage.tell(e.NodeDraining(1))
    plan = mistaken(stage, mistake)
    stage.script.plan = lambda view, memo, now: Plan(plan, memo)  # type: ignore[method-assign]
    stage.try_plan()
    assert stage.last is not None
    assert not [order for order in stage.last.orders if isinstance(order, a.Halt)]
    assert {each.job for each in stage.last.refusals} == refused
    assert stage.phase("v") is Phase.RUNNING


@pytest.mark.parametrize("how", ["released", "its own", "left by another run", "moved away"])
def test_a_run_is_ended_for_a_start_whose_other_gpu_becomes_free(how: str) -> None:
    stage = Strings("1x6", cannot_save_at_first=True).submit("big", 2).submit("next")
    stage.running("v", 0).running("saver", 1).later(1500)
    stage.tell(e.RunSaved(Run("saver", 1), stage.job("saver").work_at(stage.now)))
    stage.plan(
        a.Reserve("next", stage.on(4).slices, None), a.Reserve("big", stage.on(5).slices, None)
    )
    before, gpu = {
        "released": ([a.Release("next")], 4),
        "its own": ([], 5),
        "left by another run": ([a.Suspend("saver")], 1),
        "moved away": ([a.Migrate("saver", stage.on(2))], 1),
    }[how]
    orders = stage.plan(a.Suspend("v"), *before, a.Start("big", stage.on(0, gpu)))
    assert a.Halt(Run("v", 1)) in orders


def test_runs_are_ended_together_where_each_may_be() -> None:
    stage = Strings("1x4", cannot_save_at_first=True).submit("big", 3).running("b", 1)
    stage.running("a", 0).later(700)
    halts = stage.plan(a.Suspend("a"), a.Suspend("b"), a.Start("big", stage.on(0, 1, 2)))
    assert halts == [a.Halt(Run("a", 1)), a.Halt(Run("b", 1))]


def test_a_policy_that_insists_is_refused() -> None:
    stage = gpu_world().running("a", 0).later(60).submit("b")
    plan = (a.Suspend("a"), a.Start("b", stage.on(0)))
    stage.script.plan = lambda view, memo, now: Plan(plan, memo)  # type: ignore[method-assign]
    assert stage.refused(*plan) == [("a", LOST), ("b", Refused.GPU_TAKEN)]
    assert stage.phase("a") is Phase.RUNNING
    assert stage.last is not None
    assert stage.last.wake_at == stage.now + 10 * MINUTE, "when it may ask again"


def test_a_run_that_has_saved_may_go_at_once() -> None:
    stage = gpu_world().running("a", 0).submit("b", 2).later(300)
    stage.tell(e.RunSaved(Run("a", 1), 300 * SECOND * NOMINAL))
    stage.later(5)
    assert stage.plan(*swap(stage, "a", "b")) == [a.Halt(Run("a", 1))]


def test_one_that_has_saved_when_it_was_told_to_end_is_known_to() -> None:
    stage = gpu_world().running("a", 0).later(60)
    stage.tell(e.JobHeld("a"))
    stage.tell(e.RunSuspended(Run("a", 1), 60 * SECOND * NOMINAL))
    assert not stage.job("a").cannot_save
    assert not stage.job("a").endings


def test_a_file_of_before_shows_what_it_saved_but_not_that_it_will() -> None:
    stage = gpu_world().running("a", 0).later(60)
    stage.tell(e.JobHeld("a"))
    work = 60 * SECOND * NOMINAL
    stage.tell(e.RunSuspended(Run("a", 1), work, shows_saving=False))
    assert stage.job("a").saved_work == work
    assert stage.job("a").cannot_save


def test_moving_and_resizing_would_end_it_too() -> None:
    stage = Strings("2x2", cannot_save_at_first=True).running("a", 0)
    stage.submit("b", gpus(1, minimum=1, maximum=2)).start("b", 1).later(3600)
    assert stage.refused(a.Migrate("a", stage.on(2))) == [("a", LOST)]
    assert stage.refused(a.Resize("b", stage.on(1, 2))) == [("b", LOST)]


def test_a_policy_cannot_stop_it_either() -> None:
    stage = gpu_world().running("a", 0).submit("b").later(3600)
    assert stage.refused(a.Stop("a"), a.Stop("b")) == [("a", LOST)]
    assert set(stage.state.jobs) == {"a"}, "b has no run"
    stage.tell(e.RunSaved(Run("a", 1), 60 * SECOND * NOMINAL))
    assert stage.plan(a.Stop("a")) == [a.Kill(Run("a", 1))]


def test_nor_can_it_stop_a_frozen_one() -> None:
    stage = frozen_at_0()
    assert stage.refused(a.Stop("a")) == [("a", LOST)]


def test_users_may_stop_what_policies_may_not() -> None:
    stage = gpu_world().running("a", 0).running("b", 1, preemptible=False).later(3600)
    asked = [e.ActionRequested(a.Stop(name)) for name in "ab"]
    assert stage.tell(*asked) == [a.Kill(Run("a", 1)), a.Kill(Run("b", 1))]


def test_users_may_ask_for_what_loses_work() -> None:
    stage = Strings("2x2", cannot_save_at_first=True).running("a", 0).later(3600)
    assert stage.tell(e.ActionRequested(a.Migrate("a", stage.on(2)))) == [a.Halt(Run("a", 1))]


def test_a_job_that_is_not_preemptible_is_left_alone() -> None:
    stage = Strings().running("a", 0, preemptible=False).submit("b").later(86_400)
    kept = Refused.NOT_PREEMPTIBLE
    assert ("a", kept) in stage.refused(a.Suspend("a"), a.Start("b", stage.on(0)))
    assert stage.refused(a.Migrate("a", stage.on(1))) == [("a", kept)]
    assert stage.refused(a.Stop("a")) == [("a", kept)]
    stage.tell(e.JobHeld("a"))
    assert stage.phase("a") is Phase.SUSPENDING, "its owner may"


def slots(host: int = 32 * GIB, nodes: int = 2) -> Topology:
    kind = GpuType(SLOT_TYPE, 4 * GIB)
    specs = [NodeSpec(f"n{n}", 1, (0,), kind, memory=host) for n in range(nodes)]
    return build(("cluster", "node", "gpu"), specs)


def frozen_at_0() -> Strings:
    stage = Strings(slots(), can_freeze=True, cannot_save_at_first=True).running("a", 0).later(60)
    stage.plan(a.Suspend("a"))
    stage.tell(e.RunSuspended(Run("a", 1), 60 * SECOND * NOMINAL, frozen=True))
    return stage


def test_a_frozen_run_that_is_to_start_elsewhere_goes_on_in_its_place() -> None:
    stage = frozen_at_0()
    assert stage.plan(a.Resume("a", stage.on(1))) == [a.Thaw(Run("a", 1))]


def test_it_waits_while_its_place_is_taken() -> None:
    stage = frozen_at_0().running("b", 0)
    assert stage.refused(a.Resume("a", stage.on(1))) == [("a", LOST)]
    assert stage.phase("a") is Phase.SUSPENDED


def test_frozen_runs_in_the_way_of_a_waiting_job_go_on_rather_than_end() -> None:
    stage = frozen_at_0().submit("b")
    stage.state.log.needs_pass = True
    assert stage.tell() == [a.Thaw(Run("a", 1))]


def all_memory(stage: Strings, count: int) -> Demand:
    """A job that needs all the memory of as many nodes."""
    return Demand(Shape(count), count, count, host_memory=stage.topology.nodes[0].memory)


def test_frozen_runs_that_save_make_room() -> None:
    stage = frozen_at_0()
    stage.job("a").cannot_save = False
    stage.submit("b", all_memory(stage, 2))
    stage.state.log.needs_pass = True
    assert stage.tell() == [a.Halt(Run("a", 1))]


def test_they_go_on_where_their_memory_is_not_what_the_other_job_lacks() -> None:
    stage = frozen_at_0()
    stage.job("a").cannot_save = False
    stage.submit("b", all_memory(stage, 3))
    stage.state.log.needs_pass = True
    assert stage.tell() == [a.Thaw(Run("a", 1))]


@pytest.mark.parametrize("can_save", [True, False], ids=["that can save", "that cannot save"])
@pytest.mark.parametrize("is_drained", [True, False], ids=["on a drained node", "on an open node"])
def test_a_run_its_user_suspended(*, can_save: bool, is_drained: bool) -> None:
    """It is asked to save and leave only where a waiting job could start then, and never ended unsaved."""
    stage = frozen_at_0()
    stage.job("a").cannot_save = not can_save
    stage.tell(e.JobHeld("a"), *([e.NodeDraining(0)] if is_drained else []))
    stage.submit("b", all_memory(stage, 2))
    stage.state.log.needs_pass = True
    makes_room = can_save and not is_drained
    assert stage.tell() == ([a.Halt(Run("a", 1))] if makes_room else [])
    assert stage.tell() == []


def make_policy(name: str, options: Mapping[str, str]) -> Policy:
    kind = policy_class(name)
    made: Policy = kind(read_options(name, kind.options_type, options))
    return made


def live(policy: str, cluster_of: str = "1x2", **options: str) -> Controller:
    return Controller(cluster(cluster_of), make_policy(policy, options), cannot_save_at_first=True)


def play(controller: Controller, minutes: int, jobs: dict[str, int]) -> tuple[dict[str, int], int]:
    """Run programs of so many minutes that never save, minute by minute; when each ended, and halts."""
    left, running, ended, halts = dict(jobs), dict[str, Run](), dict[str, int](), 0
    events: list[e.Event] = [e.JobSubmitted(a_job(name)) for name in jobs]
    for minute in range(minutes):
        now = minute * MINUTE
        while True:
            decision = controller.step(now, events)
            assert not decision.refusals, "policies plan around it"
            orders = decision.orders
            check(controller.state)
            events = []
            for order in orders:
                name = order.run.job
                if isinstance(order, a.Launch):
                    running[name], left[name] = order.run, jobs[name]
                    events.append(e.RunStarted(order.run, NOMINAL))
                elif isinstance(order, a.Halt):
                    del running[name]
                    events.append(e.RunSuspended(order.run, 0))
                    halts += 1
            if not events:
                break
        for name in running:
            left[name] -= 1
        over = [name for name in running if not left[name]]
        events = [e.RunSucceeded(running.pop(name)) for name in over]
        ended |= dict.fromkeys(over, minute + 1)
    return ended, halts


def test_under_time_slicing_programs_that_cannot_save_run_to_their_end() -> None:
    for policy in LIVE_POLICIES:
        jobs = dict.fromkeys("abcde", 60)
        ended, halts = play(live(policy), 200, jobs)
        assert (max(ended.values()), len(ended), halts) == (180, 5, 0), policy


def test_what_is_protected_is_known_after_a_restart() -> None:
    controller = live("las", quantum_s="60")
    jobs = [e.JobSubmitted(a_job(name)) for name in "abc"]
    controller.step(0, jobs)
    controller.step(0, [e.RunStarted(Run(name, 1), NOMINAL) for name in "ab"])
    controller.step(5 * MINUTE, [])
    assert set(controller.state.protected) == {"a", "b"}
    body = snapshot_of(controller)
    for image in body["records"][:2]:  # as the version before wrote it
        assert "spared_until_ms" in image
        image |= {"is_spared": True, "spared_for": "c"}
    policy = make_policy("las", {"quantum_s": "60"})
    again = restored(
        body, controller.state.topology, policy, can_freeze=False, cannot_save_at_first=True
    ).controller
    assert set(again.state.protected) == {"a", "b"}
    assert again.next_step_at == controller.next_step_at
    assert again.state.jobs["a"].is_protected


def test_jobs_of_stores_of_before_are_taken_not_to_save_unless_they_have() -> None:
    controller = Controller(cluster("1x2"), make_policy("las", {}))
    controller.step(0, [e.JobSubmitted(a_job(name)) for name in "ab"])
    controller.step(0, [e.RunStarted(Run(name, 1), NOMINAL) for name in "ab"])
    controller.step(MINUTE, [e.RunSaved(Run("b", 1), MINUTE * NOMINAL)])
    body = {**snapshot_of(controller)}
    del body["protects_unsaved"]
    again = restored(
        body,
        controller.state.topology,
        make_policy("las", {}),
        can_freeze=False,
        cannot_save_at_first=True,
    ).controller
    assert {id: job.cannot_save for id, job in again.state.jobs.items()} == {"a": True, "b": False}


@pytest.mark.parametrize("policy", LIVE_POLICIES)
def test_no_run_on_a_drained_node_is_suspended_for_a_job_that_cannot_start(policy: str) -> None:
    """One that never ran, and one whose processes are stopped there."""
    made = make_policy(policy, {})
    controller = Controller(slots(nodes=1), made, can_freeze=True, cannot_save_at_first=True)
    controller.step(0, [e.JobSubmitted(a_job("frozen"))])
    controller.step(1, [e.RunStarted(Run("frozen", 1), NOMINAL)])
    controller.step(2, [e.JobHeld("frozen")])
    controller.step(3, [e.RunSuspended(Run("frozen", 1), NOMINAL, frozen=True)])
    controller.step(4, [e.JobSubmitted(a_job("running"))])
    controller.step(5, [e.RunStarted(Run("running", 1), NOMINAL)])
    late = e.JobSubmitted(a_job("new"))
    assert not controller.step(6, [e.NodeDraining(0), e.JobReleased("frozen"), late]).orders
    for now in range(MINUTE, 30 * MINUTE, MINUTE):
        assert not controller.step(now, []).orders
    assert controller.state.jobs["running"].phase is Phase.RUNNING
