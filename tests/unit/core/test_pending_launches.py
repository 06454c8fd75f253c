"""Launches onto GPUs that others still have to leave, and what becomes of them."""

from __future__ import annotations

from tests.unit.core.stage import Strings
from trainmaster.core.lifecycle import Phase
from trainmaster.core.state import LAUNCH_SLACK
from trainmaster.model import actions as a
from trainmaster.model import events as e
from trainmaster.model.job import Run
from trainmaster.model.units import SECOND

GRACE = 30 * SECOND


def claimed() -> Strings:
    """`new` has been given the GPU that `old` is told to leave."""
    world = Strings("2x1").running("old", 0).submit("new")
    orders = world.later(10).plan(a.Suspend("old"), a.Start("new", world.on(0)))
    assert orders == [a.Halt(Run("old", 1))], "the launch is held back"
    return world


def test_a_launch_is_held_back_until_the_release_is_a_fact() -> None:
    world = claimed()
    assert world.phase("new") is Phase.STARTING
    assert world.last is not None
    assert world.last.wake_at == world.now + GRACE + LAUNCH_SLACK
    assert world.later(5).tell(e.RunSuspended(Run("old", 1), 7)) == [
        a.Launch(Run("new", 1), world.on(0), 0)
    ]
    assert world.last.wake_at is None


def test_a_launch_waits_for_every_run_on_its_gpus() -> None:
    world = Strings("1x2").running("a", 0).running("b", 1).submit("new", 2)
    world.plan(a.Suspend("a"), a.Suspend("b"), a.Start("new", world.on(0, 1)))
    assert world.tell(e.RunSuspended(Run("b", 1), 0)) == []
    assert world.tell(e.RunSuspended(Run("a", 1), 0)) == [
        a.Launch(Run("new", 1), world.on(0, 1), 0)
    ]


def test_an_end_or_a_failure_releases_too() -> None:
    for fact in (
        e.RunSucceeded(Run("old", 1)),
        e.RunFailed(Run("old", 1)),
        e.RunLost(Run("old", 1)),
    ):
        world = claimed()
        assert world.tell(fact) == [a.Launch(Run("new", 1), world.on(0), 0)]


def test_a_broken_promise_sets_the_node_aside_and_plans_the_job_again() -> None:
    world = claimed()
    assert world.later(89.999).tell() == []
    assert world.phase("new") is Phase.STARTING
    world.later(0.001).tell()
    assert world.phase("new") is Phase.PENDING
    assert world.last is not None
    assert world.last.planned
    assert set(world.state.set_aside) == {0}
    assert world.state.occupancy.total_free() == 1, "only the other node is offered"
    world.start("new", 1)


def test_a_late_release_is_forgiven() -> None:
    world = claimed()
    world.later(90).tell()
    world.later(60).tell(e.RunSuspended(Run("old", 1), 0))
    assert not world.state.set_aside
    assert world.state.occupancy.total_free() == 2
    assert not world.state.releasing


def test_a_promised_start_can_be_taken_back_for_free() -> None:
    world = claimed()
    assert world.plan(a.Suspend("new")) == []
    assert world.phase("new") is Phase.PENDING
    assert world.job("new").preemptions == 0
    assert world.tell(e.RunSuspended(Run("old", 1), 0)) == []


def test_a_promised_start_can_be_moved_for_free() -> None:
    world = claimed()
    assert world.plan(a.Migrate("new", world.on(1))) == [a.Launch(Run("new", 1), world.on(1), 0)]
    assert world.job("new").migrations == 0
    assert not world.state.pending_launches


def test_a_promised_start_that_moves_waits_for_a_run_that_moves_away_in_the_same_plan() -> None:
    """All moves of a plan are told to leave before any of them is launched."""
    world = Strings("4x1").running("old", 0).running("mover", 1).submit("new")
    world.plan(a.Suspend("old"), a.Start("new", world.on(0)))
    orders = world.plan(a.Migrate("new", world.on(1)), a.Migrate("mover", world.on(2)))
    assert orders == [a.Halt(Run("mover", 1))], "mover is still on GPU 1"
    world.tell(e.RunSuspended(Run("old", 1), 0))
    orders = world.tell(e.RunSuspended(Run("mover", 1), 0))
    assert sorted(orders, key=str) == sorted(
        [a.Launch(Run("new", 1), world.on(1), 0), a.Launch(Run("mover", 2), world.on(2), 0)],
        key=str,
    )


def test_two_jobs_swap_places() -> None:
    world = Strings("2x1").running("a", 0).running("b", 1)
    orders = world.later(4).plan(a.Migrate("a", world.on(1)), a.Migrate("b", world.on(0)))
    assert orders == [a.Halt(Run("a", 1)), a.Halt(Run("b", 1))]
    assert world.later(1).tell(e.RunSuspended(Run("a", 1), 4)) == []
    orders = world.later(1).tell(e.RunSuspended(Run("b", 1), 5))
    assert sorted(orders, key=str) == [
        a.Launch(Run("a", 2), world.on(1), 4),
        a.Launch(Run("b", 2), world.on(0), 5),
    ]
    world.started("a")
    assert (world.job("a").migrations, world.job("a").preemptions) == (1, 0)


def test_a_node_that_leaves_with_the_run_on_it_gets_no_launch() -> None:
    """In whichever order the two facts of one instant arrive."""
    for facts in (
        (e.RunLost(Run("old", 1)), e.NodeLeft(0)),
        (e.NodeLeft(0), e.RunLost(Run("old", 1))),
    ):
        world = claimed()
        assert world.tell(*facts) == []
        assert world.phase("new") is Phase.PENDING


