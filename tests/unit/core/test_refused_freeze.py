"""A run that was to be frozen and could not be: halted where it saves, else it keeps its GPUs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import fraction
from tests.unit.core.stage import Strings
from trainmaster.core.frozen_memory import FROZEN_GPU_MEMORY
from trainmaster.core.invariants import check
from trainmaster.core.lifecycle import Phase
from trainmaster.model import actions as a
from trainmaster.model import events as e
from trainmaster.model.job import Demand, Run, Shape
from trainmaster.model.placement import Role, Sharing
from trainmaster.model.units import GIB, HOUR, MINUTE, NOMINAL, SECOND, WHOLE

A, B = Run("a", 1), Run("b", 1)


def one_gpu(topology: str = "1x1") -> Strings:
    """`a` runs and cannot save; `b` waits for its GPU."""
    return Strings(topology, can_freeze=True, cannot_save_at_first=True).running("a", 0).submit("b")


def swap(stage: Strings) -> list[a.Order]:
    return stage.plan(a.Suspend("a"), a.Start("b", stage.on(0)))


def test_a_program_that_saves_is_halted_instead_and_the_other_starts() -> None:
    stage = one_gpu().later(5)
    stage.tell(e.RunCanSave(A))
    assert swap(stage) == [a.Freeze(A)]
    assert stage.later(1).tell(e.RunNotFrozen(A)) == [a.Halt(A)]
    assert stage.phase("a") is Phase.SUSPENDING
    assert stage.job("a").frozen is None
    assert stage.tell(e.RunSuspended(A, 5_000 * NOMINAL)) == [a.Launch(B, stage.on(0), 0)]


def test_a_program_that_cannot_save_keeps_its_gpus_and_its_work() -> None:
    stage = one_gpu().later(5)
    assert swap(stage) == [a.Freeze(A)]
    assert stage.later(1).tell(e.RunNotFrozen(A)) == []
    assert stage.phase("a") is Phase.RUNNING
    assert stage.job("a").placement == stage.on(0)
    assert stage.phase("b") is Phase.PENDING
    assert stage.job("b").placement is None
    state = stage.state
    for table in (state.pending_launches, state.leaving, state.releasing, state.awaited):
        assert not table
    assert stage.last is not None
    assert stage.last.planned, "the other job is planned again"
    assert stage.job("a").preemptions == 0
    assert stage.later(4).job("a").work_at(stage.now) == 9_000 * NOMINAL
    assert stage.tell(e.RunSucceeded(A)) == []
    stage.start("b", 0)


def test_the_next_try_is_later_each_time() -> None:
    stage = one_gpu()
    for pause in (MINUTE, 2 * MINUTE, 4 * MINUTE):
        assert swap(stage) == [a.Freeze(A)]
        stage.tell(e.RunNotFrozen(A))
        stage.later(pause / SECOND - 1)
        assert stage.try_plan(a.Suspend("a"), a.Start("b", stage.on(0))) == []
        assert stage.job("a").is_protected, "as any run that can be neither frozen nor save"
        stage.later(600)
        stage.tell()
    assert stage.job("a").no_freeze_before_ms - stage.now < HOUR


def test_a_run_that_can_never_be_frozen_is_not_asked_again_and_the_last_resort_applies() -> None:
    stage = one_gpu("1x2").submit("c", 2).later(1)
    stage.plan(a.Suspend("a"), a.Start("b", stage.on(0)))
    stage.tell(e.RunNotFrozen(A, is_final=True))
    stage.later(60)
    big = (a.Suspend("a"), a.Start("c", stage.on(0, 1)))
    assert stage.try_plan(*big) == []
    stage.later(86_400)
    assert stage.try_plan(a.Suspend("a"), a.Start("b", stage.on(0))) == []
    stage.later(600)
    assert stage.plan(*big) == [a.Halt(A)], "it has waited long enough"


def test_another_attempt_may_be_frozen_again() -> None:
    stage = one_gpu()
    stage.tell(e.RunCanSave(A))
    swap(stage)
    stage.tell(e.RunNotFrozen(A, is_final=True))
    stage.tell(e.RunSuspended(A, 0))
    stage.started("b")
    stage.tell(e.RunSucceeded(B))
    stage.plan(a.Resume("a", stage.on(0)))
    stage.started("a")
    assert stage.plan(a.Suspend("a")) == [a.Freeze(Run("a", 2))]


def test_its_owner_who_did_not_insist_sees_it_go_on() -> None:
    stage = one_gpu().later(5)
    assert stage.tell(e.JobHeld("a")) == [a.Freeze(A)]
    stage.tell(e.RunNotFrozen(A, is_final=True))
    assert stage.phase("a") is Phase.RUNNING
    assert not stage.job("a").is_held


def test_its_owner_who_insists_has_it_ended() -> None:
    stage = one_gpu().later(5)
    assert stage.tell(e.JobHeld("a", may_end=True)) == [a.Freeze(A)]
    assert stage.tell(e.RunNotFrozen(A)) == [a.Halt(A)]
    stage.tell(e.RunSuspended(A, 0))
    assert stage.phase("a") is Phase.HELD


def test_a_job_that_was_to_move_there_gives_way() -> None:
    stage = Strings("1x2", can_freeze=True, cannot_save_at_first=True)
    stage.running("a", 0).running("m", 1)
    stage.tell(e.RunCanSave(Run("m", 1)))
    stage.plan(a.Suspend("a"), a.Migrate("m", stage.on(0)))
    stage.tell(e.RunNotFrozen(A))
    assert stage.job("a").placement == stage.on(0)
    assert stage.tell(e.RunSuspended(Run("m", 1), 0)) == []
    assert stage.phase("m") is Phase.SUSPENDED


def test_a_reservation_made_meanwhile_is_dropped() -> None:
    stage = one_gpu()
    stage.plan(a.Suspend("a"), a.Reserve("b", stage.on(0).slices))
    stage.tell(e.RunNotFrozen(A))
    assert not stage.state.reservations


def test_its_cpus_may_be_over_booked_and_nothing_else_starts_there_until_that_is_over() -> None:
    topology = "1x2"
    stage = Strings(topology, can_freeze=True, cannot_save_at_first=True)
    all_cpus = stage.topology.nodes[0].cpus
    greedy = Demand(Shape(1), 1, 1, cpus=all_cpus)
    stage.submit("a", greedy).start("a", 0).submit("b", greedy).submit("c")
    assert stage.plan(a.Suspend("a"), a.Start("b", stage.on(1))) == [
        a.Freeze(A),
        a.Launch(B, stage.on(1), 0),
    ]
    stage.tell(e.RunNotFrozen(A))
    assert stage.state.occupancy.free_cpus[0] == -all_cpus
    stage.started("b")
    stage.tell(e.RunSucceeded(B))
    assert stage.state.occupancy.free_cpus[0] == 0
    stage.tell(e.RunSucceeded(A))
    stage.start("c", 0)


@pytest.mark.parametrize("fact", [e.RunNotFrozen(A), e.RunNotFrozen(Run("a", 2))])
def test_a_late_or_repeated_report_changes_nothing(fact: e.RunNotFrozen) -> None:
    stage = one_gpu()
    assert stage.tell(fact) == []
    assert stage.phase("a") is Phase.RUNNING
    assert stage.job("a").may_be_frozen(stage.now)
    swap(stage)
    assert stage.tell(e.RunSuspended(A, 0, frozen=True), e.RunNotFrozen(A)) != []
    assert stage.job("a").frozen is not None


def test_a_run_that_is_being_ended_goes_on_ending() -> None:
    stage = one_gpu()
    stage.plan(a.Suspend("a"))
    assert stage.tell(e.JobWithdrawn("a")) == [a.Kill(A)]
    assert stage.tell(e.RunNotFrozen(A)) == []
    stage.tell(e.RunStopped(A))
    assert "a" not in stage.state.jobs
    stage.start("b", 0)


def a_pair() -> Strings:
    """`a` shares GPU 0 with `host`; nothing is known to save."""
    known = Demand(Shape(1, memory=4 * GIB), 1, 1)
    stage = Strings("1x1", can_freeze=True, cannot_save_at_first=True)
    for name in ("host", "a"):
        stage.submit(name, known).start(name, 0, **HALF)
    return stage.submit("b", known).later(5)


HALF: dict[str, object] = {"share": WHOLE // 2, "memory": 4 * GIB, "sharing": Sharing.TIME}
HOST = Run("host", 1)


def test_a_run_that_was_to_have_the_whole_gpu_gives_its_half_back() -> None:
    stage = a_pair()
    alone = stage.on(0, memory=4 * GIB)
    assert stage.plan(a.Suspend("a"), a.Resize("host", alone)) == [
        a.Freeze(A),
        a.Rebind(HOST, alone),
    ]
    assert stage.later(1).tell(e.RunNotFrozen(A)) == [a.Rebind(HOST, stage.on(0, **HALF))]
    for name in ("a", "host"):
        assert stage.phase(name) is Phase.RUNNING
        assert stage.job(name).placement == stage.on(0, **HALF)
    assert stage.later(4).job("a").work_at(stage.now) == 9_000 * NOMINAL
    assert stage.job("host").work_at(stage.now) == 10_000 * NOMINAL
    assert (
        stage.job("host").attained_at(stage.now)
        == 5_000 * WHOLE // 2 + WHOLE * 1_000 + 4_000 * WHOLE // 2
    )


def test_what_the_other_has_there_already_is_not_counted_twice() -> None:
    """Two halves of a GPU's memory: one leaves, frozen, and the other has the GPU for itself."""
    stage = Strings("1x1", can_freeze=True, cannot_save_at_first=True)
    for name in ("host", "a"):
        stage.submit(name, Demand(Shape(1, memory=8 * GIB), 1, 1))
        stage.start(name, 0, **HALF | {"memory": 8 * GIB})
    alone = stage.on(0, memory=8 * GIB)
    orders = stage.plan(a.Suspend("a"), a.Migrate("host", alone))
    assert orders == [a.Freeze(A), a.Rebind(HOST, alone)]


