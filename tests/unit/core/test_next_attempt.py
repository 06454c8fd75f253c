"""The next attempt after a failure: on other devices, with more memory."""

from __future__ import annotations

from dataclasses import replace

from tests.builders import a_job, cluster
from tests.unit.core.stage import Strings
from trainmaster.core.lifecycle import Phase
from trainmaster.core.next_attempt import AVOID_MS
from trainmaster.core.snapshot import restored, snapshot_of
from trainmaster.model import actions as a
from trainmaster.model import events as e
from trainmaster.model.codec import dumps, loads
from trainmaster.model.job import gpus
from trainmaster.model.reasons import Refused
from trainmaster.model.units import GIB, NOMINAL, SECOND
from trainmaster.placement.placers import RELAXING


def failed(world: Strings, *devices: tuple[int, int], **more: int) -> e.RunFailed:
    return e.RunFailed(world.job("a").run, avoid=devices, **more)  # type: ignore[arg-type]


def test_the_next_attempt_is_not_placed_where_it_failed_while_others_are_free() -> None:
    world = Strings("2x2").running("a", 0, retries=9)
    world.tell(failed(world, (0, 0)))
    assert world.job("a").demand.avoid == (0,)
    placement = RELAXING.place(world.state.occupancy, world.job("a"))
    assert placement is not None
    assert list(placement.gpus()) == [1]
    assert world.refused(a.Start("a", world.on(0))) == [("a", Refused.AVOIDED)]
    world.start("a", 1)
    world.tell(failed(world, (0, 0), (0, 1)))
    placement = RELAXING.place(world.state.occupancy, world.job("a"))
    assert placement is not None
    assert placement.nodes == (1,)


def test_it_waits_for_others_for_a_while_and_then_only_prefers_them() -> None:
    world = Strings("1x2").running("a", 0, retries=9).running("b", 1)
    world.tell(failed(world, (0, 0), retry_in_ms=2 * SECOND))
    world.later(2).tell()
    record = world.job("a")
    assert RELAXING.place(world.state.occupancy, record) is None
    assert world.state.occupancy.whole[0] == 0b01  # nothing stays hidden
    assert world.last is not None
    assert world.last.wake_at == 2 * SECOND + AVOID_MS
    world.later(AVOID_MS / SECOND).tell()
    assert not world.state.avoiding
    placement = RELAXING.place(world.state.occupancy, record)
    assert placement is not None
    assert list(placement.gpus()) == [0]
    world.tell(e.RunSucceeded(world.job("b").run))
    placement = RELAXING.place(world.state.occupancy, record)
    assert placement is not None
    assert list(placement.gpus()) == [1]
    world.start("a", 0)


def test_it_does_not_wait_for_others_that_would_never_be_enough() -> None:
    world = Strings("1x2").running("a", 0, 1, retries=9)
    world.tell(failed(world, (0, 0)))
    assert not world.state.avoiding
    world.start("a", 0, 1)


def test_it_is_given_no_more_devices_than_its_program_can_use() -> None:
    world = Strings("1x8").submit("a", gpus(1, maximum=8)).start("a", 0, 1)
    world.tell(e.RunSizeLimited(world.job("a").run, 3))
    assert world.job("a").demand.max_count == 3
    assert world.refused(a.Resize("a", world.on(0, 1, 2, 3))) == [("a", Refused.NOT_ADMISSIBLE)]
    body = snapshot_of(world.controller)
    again = restored(body, world.topology, world.script, can_freeze=False).controller
    assert again.state.jobs["a"].most_gpus == 3
    world.plan(a.Resize("a", world.on(0, 1, 2)))
    world.tell(e.RunResized(world.job("a").run, 0, NOMINAL))
    world.tell(e.RunSizeLimited(world.job("a").run, 5))  # of another batch: it may have more again
    assert world.job("a").demand.max_count == 5


def test_a_run_that_has_more_than_it_can_use_is_started_with_fewer() -> None:
    world = Strings("1x8").submit("a", gpus(1, maximum=8), retries=1).start("a", 0, 1, 2, 3)
    world.tell(e.RunSizeLimited(world.job("a").run, 3))
    assert world.job("a").demand.max_count == 8, "it cannot be without the devices that it has"
    world.tell(failed(world))
    assert world.job("a").demand.max_count == 3
    assert world.refused(a.Start("a", world.on(0, 1, 2, 3))) == [("a", Refused.NOT_ADMISSIBLE)]
    world.start("a", 0, 1, 2)


def test_a_failure_that_speaks_against_no_device_ends_it() -> None:
    world = Strings("2x2").running("a", 0, retries=9)
    world.tell(failed(world, (0, 0), (7, 0), (0, 99)))
    assert world.job("a").demand.avoid == (0,)
    world.start("a", 1)
    world.tell(e.RunLost(world.job("a").run))
    assert world.job("a").demand.avoid == (0,)  # a loss says nothing of it
    world.start("a", 1)
    world.tell(failed(world))
    assert (world.job("a").demand, world.state.avoiding) == (world.job("a").job.demand, {})


def test_it_may_be_cancelled_meanwhile() -> None:
    world = Strings("2x2").running("a", 0, retries=9)
    world.tell(failed(world, (0, 0)))
    world.tell(e.JobWithdrawn("a"))
    assert not world.state.avoiding


