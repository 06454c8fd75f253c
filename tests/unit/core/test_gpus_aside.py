"""Devices that are set aside take nothing new; what runs there goes on."""

from __future__ import annotations

import pytest

from tests.builders import a_policy
from tests.unit.core.stage import Strings
from tests.unit.core.test_gpu_uuids import gpus
from tests.unit.core.test_other_slots import on, slots, world
from trainmaster.core.invariants import check
from trainmaster.core.lifecycle import Phase
from trainmaster.core.snapshot import restored, snapshot_of
from trainmaster.model import actions as a
from trainmaster.model import events as e
from trainmaster.model.codec import decode, encode
from trainmaster.model.device_aside import AsideCause, AsideWhy, GpuAside
from trainmaster.model.job import Run
from trainmaster.model.reasons import Refused
from trainmaster.model.units import SECOND
from trainmaster.text.reasons import reason_sentence


def test_it_takes_nothing_new_until_it_returns() -> None:
    stage = Strings("1x2").submit("x").submit("y")
    stage.tell(e.GpuSetAside(0, 0))
    assert stage.state.occupancy.total_free() == 1
    assert stage.refused(a.Start("x", stage.on(0))) == [("x", Refused.GPU_SET_ASIDE)]
    assert stage.plan(a.Start("y", stage.on(1)))
    stage.tell(e.GpuReturned(0, 0))
    assert stage.plan(a.Start("x", stage.on(0)))
    check(stage.state)


def test_what_runs_there_goes_on_and_leaves_nothing_free() -> None:
    stage = Strings("1x2").running("x", 0)
    stage.tell(e.GpuSetAside(0, 0))
    assert stage.phase("x") is Phase.RUNNING
    check(stage.state)
    stage.tell(e.RunSucceeded(Run("x", 1)))
    assert stage.state.occupancy.total_free() == 1
    check(stage.state)
    stage.tell(e.GpuReturned(0, 0))
    assert stage.state.occupancy.total_free() == 2
    check(stage.state)


def test_a_start_that_waits_for_it_is_revoked() -> None:
    stage = Strings("1x2").running("x", 0).submit("y")
    stage.plan(a.Suspend("x"), a.Start("y", stage.on(0)))
    stage.tell(e.GpuSetAside(0, 0))
    assert not stage.tell(e.RunSuspended(Run("x", 1), 0))
    assert stage.phase("y") is Phase.PENDING
    check(stage.state)


def test_a_node_is_closed_when_all_of_its_devices_are() -> None:
    stage = Strings("2x2")
    stage.tell(e.GpuSetAside(1, 2))
    assert 1 not in stage.state.occupancy.closed
    stage.tell(e.GpuSetAside(1, 3), e.NodeDraining(1), e.NodeUndrained(1))
    assert 1 in stage.state.occupancy.closed
    stage.tell(e.GpuReturned(1, 2))
    assert 1 not in stage.state.occupancy.closed
    assert stage.state.occupancy.total_free() == 3
    check(stage.state)


def test_unknown_devices_are_ignored() -> None:
    stage = Strings("2x2")
    stage.tell(e.GpuSetAside(0, 7), e.GpuSetAside(0, 3), e.GpuReturned(5, 0))
    assert not stage.state.gpus_aside


def test_the_reason_counts_it() -> None:
    stage = Strings("1x4").running("x", 0).submit("me", 4)
    stage.tell(e.GpuSetAside(0, 3))
    policy = a_policy("las")
    found = policy.explain(stage.controller.view, policy.first_memo(), stage.job("me"), stage.now)
    assert (found.free, found.set_aside) == (2_000, 1_000)
    assert "2 are free, 1 is set aside" in reason_sentence(found, stage.now)


def test_a_gang_that_could_fill_two_nodes_takes_three_where_one_device_is_aside() -> None:
    """The fewest nodes that could hold it are those of what is used."""
    stage = Strings("3x2").submit("x", 4)
    space, demand = stage.state.occupancy, stage.job("x").demand
    assert space.fewest_nodes((0,), demand, 4) == 2
    stage.tell(e.GpuSetAside(0, 0), e.GpuSetAside(1, 2))
    assert space.fewest_nodes((0,), demand, 4) == 3


