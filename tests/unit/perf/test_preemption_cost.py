"""Suspending, resuming, moving and resizing take longer the more memory has to move."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.builders import a_policy, a_scenario, at, cluster, fraction, on, one, outcome_of, traced
from trainmaster.config.performance import perf_model_from
from trainmaster.model import events as e
from trainmaster.model.job import Demand, Shape, gpus
from trainmaster.model.placement import Sharing
from trainmaster.model.topology import Topology
from trainmaster.model.units import GIB, SECOND
from trainmaster.perf.default_parameters import PREEMPTION_COST
from trainmaster.perf.perf_model import DEFAULT, IDEAL, PerfModel, PreemptionCost, Speeds

MOVING = replace(IDEAL, name="moving", preemption_cost=PREEMPTION_COST)


@pytest.mark.parametrize(
    ("gib", "checkpoint", "restore"),
    [
        (1.0, (0.52, 0.65), (0.26, 0.31)),
        (2.0, (1.07, 1.19), (0.45, 0.53)),
        (9.2, (4.1, 5.0), (1.5, 1.6)),
        (42, (22.8, 22.8), (7.4, 7.4)),
    ],
)
def test_the_times_of_the_driver_on_an_h200(
    gib: float, checkpoint: tuple[float, float], restore: tuple[float, float]
) -> None:
    """Within 15 % of what was measured: bytes / bandwidth is nearly the whole story."""
    size = round(gib * GIB)
    for found, (least, most) in (
        (PREEMPTION_COST.suspending(size), checkpoint),
        (PREEMPTION_COST.thawing(size), restore),
    ):
        assert 0.85 * least <= found / SECOND <= 1.15 * most


RESULTS = Path(__file__).parents[3] / "benchmarks/results/gpu"


def test_freezing_as_benchmarks_gpu_freeze_thaw_measured_it() -> None:
    """The driver's calls: of a thaw that is all, as the program that froze the run waits beside it."""
    steps = json.loads((RESULTS / "freeze_thaw.json").read_text())["steps"]
    sizes = [step for name, step in steps.items() if name != "cycles"]
    assert sizes
    for step in sizes:
        moved, took = step["cycles"][-1]["process_mib"] << 20, step["median_ms"]
        freeze = PREEMPTION_COST.suspending(moved, freezes=True)
        assert freeze == pytest.approx(took["checkpoint"], 0.3)
        assert PREEMPTION_COST.thawing(moved) == pytest.approx(took["restore"], 0.3)


def test_the_cooperative_way_as_benchmarks_gpu_cooperative_measured_it() -> None:
    *_, row = json.loads((RESULTS / "cooperative.json").read_text())["rows"]
    path = perf_model_from({"base": "ideal", "switch": {"path": "cooperative"}}, "x")
    moved = round(row["moved_gib"] * GIB)
    assert path.preemption_cost.suspending(moved) == pytest.approx(row["freeze_ms"], 0.1)
    assert path.preemption_cost.thawing(moved) == pytest.approx(row["thaw_ms"], 0.1)


def test_the_cooperative_path_is_twenty_times_as_fast() -> None:
    path = perf_model_from(
        {"base": "ideal", "switch": {"path": "cooperative"}}, "x"
    ).preemption_cost
    assert 150 <= path.suspending(8 * GIB) <= 175
    assert 150 <= path.thawing(8 * GIB) <= 175


def test_a_preemption_of_a_job_that_states_no_memory_costs_about_thirty_seconds() -> None:
    size = 16 * GIB
    cost = DEFAULT.preemption_cost
    assert cost.suspending(size) + cost.resuming(size) == pytest.approx(30 * SECOND, rel=0.01)
    assert cost.resizing(size) == pytest.approx(30 * SECOND, rel=0.01)


def test_without_bandwidths_memory_does_not_matter() -> None:
    cost = PreemptionCost(suspend_ms=5, resume_ms=25, thaw_ms=2, resize_ms=30)
    found = (cost.suspending(GIB), cost.resuming(GIB), cost.thawing(GIB), cost.resizing(GIB))
    assert found == (5, 25, 2, 30)


def test_freezing_takes_as_long_as_halting_unless_it_is_said() -> None:
    assert PreemptionCost(suspend_ms=5).suspending(0, freezes=True) == 5
    cost = PreemptionCost(suspend_ms=5, freeze_ms=1)
    assert (cost.suspending(0, freezes=True), cost.suspending(0)) == (1, 5)


