"""What GPU time costs, each on numbers that can be checked by hand."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.builders import a_policy, a_scenario, costly, fraction, outcome_of, traced
from trainmaster.config.cluster import cluster_from
from trainmaster.model.job import Demand, Job, Shape
from trainmaster.model.placement import Role
from trainmaster.model.result import Result
from trainmaster.model.topology import Topology
from trainmaster.model.trace import Outcome, TracedJob
from trainmaster.model.units import GIB, to_ms
from trainmaster.sim.cost import unpriced_types
from trainmaster.sim.result_json import to_json

HOUR_S = 3_600.0


def priced(**prices: float | None) -> Topology:
    """A node of two GPUs for each type, in the order of naming."""
    types = {
        name: {} if price is None else {"price_per_hour": price} for name, price in prices.items()
    }
    nodes = [{"name": f"n-{name}", "gpus": 2, "type": name} for name in prices]
    return cluster_from({"types": types, "nodes": nodes}).topology


def one_of(kind: str) -> Demand:
    return Demand(Shape(1), 1, 1, gpu_type=kind)


def ran(jobs: list[TracedJob], topology: Topology, policy: str = "fifo", **how: object) -> Result:
    scenario = a_scenario(jobs, "1x2", **how)  # type: ignore[arg-type]
    return outcome_of(replace(scenario, topology=topology), a_policy(policy))


def test_a_job_costs_the_gpu_time_that_it_held() -> None:
    result = ran([traced("a", 2, HOUR_S), traced("b", 1, HOUR_S)], priced(A=3.0))
    assert [job.cost for job in result.jobs] == [6.0, 3.0]
    assert result.summary.cost == 9.0


def test_idle_gpus_cost_what_the_cluster_does_less_what_jobs_held() -> None:
    """Two GPUs for two hours cost 12; the jobs held three GPU-hours of them."""
    result = ran([traced("a", 2, HOUR_S), traced("b", 1, HOUR_S)], priced(A=3.0))
    assert result.summary.cost_idle == 3.0


def test_each_type_at_its_own_price() -> None:
    jobs = [
        traced("a", one_of("A"), HOUR_S),
        traced("b", one_of("B"), HOUR_S),
    ]
    result = ran(jobs, priced(A=3.0, B=0.5))
    assert [job.cost for job in result.jobs] == [3.0, 0.5]


def test_a_shared_gpu_costs_by_the_share_held() -> None:
    jobs = [traced("a", fraction(0.5), HOUR_S), traced("b", fraction(0.25), HOUR_S)]
    result = ran(jobs, priced(A=4.0))
    assert [job.cost for job in result.jobs] == [2.0, 1.0]
    assert result.summary.cost_idle == 2 * 4.0 - 3.0


def test_failed_runs_are_paid_for_nothing() -> None:
    jobs = [
        traced("a", 1, HOUR_S, failed_s=[HOUR_S]),
        traced("b", 1, HOUR_S, outcome=Outcome.FAILED),
    ]
    result = ran(jobs, priced(A=2.0), world=replace(costly(), has_failures=True))
    a, b = result.jobs
    assert a.cost is not None
    assert a.cost_wasted is not None
    assert a.cost - a.cost_wasted == pytest.approx(2.0, abs=1e-5)
    assert b.cost_wasted == pytest.approx(b.cost)


def test_switching_is_paid_for_nothing() -> None:
    """One GPU at 3,600 an hour, 1 a second: every second beyond the service is waste."""
    jobs = [traced("a", 2, 1_000), traced("b", 2, 1_000, at_s=100)]
    result = ran(
        jobs,
        priced(A=3_600.0),
        "las",
        world=costly(start_ms=2_000, suspend_ms=5_000, resume_ms=3_000),
    )
    assert result.summary.preemptions
    assert result.summary.cost is not None
    assert result.summary.cost_wasted is not None
    assert result.summary.cost - result.summary.cost_wasted == pytest.approx(4_000)
    assert result.summary.cost_wasted == pytest.approx(3_600 * result.summary.gpu_hours_wasted)


def test_a_guest_pays_too_and_the_gpu_of_both_is_idle_for_neither() -> None:
    """AntMan: an opportunistic job on the GPU that a guaranteed one leaves half idle."""
    shape = Shape(1, memory=4 * GIB)
    jobs = [
        TracedJob(Job(name, 0, Demand(shape, 1, 1), role=role, gpu_util_ppm=500_000), to_ms(HOUR_S))
        for name, role in (("host", Role.GUARANTEED), ("guest", Role.OPPORTUNISTIC))
    ]
    topology = cluster_from(
        {"types": {"A": {"price_per_hour": 1.0}}, "nodes": {"gpus": 1, "type": "A"}}
    ).topology
    result = ran(jobs, topology, "antman")
    hours = (result.summary.makespan_s or 0) / HOUR_S
    assert result.summary.cost is not None
    assert result.summary.cost > hours
    assert result.summary.cost_idle == pytest.approx(0.0)


def test_queues_are_billed_for_their_jobs() -> None:
    jobs = [
        traced("a", 2, HOUR_S, queue="vision"),
        traced("b", 1, HOUR_S, queue="speech"),
        traced("c", 1, HOUR_S, queue="vision"),
    ]
    result = ran(jobs, priced(A=3.0))
    assert [(q.queue, q.jobs, q.gpu_s, q.cost) for q in result.queues] == [
        ("speech", 1, HOUR_S, 3.0),
        ("vision", 2, 3 * HOUR_S, 9.0),
    ]


def test_a_job_that_never_ran_cost_nothing() -> None:
    result = ran([traced("a", 1, HOUR_S), traced("huge", 64, HOUR_S)], priced(A=3.0))
    assert result.jobs[1].cost == 0.0
    assert result.summary.cost == 3.0


def test_a_run_cut_short_costs_what_was_held_up_to_the_cut() -> None:
    result = ran([traced("a", 1, 2 * HOUR_S)], priced(A=3.0), until_s=HOUR_S)
    assert result.summary.cost == 3.0
    assert result.summary.cost_idle is None


UNPRICED = {
    "no price at all": (priced(A=None), ["A"]),
    "one type without": (priced(A=3.0, B=None), ["B"]),
    "a price of nought is a price": (priced(A=0.0), []),
}


@pytest.mark.parametrize(("topology", "missing"), UNPRICED.values(), ids=UNPRICED)
def test_no_price_no_cost(topology: Topology, missing: list[str]) -> None:
    result = ran([traced("a", 1, HOUR_S)], topology)
    assert unpriced_types(topology) == missing
    want = None if missing else 0.0
    assert (result.summary.cost, result.summary.cost_idle, result.jobs[0].cost) == (want,) * 3


def test_the_json_states_costs_and_null_without_prices() -> None:
    jobs = [traced("a", 1, HOUR_S)]
    without, with_ = (ran(jobs, topology) for topology in (priced(A=None), priced(A=3.0)))
    told = [json.loads(to_json([each], {}))["results"][0] for each in (without, with_)]
    assert [each["summary"]["cost"] for each in told] == [None, 3.0]
    assert [each["jobs"][0]["cost"] for each in told] == [None, 3.0]
    assert [each["queues"][0]["cost"] for each in told] == [None, 3.0]
    assert told[1]["summary"]["cost_idle"] == 3.0
