"""What the simulated world does to jobs: costs, failures, lost nodes, neighbours, estimates."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import (
    a_policy,
    a_scenario,
    at,
    costly,
    finishes,
    fraction,
    one,
    outcome_of,
    simulated,
    traced,
)
from trainmaster.config.performance import perf_model_from
from trainmaster.model import events as e
from trainmaster.model.job import Source, gpus
from trainmaster.model.placement import Sharing
from trainmaster.model.result import Status
from trainmaster.model.trace import Outcome
from trainmaster.model.units import NOMINAL, SECOND
from trainmaster.perf.perf_model import IDEAL, FailureModel
from trainmaster.sim.driver import Estimates, Scenario, Simulation

FAILING = replace(IDEAL, name="failing", has_failures=True)


def test_starting_takes_time_on_the_gpus() -> None:
    jobs = [traced("a", 1, 10)]
    result = outcome_of(a_scenario(jobs, "1x1", costly(start_ms=3_000)), a_policy("fifo"))
    a = one(result, "a")
    assert (a.start_ms, a.finish_ms, a.held) == (3_000, 13_000, 13_000_000)
    assert result.summary.gpu_hours_wasted == pytest.approx(3 / 3600)


def test_failed_attempts_come_first_and_are_wasted() -> None:
    jobs = [traced("a", 2, 10, failed_s=[3, 4])]
    result = outcome_of(a_scenario(jobs, "1x2", costly(FAILING, resume_ms=1_000)), a_policy("fifo"))
    a = one(result, "a")
    assert a.finish_ms == (3 + 1 + 4 + 1 + 10) * SECOND
    assert a.status is Status.SUCCEEDED
    assert result.summary.gpu_hours_wasted == pytest.approx(2 * (3 + 4 + 1 + 1) / 3600)
    assert result.summary.preemptions == 0


def test_ideal_ignores_failures_and_statuses() -> None:
    jobs = [traced("a", 1, 10, failed_s=[3], outcome=Outcome.FAILED)]
    result = outcome_of(a_scenario(jobs, "1x1"), a_policy("fifo"))
    assert (one(result, "a").status, finishes(result)["a"]) == (Status.SUCCEEDED, 10)


@pytest.mark.parametrize(
    ("outcome", "status", "wasted_h"),
    [
        (Outcome.SUCCEEDED, Status.SUCCEEDED, 0),
        (Outcome.FAILED, Status.FAILED, 1),
        (Outcome.CANCELLED, Status.CANCELLED, 0),
    ],
)
def test_jobs_end_as_the_trace_says(outcome: Outcome, status: Status, wasted_h: float) -> None:
    jobs = [traced("a", 1, 3_600, outcome=outcome)]
    result = outcome_of(a_scenario(jobs, "1x1", FAILING), a_policy("fifo"))
    assert one(result, "a").status is status
    assert result.summary.finished == 1
    assert result.summary.gpu_hours_wasted == wasted_h


def test_a_lost_node_throws_a_job_back_to_its_last_checkpoint() -> None:
    world = replace(IDEAL, node_failures=FailureModel(checkpoint_ms=4_000))
    changes = (at(10, e.NodeLeft(0)), at(20, e.NodeJoined(0)))
    run = simulated(
        a_scenario([traced("a", 1, 30)], "1x1", world, node_changes=changes), a_policy("fifo")
    )
    account = run.ledger.accounts["a"]
    assert account.finish_ms == (20 + 30 - 8) * SECOND, "10 s done, 8 saved"
    assert account.lost == 2 * SECOND * NOMINAL
    assert account.credited == account.needed + account.lost
    assert account.wasted == 2 * SECOND * 1_000
    assert account.status is Outcome.SUCCEEDED


def test_a_checkpoint_counts_from_the_last_suspension() -> None:
    """A suspension saves: what is lost later counts from there."""
    world = replace(IDEAL, node_failures=FailureModel(checkpoint_ms=4_000))
    jobs = [traced("a", 1, 30), traced("short", 1, 1, at_s=3)]
    changes = (at(9, e.NodeLeft(0)), at(9, e.NodeJoined(0)))
    run = simulated(a_scenario(jobs, "1x1", world, node_changes=changes), a_policy("srtf"))
    # a: 0-3, 4-9 is 8 s of work; saved at 3, then at 7; one second is lost.
    assert run.ledger.accounts["a"].lost == 1 * SECOND * NOMINAL


def test_a_drained_node_is_left_by_moving_and_counts_as_a_migration() -> None:
    world = costly(suspend_ms=2_000, resume_ms=3_000)
    result = outcome_of(
        a_scenario([traced("a", 1, 30)], "2x1", world, node_changes=(at(10, e.NodeDraining(0)),)),
        a_policy("fifo"),
    )
    a = one(result, "a")
    assert (a.migrations, a.preemptions, a.finish_ms) == (1, 0, 35_000)


def test_node_failures_follow_the_seed() -> None:
    world = replace(
        IDEAL, node_failures=FailureModel(mtbf_ms=20_000, repair_ms=5_000, checkpoint_ms=1_000)
    )
    jobs = [traced(f"j{n}", 1, 20, at_s=n) for n in range(6)]

    def ends(seed: int) -> dict[str, float | None]:
        return finishes(outcome_of(a_scenario(jobs, "2x2", world, seed=seed), a_policy("fifo")))

    assert ends(1) == ends(1)
    assert ends(1) != ends(2)


def test_a_promised_launch_does_not_go_to_a_node_that_is_lost() -> None:
    """`old` is told at 10 to leave its node for `new`, which takes 10 s; at 15 the node is lost."""
    jobs = [traced("old", 1, 100), traced("busy", 1, 50), traced("new", 1, 5, at_s=10)]
    world = costly(suspend_ms=10_000)
    calm = outcome_of(a_scenario(jobs, "2x1", world), a_policy("srtf"))
    assert finishes(calm)["new"] == 10 + 10 + 5
    lost = a_scenario(jobs, "2x1", world, node_changes=(at(15, e.NodeLeft(1)),))
    assert finishes(outcome_of(lost, a_policy("srtf")))["new"] != 15 + 5, (
        "it ran on a node that is gone"
    )


def test_mps_neighbours_slow_each_other_and_time_slices_alternate() -> None:
    world = perf_model_from({"sharing": {"law": "utilisation"}}, "sharing")
    busy = [traced(n, fraction(0.5), 10, gpu_util_ppm=NOMINAL) for n in "ab"]
    assert finishes(outcome_of(a_scenario(busy, "1x1", world), a_policy("fifo"))) == {
        "a": 20,
        "b": 20,
    }
    half = fraction(0.5, sharing=Sharing.TIME)
    timed = [traced("a", half, 10), traced("b", half, 5)]
    linear = perf_model_from({"sharing": {"law": "linear"}}, "linear")
    assert finishes(outcome_of(a_scenario(timed, "1x1", linear), a_policy("fifo"))) == {
        "a": 15,
        "b": 10,
    }
    calm = [traced(n, fraction(0.5), 10, gpu_util_ppm=NOMINAL // 2) for n in "ab"]
    assert finishes(outcome_of(a_scenario(calm, "1x1", world), a_policy("fifo"))) == {
        "a": 10,
        "b": 10,
    }


COSTS = {"suspend_ms": 5_000, "resume_ms": 25_000, "thaw_ms": 1_500}


@pytest.mark.parametrize(
    ("can_freeze", "long_ends"), [(True, 16 + 1.5 + 90), (False, 16 + 25 + 90)]
)
def test_thawing_in_place_is_cheaper_than_starting_anew(can_freeze: bool, long_ends: float) -> None:
    """Four GPUs, one idle all the time: its host memory has room for a frozen run."""
    jobs = [traced("long", 3, 100), traced("short", 3, 1, at_s=10)]
    world = costly(can_freeze=can_freeze, **COSTS)
    result = outcome_of(a_scenario(jobs, "1x4", world), a_policy("srtf"))
    assert finishes(result) == {"long": long_ends, "short": 16}


@pytest.mark.parametrize(("stays", "long_ends"), [(True, 12 + 1.5 + 90), (False, 16 + 25 + 90)])
def test_a_job_that_may_not_stay_in_memory_saves_and_ends(stays: bool, long_ends: float) -> None:
    long = replace(traced("long", 3, 100), stays_in_memory=stays)
    world = costly(can_freeze=True, freeze_ms=1_000, **COSTS)
    result = outcome_of(
        a_scenario([long, traced("short", 3, 1, at_s=10)], "1x4", world), a_policy("srtf")
    )
    assert finishes(result)["long"] == long_ends


def test_a_frozen_run_is_thawed_where_it_is_although_other_gpus_would_do() -> None:
    """`side` was on GPU 0 when `long` began: later 0-2 are free as well as its own 1-3."""
    jobs = [traced("side", 1, 5), traced("long", 3, 100), traced("short", 3, 1, at_s=10)]
    world = costly(can_freeze=True, **COSTS)
    result = outcome_of(a_scenario(jobs, "1x4", world), a_policy("srtf"))
    assert finishes(result)["long"] == 10 + 5 + 1 + 1.5 + 90


def test_a_frozen_run_that_is_to_go_on_elsewhere_saves_and_ends_first() -> None:
    """`long` lies frozen beside `short` when the other node becomes free."""
    jobs = [traced("filler", 4, 12), traced("long", 3, 100), traced("short", 3, 20, at_s=10)]
    world = costly(can_freeze=True, freeze_ms=1_000, **COSTS)
    result = outcome_of(a_scenario(jobs, "2x4", world), a_policy("srtf"))
    assert finishes(result)["long"] == 12 + 5 + 25 + 90


def test_who_is_frozen_for_a_newcomer_does_not_keep_it_out() -> None:
    """A frozen run lies in host memory: where the newcomer needs all of it, the run is halted."""
    jobs = [traced("long", 1, 100), traced("short", 2, 1, at_s=10)]
    scenario = a_scenario(jobs, "1x2", costly(can_freeze=True, **COSTS))
    run = simulated(scenario, a_policy("srtf"))
    assert not run.refusals
    assert run.ledger.accounts["short"].finish_ms == 16 * SECOND


def test_a_resize_costs_what_the_world_says() -> None:
    jobs = [traced("soft", gpus(1, minimum=1, maximum=2), 30)]
    scenario = a_scenario(jobs, "1x2", costly(resize_ms=2_000))
    result = outcome_of(scenario, a_policy("fifo", elastic="malleable"))
    assert finishes(result)["soft"] == 2 + 15, (
        "it makes no progress for 2 s, then runs twice as fast"
    )
    assert result.summary.gpu_hours_wasted == pytest.approx(2 * 2 / 3600)


# -- estimates -------------------------------------------------------------------------------------


def estimates_of(estimates: Estimates, seed: int = 0) -> list[float | None]:
    jobs = [traced(f"j{n}", 1, 100, at_s=n) for n in range(50)]
    plain = a_scenario(jobs, "1x1")
    scenario = Scenario(plain.trace, plain.topology, "1x1", IDEAL, estimates=estimates, seed=seed)
    from trainmaster.sim.driver import Simulation

    simulation = Simulation(scenario, a_policy("fifo"))
    found: list[float | None] = []
    step = simulation.controller.step

    def heard(now: int, events: list[e.Event]) -> object:
        for event in events:
            if isinstance(event, e.JobSubmitted):
                assert event.oracle is None, "only oracle policies are told"
                found.append(None if event.estimate is None else event.estimate.work / NOMINAL)
                assert event.estimate is None or event.estimate.source is Source.TRACE
        return step(now, events)

    simulation.controller.step = heard  # type: ignore[method-assign, assignment]
    simulation.run()
    return found


def test_estimates_are_exact_noisy_or_absent() -> None:
    assert estimates_of(Estimates()) == [100_000] * 50
    assert estimates_of(Estimates(known=False)) == [None] * 50
    noisy = [value for value in estimates_of(Estimates(error=0.3)) if value is not None]
    assert all(70_000 <= value <= 130_000 for value in noisy)
    assert min(noisy) < 80_000
    assert max(noisy) > 120_000
    assert noisy == estimates_of(Estimates(error=0.3)), "the same seed, the same error"
    assert noisy != estimates_of(Estimates(error=0.3), seed=1)


def test_easy_backfill_does_not_wake_every_millisecond_when_a_job_outlives_its_estimate() -> None:
    jobs = [traced("long", 1, 100), traced("wide", 2, 10, at_s=1)]
    plain = a_scenario(jobs, "1x2")
    for seed in range(5):
        scenario = Scenario(
            plain.trace, plain.topology, "1x2", IDEAL, estimates=Estimates(error=0.5), seed=seed
        )
        run = simulated(scenario, a_policy("fifo", backfill="easy"))
        steps: list[int] = []
        from trainmaster.sim.driver import Simulation

        counted = Simulation(scenario, a_policy("fifo", backfill="easy"))
        while counted.step():
            steps.append(counted.now)
            assert len(steps) < 500, f"it wakes at {steps[-5:]}"
        assert run.ledger.ended_count == 2


def test_a_job_without_retries_left_has_failed() -> None:
    job = replace(traced("a", 1, 10), failed_attempts_ms=(60 * SECOND,))
    result = outcome_of(
        a_scenario([job], "1x1", replace(IDEAL, has_failures=True)), a_policy("fifo")
    )
    assert (one(result, "a").status, finishes(result)) == (Status.FAILED, {"a": 60})


def test_estimates_and_oracles_follow_failed_attempts() -> None:
    job = traced("a", 1, 10, failed_s=(60, 90))
    failing = replace(IDEAL, has_failures=True)
    seen: list[tuple[int | None, bool]] = []
    simulation = Simulation(a_scenario([job], "1x1", failing), a_policy("fifo"))
    while simulation.step():
        for record in simulation.controller.state.jobs.values():
            left = simulation.controller.view.remaining(record, simulation.now)
            seen.append((left, record.oracle is None))
    assert [left for left, _ in seen if left] == [
        160_000,
        160_000,
        100_000,
        100_000,
        10_000,
        10_000,
    ]
    assert all(unknown for _, unknown in seen)