# -- whose memory ------------------------------------------------------------------------------------


def test_stated_memory_counts_else_the_gpus_by_share() -> None:
    topology = cluster("n1[2fast] n2[2slow]")
    speeds = Speeds(DEFAULT, topology)
    assert speeds.memory_of(on(topology, 0)) == 32 * GIB
    assert speeds.memory_of(on(topology, 2)) == 8 * GIB
    assert speeds.memory_of(on(topology, 1, 2)) == 32 * GIB, "the fullest sets the time"
    assert speeds.memory_of(on(topology, 0, memory=3 * GIB)) == 3 * GIB
    assert speeds.memory_of(on(topology, 0, share=250, sharing=Sharing.MPS)) == 8 * GIB


def ends(demand: Demand, world: PerfModel, topology: str | Topology = "1x2") -> int | None:
    """When a job of 100 s ends that a short one of the same shape puts aside at 10 s."""
    jobs = [traced("long", demand, 100), traced("short", demand, 10, at_s=10)]
    return one(outcome_of(a_scenario(jobs, topology, world), a_policy("srtf")), "long").finish_ms


def stated(gib: int) -> Demand:
    return Demand(Shape(2, memory=gib * GIB), 2, 2)


def test_jobs_that_state_little_memory_are_cheap_to_put_aside() -> None:
    by_memory = {gib: ends(stated(gib), MOVING) for gib in (1, 4, 16)}
    assert by_memory == {
        gib: 110 * SECOND
        + PREEMPTION_COST.suspending(gib * GIB)
        + PREEMPTION_COST.resuming(gib * GIB)
        for gib in (1, 4, 16)
    }
    assert ends(gpus(2), MOVING) == by_memory[16], "unstated: all that the GPU has"
    flat = replace(
        MOVING, preemption_cost=replace(PREEMPTION_COST, save_bytes_s=None, load_bytes_s=None)
    )
    assert {ends(stated(gib), flat) for gib in (1, 4, 16)} == {128 * SECOND}


def test_moving_costs_both_ways() -> None:
    jobs = [traced("a", stated(4), 100)]
    scenario = a_scenario(jobs, "2x2", MOVING, node_changes=(at(10, e.NodeDraining(0)),))
    moved = one(outcome_of(scenario, a_policy("fifo")), "a")
    both = PREEMPTION_COST.suspending(4 * GIB) + PREEMPTION_COST.resuming(4 * GIB)
    assert (moved.migrations, moved.finish_ms) == (1, 100 * SECOND + both)


def test_growing_costs_both_ways() -> None:
    soft = Demand(Shape(1, memory=4 * GIB), 1, 2)
    result = outcome_of(
        a_scenario([traced("a", soft, 30)], "1x2", MOVING), a_policy("fifo", elastic="malleable")
    )
    assert one(result, "a").finish_ms == PREEMPTION_COST.resizing(4 * GIB) + 15 * SECOND


def test_a_frozen_run_returns_by_the_same_bandwidth_without_a_restart() -> None:
    """Four GPUs, one idle all the time: its host memory has room for the frozen run."""
    world = replace(MOVING, preemption_cost=replace(PREEMPTION_COST, can_freeze=True))
    three = Demand(Shape(3, memory=4 * GIB), 3, 3)
    expected = 110 * SECOND + PREEMPTION_COST.suspending(4 * GIB) + PREEMPTION_COST.thawing(4 * GIB)
    assert ends(three, world, "1x4") == expected


def test_runs_that_share_a_gpu_feel_each_other_again_after_a_thaw() -> None:
    """Two halves by turns, both frozen for a whole job from 4 to 5 s, then by turns again."""
    world = perf_model_from({"base": "ideal", "sharing": {"law": "linear"}}, "turns")
    world = replace(world, preemption_cost=PreemptionCost(can_freeze=True))
    half = fraction(0.5, sharing=Sharing.TIME)
    half = replace(half, host_memory=GIB)
    whole = Demand(Shape(1), 1, 1, host_memory=GIB)
    jobs = [traced("a", half, 10), traced("b", half, 10), traced("short", whole, 1, at_s=4)]
    result = outcome_of(a_scenario(jobs, "1x1", world), a_policy("srtf"))
    assert {job.job_id: job.finish_ms for job in result.jobs} == {
        "a": 21 * SECOND, "b": 21 * SECOND, "short": 5 * SECOND,
    }  # fmt: skip