def test_it_stays_aside_over_a_restart() -> None:
    stage = Strings("1x2")
    failures = AsideCause.FAILURES
    stage.later(3).tell(e.GpuSetAside(0, 1, "It fails all.", failures))
    stage.later(1).tell(e.GpuSetAside(0, 1, "A user.", AsideCause.USER))
    stage.tell(e.GpuSetAside(0, 1, "It fails all. It passed.", failures, is_tested=True))
    body = snapshot_of(stage.controller)
    found = restored(body, stage.state.topology, stage.script, can_freeze=True).controller.state
    check(found)
    whys = (
        AsideWhy(failures, "It fails all. It passed.", is_tested=True),
        AsideWhy(AsideCause.USER, "A user."),
    )
    assert found.gpus_aside == {1: GpuAside(3 * SECOND, whys)}
    del body["state"]["of"][[key for key, _ in body["state"]["of"]].index("gpus_aside")]
    old = restored(body, stage.state.topology, stage.script, can_freeze=True).controller.state
    assert not old.gpus_aside, "a store of an earlier version does not say"


DISK_IS_FULL = "The disk of the data folder is full (the limit disk_full)."


@pytest.mark.parametrize(
    ("why", "cause"),
    [
        (DISK_IS_FULL, AsideCause.DISK),
        ("Jobs 1, 2 and 3 failed there one after another, each ...", AsideCause.FAILURES),
        (
            "Jobs 1 and 2 failed there one after another. Its self-test failed.",
            AsideCause.SELF_TEST,
        ),
        ("XID 79 (it fell off the bus): restart the machine, then ...", AsideCause.RESTART),
        ("XID 95 (a memory error): reset the GPU ...", AsideCause.XID),
        ("A user set it aside.", AsideCause.USER),
    ],
)
def test_in_a_store_of_an_earlier_version_the_sentence_says_the_cause(
    why: str, cause: AsideCause
) -> None:
    stage = Strings("1x2")
    stage.tell(decode({"is": "GpuSetAside", "node": 0, "gpu": 1, "why": why}))
    assert [each.cause for each in stage.state.gpus_aside[1].whys] == [cause]
    of = snapshot_of(stage.controller)
    (pairs,) = (each for key, each in of["state"]["of"] if key == "gpus_aside")
    pairs[:] = [[1, [0, why]]]
    found = restored(of, stage.state.topology, stage.script, can_freeze=True).controller.state
    assert found.gpus_aside == stage.state.gpus_aside
    stage.tell(decode({"is": "GpuReturned", "node": 0, "gpu": 1}))
    assert not stage.state.gpus_aside, "there all causes end together"


def test_it_is_known_by_its_uuid_when_the_order_changes() -> None:
    stage = Strings(gpus(("n0", "H100", "abcd")), can_freeze=False)
    stage.tell(e.GpuSetAside(0, 0))
    assert on(stage, gpus(("n0", "H100", "dcba"))).controller.state.gpus_aside.keys() == {3}
    assert on(stage, gpus(("n0", "H100", "bcd"))).controller.state.gpus_aside == {}


def test_a_slot_that_is_aside_is_not_exchanged_for_one_that_is_gone() -> None:
    stage = world(4).running("x", 3)
    stage.tell(e.GpuSetAside(0, 0))
    found = on(stage, slots(2)).controller.state
    assert found.gpus_aside.keys() == {0}
    placement = found.jobs["x"].placement
    assert placement is not None
    assert list(placement.gpus()) == [1]


def test_facts_of_devices_are_stored_as_they_are() -> None:
    for fact in (
        *(e.GpuSetAside(0, 3, "Why."), e.GpuReturned(2, 7)),
        e.GpuSetAside(0, 3, "Why.", AsideCause.XID, is_tested=True),
        e.GpuReturned(2, 7, AsideCause.DISK),
    ):
        assert decode(encode(fact)) == fact
