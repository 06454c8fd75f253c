"""Where suspending does not save: runs fall back to their last checkpoint, and policies can know it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tests.builders import (
    a_policy,
    a_scenario,
    at,
    costly,
    simulated,
    traced,
)
from trainmaster.model import events as e
from trainmaster.model.units import NOMINAL, SECOND, WHOLE
from trainmaster.perf.perf_model import IDEAL, FailureModel, PerfModel
from trainmaster.sim.driver import Scenario, Simulation


def periodic(every_s: float, **switching: object) -> PerfModel:
    world = costly(saves_on_demand=False, **switching)
    return replace(world, node_failures=FailureModel(checkpoint_ms=round(every_s * SECOND)))


def facts_of(
    scenario: Scenario, policy: str = "srtf"
) -> tuple[Simulation, list[tuple[float, e.Event]]]:
    """A finished run, and every fact that it was told, with its time."""
    simulation = Simulation(scenario, a_policy(policy))
    told: list[tuple[float, e.Event]] = []
    step = simulation.controller.step

    def heard(now: int, events: Sequence[e.Event]) -> object:
        told.extend((now / SECOND, event) for event in events)
        return step(now, events)

    simulation.controller.step = heard  # type: ignore[method-assign, assignment]
    simulation.run()
    return simulation, told


def saves(told: list[tuple[float, e.Event]]) -> list[tuple[float, str, float]]:
    """(when, job, seconds of work)."""
    return [
        (when, fact.run.job, fact.work / NOMINAL / SECOND)
        for when, fact in told
        if isinstance(fact, e.RunSaved)
    ]


def test_a_suspended_run_falls_back_to_its_last_checkpoint() -> None:
    """`a` is suspended at 10 with 8 s saved."""
    jobs = [traced("a", 1, 30), traced("short", 1, 1, at_s=10)]
    run, told = facts_of(a_scenario(jobs, "1x1", periodic(4)))
    a = run.ledger.accounts["a"]
    assert a.finish_ms == (11 + 30 - 8) * SECOND
    assert a.lost == 2 * SECOND * NOMINAL
    assert a.wasted == 2 * SECOND * WHOLE
    assert a.credited == a.needed + a.lost
    # Launched at 11 from 8 s, it saves at 12, 16, … 28 s of work.
    later = [(11 + 4.0 * n, "a", 8 + 4.0 * n) for n in range(1, 6)]
    assert saves(told) == [(4, "a", 4), (8, "a", 8), *later]


def test_nothing_is_lost_at_the_moment_of_saving() -> None:
    jobs = [traced("a", 1, 30), traced("short", 1, 1, at_s=8)]
    run, _ = facts_of(a_scenario(jobs, "1x1", periodic(4)))
    assert run.ledger.accounts["a"].lost == 0


def test_the_default_is_to_save_on_demand_and_to_say_nothing() -> None:
    jobs = [traced("a", 1, 30), traced("short", 1, 1, at_s=10)]
    world = replace(IDEAL, node_failures=FailureModel(checkpoint_ms=4_000))
    run, told = facts_of(a_scenario(jobs, "1x1", world))
    assert run.ledger.accounts["a"].lost == 0
    assert saves(told) == []


def test_what_is_not_saved_takes_no_time_to_leave() -> None:
    """16 GiB leave at 1 GiB/s where they are saved; else only the fixed 3 s count."""
    jobs = [traced("a", 1, 30), traced("short", 1, 1, at_s=10)]
    for saved, wait_s in ((True, 3 + 16), (False, 3)):
        world = costly(save_bytes_s=1 << 30, suspend_ms=3_000, saves_on_demand=saved)
        short = simulated(a_scenario(jobs, "1x1", world), a_policy("srtf")).ledger.accounts["short"]
        assert short.start_ms == (10 + wait_s) * SECOND


def test_a_slow_run_saves_after_the_same_work() -> None:
    jobs = [traced("a", 1, 10), traced("b", 1, 10)]
    world = replace(periodic(4), locality=IDEAL.locality)
    _, told = facts_of(a_scenario(jobs, "n1[1slow] n2[1slow]", world), "fifo")
    assert saves(told)[:2] == [(8, "a", 4), (8, "b", 4)]


def test_a_freeze_keeps_everything_but_makes_nothing_durable() -> None:
    """`a` is frozen at 10 and thawed at 11; at 13 its node is lost with 11 s of its 12 s of work."""
    jobs = [traced("a", 3, 30), traced("short", 3, 1, at_s=10)]
    world = periodic(11, can_freeze=True)
    changes = (at(13, e.NodeLeft(0)), at(13, e.NodeJoined(0)))
    run, told = facts_of(a_scenario(jobs, "1x4", world, node_changes=changes))
    assert saves(told)[0] == (12, "a", 11)
    assert run.ledger.accounts["a"].lost == 1 * SECOND * NOMINAL


def test_a_policy_that_suspends_before_anything_is_saved_gets_nowhere_and_the_run_ends() -> None:
    """Two jobs take turns of a minute, and save every half hour."""
    jobs = [traced("a", 1, 3_600), traced("b", 1, 3_600)]
    run = simulated(a_scenario(jobs, "1x1", periodic(1_800)), a_policy("gandiva", packing="off"))
    assert run.is_thrashing
    assert run.ledger.ended_count == 0
    patient = a_policy("las", quantum_s=60, min_run_s=2_000)
    assert simulated(a_scenario(jobs, "1x1", periodic(1_800)), patient).ledger.ended_count == 2