# -- freezing --------------------------------------------------------------------------------------


def frozen() -> Strings:
    """`a` is frozen on GPU 0 of a node of two."""
    world = Strings("2x2", can_freeze=True).running("a", 0)
    assert world.later(10).plan(a.Suspend("a")) == [a.Freeze(Run("a", 1))]
    world.later(3).tell(e.RunSuspended(Run("a", 1), 10, frozen=True))
    return world


def test_a_frozen_run_books_what_it_leaves_behind() -> None:
    world = Strings("2x2", can_freeze=True)
    memory, host = world.state.occupancy.free_memory[0], world.state.occupancy.free_host[0]
    world = frozen()
    assert world.state.occupancy.free_memory[0] == memory - 4 * 2**20
    assert world.state.occupancy.free_host[0] == host - memory, "its GPU memory lies in host memory"
    assert world.state.occupancy.total_free() == 4
    world.plan(a.Resume("a", world.on(0)))
    assert world.state.occupancy.free_memory[0] == memory


def test_resuming_in_place_is_a_thaw_of_the_same_attempt() -> None:
    world = frozen()
    assert world.plan(a.Resume("a", world.on(0))) == [a.Thaw(Run("a", 1))]
    world.later(2).tell(e.RunResumed(Run("a", 1), 1_000_000))
    assert world.phase("a") is Phase.RUNNING
    assert world.job("a").work == 10


def test_resuming_elsewhere_is_a_halt_and_a_launch() -> None:
    world = frozen()
    assert world.plan(a.Resume("a", world.on(2))) == [a.Halt(Run("a", 1))]
    assert world.tell(e.RunSuspended(Run("a", 1), 10)) == [a.Launch(Run("a", 2), world.on(2), 10)]
    assert world.job("a").frozen is None


def test_a_run_that_shares_its_gpu_is_not_frozen() -> None:
    from tests.builders import fraction
    from trainmaster.model.placement import Sharing

    world = Strings("1x2", can_freeze=True).submit("a", fraction(0.5))
    world.start("a", 0, share=500, sharing=Sharing.MPS)
    assert world.plan(a.Suspend("a")) == [a.Halt(Run("a", 1))]


def test_three_runs_per_gpu_can_be_frozen_on_a_full_node() -> None:
    """Host memory in proportion leaves room for them; a fourth finds none."""
    world = Strings("1x2", can_freeze=True).running("a0", 0).running("b0", 1)
    for turn in range(3):
        for gpu, name in enumerate("ab"):
            run = Run(f"{name}{turn}", 1)
            assert world.plan(a.Suspend(run.job)) == [a.Freeze(run)]
            world.tell(e.RunSuspended(run, 10, frozen=True))
            world.running(f"{name}{turn + 1}", gpu)
    assert world.plan(a.Suspend("a3")) == [a.Halt(Run("a3", 1))]


def test_a_promised_thaw_can_be_taken_back() -> None:
    """The promise goes with it: when the way is free, nothing is thawed."""
    world = frozen().running("b", 0)
    world.plan(a.Suspend("b"), a.Resume("a", world.on(0)))
    world.plan(a.Suspend("a"))
    assert not world.state.pending_launches
    world.tell(e.RunSuspended(Run("a", 1), 10))
    assert world.tell(e.RunSuspended(Run("b", 1), 0)) == []
    assert world.phase("a") is Phase.SUSPENDED


def test_a_promised_thaw_can_be_moved_elsewhere() -> None:
    world = frozen().running("b", 0)
    world.plan(a.Suspend("b"), a.Resume("a", world.on(0)))
    assert world.plan(a.Migrate("a", world.on(2))) == [a.Halt(Run("a", 1))]
    assert world.tell(e.RunSuspended(Run("a", 1), 10)) == [a.Launch(Run("a", 2), world.on(2), 10)]
    assert world.tell(e.RunSuspended(Run("b", 1), 0)) == [], "a is launched once"
    assert world.job("a").attempt == 2


def test_a_frozen_run_that_is_halted_too_late_leaves_nothing_behind() -> None:
    """Its resumption elsewhere was given up before the halt was heard of: it is simply suspended."""
    world = frozen()
    world.plan(a.Resume("a", world.on(2)))
    world.later(90).tell()
    assert world.phase("a") is Phase.SUSPENDED
    world.later(1).tell(e.RunSuspended(Run("a", 1), 10))
    assert world.job("a").frozen is None, "there is nothing left to thaw"
    assert world.plan(a.Resume("a", world.on(0))) == [a.Launch(Run("a", 2), world.on(0), 10)]


def test_a_frozen_run_is_lost_with_its_node() -> None:
    world = frozen()
    world.tell(e.RunLost(Run("a", 1), 10), e.NodeLeft(0))
    assert world.phase("a") is Phase.PENDING
    assert world.job("a").frozen is None


def test_a_large_run_has_time_to_be_frozen() -> None:
    """A GPU's 16 GiB may take 80 s to move: the node is not set aside before that, and a minute more."""
    world = Strings("1x1", can_freeze=True).running("a", 0).submit("b")
    world.plan(a.Suspend("a"), a.Start("b", world.on(0)))
    world.later(139).tell()
    assert not world.state.set_aside
    world.later(2).tell()
    assert world.state.set_aside