def test_another_demand_of_its_owner_begins_without_it() -> None:
    world = Strings("2x2").running("a", 0, retries=9)
    world.tell(failed(world, (0, 0)))
    world.tell(e.JobChanged(replace(world.job("a").job, demand=gpus(2))))
    assert (world.job("a").demand, world.state.avoiding) == (gpus(2), {})
    world.tell(e.JobChanged(replace(world.job("a").job, priority=2)))


def test_jobs_that_differ_in_what_they_avoid_do_not_fit_alike() -> None:
    world = Strings("2x2").running("a", 0, retries=9).submit("b")
    world.tell(failed(world, (0, 0)))
    assert world.job("a").group != world.job("b").group


def test_more_memory_is_asked_for_where_a_device_has_it() -> None:
    topology = cluster("1x2")
    kind = replace(topology.types[0], memory=16 * GIB)
    nodes = tuple(replace(node, type=kind, memory=64 * GIB) for node in topology.nodes)
    topology = replace(topology, nodes=nodes)
    world = Strings(topology).running("a", 0, retries=9)
    world.tell(failed(world, gpu_memory=16 * GIB, memory=40 * GIB))
    record = world.job("a")
    assert (record.demand.nominal.memory, record.demand.host_memory) == (16 * GIB, 40 * GIB)
    placement = RELAXING.place(world.state.occupancy, record)
    assert placement is not None
    assert world.plan(a.Start("a", placement))
    world.started("a")
    assert world.state.occupancy.free_host[0] == 24 * GIB
    world.tell(failed(world, gpu_memory=99 * GIB))
    assert record.demand.nominal.memory == 16 * GIB  # no device has more: it must not wait for ever
    assert world.state.occupancy.free_host[0] == 64 * GIB


def test_a_job_that_needs_more_memory_does_not_wait_for_others_that_have_less() -> None:
    world = Strings(cluster("n1[1fast] n2[2slow]")).running("a", 0, retries=9)
    world.tell(failed(world, (0, 0)))
    world.start("a", 1)
    world.tell(failed(world, (0, 0), gpu_memory=32 * GIB))
    record = world.job("a")
    assert (record.demand.nominal.memory, record.demand.avoid) == (32 * GIB, (0,))
    assert not world.state.avoiding
    placement = RELAXING.place(world.state.occupancy, record)
    assert placement is not None
    assert list(placement.gpus()) == [0]


def test_it_survives_a_snapshot_and_a_log() -> None:
    world = Strings("2x2").running("a", 0, retries=9)
    event = failed(world, (0, 0), gpu_memory=1, retry_in_ms=SECOND)
    assert loads(dumps(event)) == event
    world.tell(event)
    body = snapshot_of(world.controller)
    again = restored(body, world.topology, world.script, can_freeze=False).controller
    record = again.state.jobs["a"]
    assert record.demand == world.job("a").demand
    assert (record.avoid_until_ms, set(again.state.avoiding)) == (SECOND + AVOID_MS, {"a"})
    assert again.next_step_at == SECOND
    assert snapshot_of(again) == body


def test_devices_are_avoided_under_their_new_indices() -> None:
    world = Strings("2x2").running("a", 2, retries=9)
    world.tell(failed(world, (1, 2), (1, 3)))
    names = [node.name for node in world.topology.nodes]
    smaller = cluster(f"{names[1]}[1] other[4]")
    again = restored(snapshot_of(world.controller), smaller, world.script, can_freeze=False)
    assert again.controller.state.jobs["a"].demand.avoid == (0,)
    assert again.controller.state.jobs["a"].phase is Phase.PENDING


def test_a_job_that_waits_for_all_its_devices_avoids_them_too() -> None:
    world = Strings("2x2")
    world.script.wake_at = 1
    world.tell(e.JobSubmitted(a_job("a", gpus(2), retries=9), preflight=True))
    world.plan(a.Start("a", world.on(0)))
    world.started("a")
    world.tell(failed(world, (0, 0)))
    world.plan(a.Start("a", world.on(1)))
    world.started("a")
    world.tell(e.RunPassed(world.job("a").run))
    record = world.job("a")
    assert (record.demand.nominal.count, record.demand.avoid) == (2, (0,))
    assert record.demand.must_avoid


def test_a_pre_run_does_not_make_its_job_wait_for_what_there_will_never_be() -> None:
    world = Strings(cluster("n1[2slow] n2[1fast]"))
    world.script.wake_at = 1
    world.tell(e.JobSubmitted(a_job("a", gpus(2), retries=9), preflight=True))
    world.plan(a.Start("a", world.on(0)))
    world.started("a")
    world.tell(failed(world, (0, 0), (0, 1), gpu_memory=32 * GIB))
    record = world.job("a")
    assert record.demand.nominal.memory == 0  # only one of its two GPUs could have so much
    assert record.demand.must_avoid  # one device is left for the pre-run ...
    world.plan(a.Start("a", world.on(2)))
    world.started("a")
    world.tell(e.RunPassed(record.run))
    assert (record.demand.avoid, record.demand.must_avoid) == ((0, 1), False)  # ... and not two
    world.plan(a.Start("a", world.on(0, 1)))


def test_what_is_known_already_makes_no_other_demand() -> None:
    world = Strings("2x2").submit("a")
    world.tell(e.JobProfiled("a", warm=(1, 0)))
    known = world.job("a").demand
    assert known.warm == (0, 1)
    world.tell(e.JobProfiled("a", warm=(0, 1)))
    assert world.job("a").demand is known
