"""Our own policy with stated queues: packing, resizing, migration and deadlines work there too.

Each stage in a situation that comes out otherwise without it; and no stage breaks what queues promise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.builders import finishes, one, outcome_of, traced
from tests.policies.ours import asked, ours, situation
from tests.property.drive import Drive
from tests.property.test_mechanisms import GROWN, KINDS, NEAR, PACKED, workloads
from trainmaster.model import actions as a
from trainmaster.model.job import Demand, Shape, gpus
from trainmaster.model.placement import Sharing
from trainmaster.model.queue import Queue
from trainmaster.model.result import Result
from trainmaster.model.trace import TracedJob
from trainmaster.model.units import GIB, NOMINAL, SECOND, WHOLE
from trainmaster.perf.default_parameters import LOCALITY, SHARED_GPU
from trainmaster.perf.perf_model import IDEAL, PerfModel
from trainmaster.policies.trainmaster.options import LocalityTerms, PackingTerms
from trainmaster.sim.driver import Estimates, Scenario

HALVES = (Queue("a"), Queue("b"))
SHARING = replace(IDEAL, interferes=True, shared_gpu=SHARED_GPU)
EXACT = Estimates()
FAR = replace(IDEAL, locality=LOCALITY)


def ran(
    jobs: Sequence[TracedJob],
    cluster: str,
    world: PerfModel = IDEAL,
    queues: Sequence[Queue] = HALVES,
    **options: object,
) -> Result:
    return outcome_of(situation(jobs, cluster, world, queues=queues), ours(**options))  # type: ignore[arg-type]


# -- packing ---------------------------------------------------------------------------------------


def small(name: str, queue: str) -> TracedJob:
    demand = Demand(Shape(1, memory=3 * GIB), 1, 1)
    return traced(name, demand, 81, model="lm", queue=queue)


PACKING = PackingTerms(Sharing.TIME, 700_000, trial_ms=10 * SECOND)


@pytest.mark.parametrize(
    ("packing", "ends"), [(PACKING, {"x": 100, "y": 100}), ("off", {"x": 81, "y": 162})]
)
def test_jobs_of_a_queue_share_a_gpu_where_both_do_more(
    packing: PackingTerms | str, ends: dict[str, float]
) -> None:
    jobs = [small("x", "a"), small("y", "a")]
    assert finishes(ran(jobs, "1x1", SHARING, packing=packing, min_run_s=100)) == ends


def test_jobs_of_two_queues_do_not_share_a_gpu() -> None:
    """So that sharing changes nothing that a queue holds."""
    jobs = [small("x", "a"), small("y", "b")]
    ends = finishes(ran(jobs, "1x1", SHARING, packing=PACKING, min_run_s=100))
    assert ends == {"x": 81, "y": 162}


# -- resizing --------------------------------------------------------------------------------------

VISITED = [
    traced("wide", gpus(1, maximum=4), 1_000, queue="a"),
    traced("other", gpus(3), 100, at_s=200, queue="b"),
]
"""A job that could use all four GPUs, and a rigid one of another queue that comes at 200 s."""


def sizes(scenario: Scenario) -> list[tuple[float, str, int]]:
    """(when, who, GPUs) of every launch and reshaping."""
    return [
        (now / SECOND, order.run.job, len(order.placement.slices))
        for now, orders in Drive(scenario, ours()).run().orders()
        for order in orders
        if isinstance(order, a.Launch | a.Reshape)
    ]


@pytest.mark.parametrize(("grow", "wide"), [("on", 430), ("off", 1_000)])
def test_a_run_grows_into_idle_gpus_and_gives_them_to_a_job_of_another_queue(
    grow: str, wide: float
) -> None:
    assert finishes(ran(VISITED, "1x4", grow=grow)) == {"wide": wide, "other": 300}


def test_a_run_grows_no_further_than_its_queue_s_maximum() -> None:
    queues = (Queue("a", maximum=2 * WHOLE), Queue("b"))
    found = sizes(situation(VISITED[:1], "1x4", queues=queues))
    assert found == [(0, "wide", 1), (60, "wide", 2)]


# -- migration and delay scheduling ----------------------------------------------------------------


def scattered(**options: object) -> Result:
    """Queue a has one job of one GPU on each of two nodes of four, and a gang of four of b comes."""
    jobs = [
        traced("short", 3, 5, queue="a"),
        traced("x", 1, 9_000, queue="a"),
        traced("y", 1, 9_000, at_s=1, queue="a"),
        traced("gang", 4, 1_000, at_s=1_000, model="vgg16", queue="b"),
    ]
    return ran(jobs, "2x4", FAR, **options)


@pytest.mark.parametrize(
    ("locality", "moves", "finish_s"), [("on", [1, 0], 2_000), ("off", [0, 0], 2_724)]
)
def test_a_small_run_of_one_queue_moves_away_for_a_gang_of_another(
    locality: str, moves: list[int], finish_s: float
) -> None:
    result = scattered(locality=locality)
    assert [one(result, job).migrations for job in "xy"] == moves
    assert finishes(result)["gang"] == pytest.approx(finish_s, abs=1)


@pytest.mark.parametrize(("patience_ppm", "start_s"), [(1_000 * NOMINAL, 3_000), (0, 10)])
def test_a_gang_waits_for_one_node(patience_ppm: int, start_s: float) -> None:
    jobs = [
        traced("x", 2, 3_000, queue="a"),
        traced("short", 2, 1, queue="a"),
        traced("y", 2, 3_000, at_s=0.5, queue="a"),
        traced("gang", 4, 5_000, at_s=10, model="vgg16", queue="b"),
    ]
    terms = LocalityTerms(patience_ppm=patience_ppm, rest_ms=1 << 60)
    gang = one(ran(jobs, "2x4", FAR, locality=terms), "gang")
    assert gang.start_ms == pytest.approx(start_s * SECOND, abs=SECOND)


# -- deadlines -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("deadlines", "is_met"), [("on", True), ("off", False)])
def test_a_deadline_is_kept_at_the_cost_of_a_queue_with_a_larger_share(
    deadlines: str, is_met: bool
) -> None:
    queues = (Queue("a", weight=9), Queue("b"))
    stream = [traced(f"s{n}", 1, 30, at_s=30 * n, queue="a") for n in range(20)]
    job = replace(asked("due", 1, 50, within_s=150, at_s=1).job, queue="b")
    due = replace(asked("due", 1, 50, within_s=150, at_s=1), job=job)
    scenario = replace(situation([*stream, due], "1x1", queues=queues), estimates=EXACT)
    policy = ours(deadlines=deadlines, deadline_margin=0, half_life_s=0)
    ended = finishes(outcome_of(scenario, policy))["due"]
    assert ended is not None
    assert (ended <= 151) is is_met


# -- what queues promise ---------------------------------------------------------------------------


@pytest.mark.parametrize("growing", [True, False])
def test_a_queue_gets_its_guarantee_back_at_once(growing: bool) -> None:
    queues = (Queue("a"), Queue("b", guaranteed=2 * WHOLE))
    if growing:
        before = [traced("wide", gpus(1, maximum=4), 5_000, queue="a")]
    else:
        before = [traced(f"x{n}", 1, 5_000, queue="a") for n in range(4)]
    jobs = [*before, traced("new", 2, 100, at_s=1_000, queue="b")]
    assert one(ran(jobs, "1x4", queues=queues), "new").start_ms == 1_000 * SECOND


BOUNDED = {
    queue.name: queue
    for queue in (
        Queue("default", guaranteed=WHOLE, maximum=3 * WHOLE),
        Queue("other", weight=2, maximum=4 * WHOLE),
    )
}


@pytest.mark.parametrize("kind", KINDS)
@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(data=st.data())
def test_no_queue_ever_holds_more_than_its_maximum(kind: str, data: st.DataObject) -> None:
    scenario = replace(data.draw(workloads(KINDS[kind])), queues=BOUNDED)
    policy = ours(locality=NEAR, packing=PACKED, resizing=GROWN, min_run_s=2)
    drive = Drive(scenario, policy)
    drive.simulation.define_queues()
    while drive.simulation.step():
        drive.look()
        held = dict.fromkeys(BOUNDED, 0)
        for record in drive.simulation.controller.state.jobs.values():
            if record.placement is not None:
                held[record.job.queue] += record.placement.total_share
        for queue, share in held.items():
            assert share <= (BOUNDED[queue].maximum or share)