def test_neither_of_a_pair_is_lost_where_both_were_to_leave_one_after_the_other() -> None:
    stage = a_pair()
    stage.plan(a.Suspend("a"), a.Resize("host", stage.on(0, memory=4 * GIB)))
    assert stage.plan(a.Suspend("host"), a.Start("b", stage.on(0, memory=4 * GIB))) == [
        a.Freeze(HOST, may_keep=12 * GIB - FROZEN_GPU_MEMORY)
    ]
    stage.tell(e.RunNotFrozen(A))
    assert stage.tell(e.RunNotFrozen(HOST)) == [a.Rebind(HOST, stage.on(0, **HALF))]
    assert {stage.phase(name) for name in ("a", "host")} == {Phase.RUNNING}
    assert stage.phase("b") is Phase.PENDING


def test_an_opportunistic_run_that_could_not_leave_uses_the_idle_cycles_again() -> None:
    stage = Strings("1x1", can_freeze=True, cannot_save_at_first=True)
    known = Demand(Shape(1, memory=4 * GIB), 1, 1)
    shared = stage.on(0, memory=4 * GIB, sharing=Sharing.TIME)
    spare = replace(shared, role=Role.OPPORTUNISTIC)
    stage.submit("host", known).plan(a.Start("host", shared))
    stage.submit("a", known, role=Role.OPPORTUNISTIC).plan(a.Start("a", spare))
    stage.started("host")
    stage.started("a")
    stage.plan(a.Suspend("a"), a.Resize("host", stage.on(0, memory=4 * GIB)))
    assert stage.tell(e.RunNotFrozen(A)) == [a.Rebind(HOST, shared)]
    assert stage.job("a").placement == spare


def test_a_run_of_unknown_memory_is_booked_with_all_of_it_beside_another() -> None:
    stage = Strings("1x1", can_freeze=True, cannot_save_at_first=True)
    stage.submit("host").submit("a", fraction(0.25, GIB, Sharing.TIME))
    stage.start("a", 0, share=WHOLE // 4, memory=GIB, sharing=Sharing.TIME)
    stage.plan(a.Suspend("a"))
    stage.tell(e.RunAdopted(HOST, stage.on(0), NOMINAL))
    assert stage.phase("host") is Phase.RUNNING
    stage.tell(e.RunNotFrozen(A))
    assert stage.phase("a") is Phase.RUNNING
    placed = stage.job("host").placement
    assert placed is not None
    assert placed.slices[0].share == WHOLE * 3 // 4
    assert stage.state.occupancy.free_memory[0] == -GIB


def part(share: int, sharing: Sharing = Sharing.TIME) -> dict[str, object]:
    return {"share": share, "memory": GIB, "sharing": sharing}


def parted(host_asks: float, a_asks: float, mode: Sharing = Sharing.TIME) -> Strings:
    """`a` has its part of GPU 0; `host` is submitted."""
    stage = Strings("1x1", can_freeze=True, cannot_save_at_first=True)
    stage.submit("host", fraction(host_asks, GIB, mode)).submit(
        "a", fraction(a_asks, GIB, Sharing.TIME)
    )
    return stage.start("a", 0, **part(round(a_asks * WHOLE)))


def shares(stage: Strings) -> dict[str, int]:
    placed = {name: stage.job(name).placement for name in ("host", "a")}
    return {name: at.slices[0].share for name, at in placed.items() if at is not None}


def test_a_job_that_had_more_than_it_asked_for_gives_that_back() -> None:
    stage = parted(0.5, 0.5).start("host", 0, **part(WHOLE // 2))
    stage.plan(a.Suspend("a"), a.Resize("host", stage.on(0, **part(WHOLE))))
    assert shares(stage) == {"host": WHOLE}
    assert stage.tell(e.RunNotFrozen(A)) == [a.Rebind(HOST, stage.on(0, **part(WHOLE // 2)))]
    assert stage.phase("a") is Phase.RUNNING
    assert shares(stage) == {"host": WHOLE // 2, "a": WHOLE // 2}
    check(stage.state)


def test_runs_that_were_found_there_do_not_cost_it_its_work() -> None:
    stage = parted(0.75, 0.5)
    stage.plan(a.Suspend("a"))
    stage.tell(e.RunAdopted(HOST, stage.on(0, **part(750)), NOMINAL))
    stage.tell(e.RunNotFrozen(A))
    assert stage.phase("a") is Phase.RUNNING
    assert shares(stage) == {"host": 600, "a": 400}
    check(stage.state)


def test_beside_clients_of_mps_it_goes_on_as_it_was_started() -> None:
    stage = parted(0.25, 0.5, Sharing.MPS)
    stage.plan(a.Suspend("a"))
    by_mps = stage.on(0, **part(250, Sharing.MPS))
    stage.tell(e.RunAdopted(HOST, by_mps, NOMINAL))
    assert stage.tell(e.RunNotFrozen(A)) == [a.Rebind(A, stage.on(0, **part(500, Sharing.MPS)))]
    assert stage.phase("a") is Phase.RUNNING
    assert stage.job("host").placement == by_mps
    assert (stage.job("a").is_without_mps, stage.job("host").is_without_mps) == (True, False)
    check(stage.state)


def test_a_job_for_a_whole_gpu_has_a_part_of_one_that_is_given_away() -> None:
    stage = Strings("1x1", can_freeze=True, cannot_save_at_first=True).running("a", 0)
    stage.plan(a.Suspend("a"))
    for name in ("host", "other"):
        stage.submit(name, fraction(0.5, GIB, Sharing.TIME))
        stage.tell(e.RunAdopted(Run(name, 1), stage.on(0, **part(500)), NOMINAL))
    stage.tell(e.RunNotFrozen(A))
    assert stage.phase("a") is Phase.RUNNING
    assert shares(stage) == {"host": 250, "a": 500}
    check(stage.state)
