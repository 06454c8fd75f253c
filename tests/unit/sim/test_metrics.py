"""The contract's definitions, each on numbers that can be checked by hand."""

from __future__ import annotations

import json

import pytest

from tests.builders import (
    a_policy,
    a_scenario,
    costly,
    one,
    outcome_of,
    simulated,
    traced,
)
from trainmaster.model.job import Demand, Shape, gpus
from trainmaster.model.queue import Queue
from trainmaster.model.result import Result, Status
from trainmaster.model.trace import TracedJob
from trainmaster.model.units import SECOND
from trainmaster.perf.perf_model import IDEAL
from trainmaster.sim.accounting import jain
from trainmaster.sim.driver import Scenario, Simulation
from trainmaster.sim.metrics import percentile, result_of
from trainmaster.sim.result_json import to_json


def fifo(jobs: list[TracedJob], cluster: str, **how: object) -> Result:
    return outcome_of(a_scenario(jobs, cluster, **how), a_policy("fifo"))  # type: ignore[arg-type]


PERCENTILES = {
    "of one": ([7.0], 0.99, 7.0),
    "the median of two is the upper": ([1.0, 2.0], 0.5, 2.0),
    "the median of four is the third": ([1.0, 2.0, 3.0, 4.0], 0.5, 3.0),
    "p95 of twenty is the last": ([float(n) for n in range(20)], 0.95, 19.0),
    "p99 of a hundred is the last": ([float(n) for n in range(100)], 0.99, 99.0),
    "p99 of two hundred is the 199th": ([float(n) for n in range(200)], 0.99, 198.0),
    "never beyond the last": ([1.0, 2.0], 1.0, 2.0),
    "of nothing": ([], 0.5, None),
}


@pytest.mark.parametrize(("values", "part", "want"), PERCENTILES.values(), ids=PERCENTILES)
def test_percentile(values: list[float], part: float, want: float | None) -> None:
    assert percentile(values, part) == want


def test_a_hand_computed_run() -> None:
    """One GPU: a 0-10, b 10-30 (submitted at 5), c 30-31 (submitted at 20)."""
    result = fifo(
        [traced("a", 1, 10), traced("b", 1, 20, at_s=5), traced("c", 1, 1, at_s=20)], "1x1"
    )
    summary = result.summary
    assert (summary.jobs, summary.finished, summary.unfinished, summary.rejected) == (3, 3, 0, 0)
    assert summary.avg_jct_s == pytest.approx((10 + 25 + 11) / 3)
    assert summary.avg_excess_s == pytest.approx((0 + 5 + 10) / 3)
    assert (summary.p50_jct_s, summary.p95_jct_s, summary.p99_jct_s) == (11, 25, 25)
    assert summary.avg_queue_s == pytest.approx((0 + 5 + 10) / 3)
    assert summary.makespan_s == 31
    assert summary.gpu_util == 1
    assert summary.load == pytest.approx((10 + 20 + 1) / 20)
    assert summary.avg_jct_lower_bound_s is None
    assert summary.gpu_hours_wasted == 0


def test_makespan_and_utilisation_count_from_the_first_submission() -> None:
    result = fifo([traced("a", 1, 10, at_s=100), traced("b", 2, 10, at_s=130)], "1x4")
    assert result.summary.makespan_s == 40
    assert result.summary.gpu_util == pytest.approx((10 + 20) / (4 * 40))


def test_rho_compares_with_a_fair_share_of_the_cluster() -> None:
    """Two GPUs. a alone; then b and c, each wanting both, one after the other."""
    result = fifo(
        [traced("a", 1, 10), traced("b", 2, 10, at_s=100), traced("c", 2, 10, at_s=100)], "1x2"
    )
    assert one(result, "a").rho == 1
    # b: two jobs over its life of 10 s: fair share is half the cluster, so 20 s would be fair.
    assert one(result, "b").rho == pytest.approx(10 / (10 * 2))
    # c: two jobs for 10 s, then one: mean 1.5 over 20 s.
    assert one(result, "c").rho == pytest.approx(20 / (10 * 1.5))
    assert result.summary.max_rho == pytest.approx(20 / 15)


def test_load_is_null_when_all_come_at_once() -> None:
    assert fifo([traced("a", 1, 10), traced("b", 1, 10)], "1x2").summary.load is None


def test_a_horizon_nulls_every_mean_and_gives_a_lower_bound() -> None:
    jobs = [
        traced("a", 1, 10),
        traced("b", 1, 20, at_s=5),
        traced("c", 1, 1, at_s=20),
        traced("late", 1, 1, at_s=99),
    ]
    result = fifo(jobs, "1x1", until_s=25)
    summary = result.summary
    nulls = (
        summary.avg_jct_s, summary.avg_excess_s, summary.p50_jct_s, summary.p95_jct_s, summary.p99_jct_s,
        summary.avg_queue_s, summary.makespan_s, summary.max_rho, summary.p99_rho,
    )  # fmt: skip
    assert nulls == (None,) * 9
    assert (summary.finished, summary.unfinished) == (1, 3)
    assert summary.avg_jct_lower_bound_s == pytest.approx((10 + 20 + 5) / 3), (
        "late is not yet there"
    )
    assert one(result, "b").status is Status.UNFINISHED
    assert one(result, "b").held == 15_000 * 1_000
    assert one(result, "late").start_ms is None
    assert result.horizon_s == 25


def test_a_job_that_can_never_fit_is_rejected_and_counts_in_no_mean() -> None:
    result = fifo([traced("a", 1, 10), traced("huge", 9, 10, at_s=1)], "1x2")
    assert one(result, "huge").status is Status.REJECTED
    summary = result.summary
    assert (summary.jobs, summary.finished, summary.rejected, summary.avg_jct_s) == (2, 1, 1, 10)


def test_an_elastic_job_whose_nominal_size_never_fits_does_not_hold_a_rigid_policy_up() -> None:
    """Rejected, or run at a size that fits: but never waited for."""

    soft = traced("soft", gpus(9, minimum=1, maximum=9), 10)
    for policy in ("fifo", "yarn-cs", "srtf", "srsf", "tiresias-l"):
        result = outcome_of(
            a_scenario([soft, traced("a", 1, 10)], "1x2", until_s=1_000), a_policy(policy)
        )
        assert one(result, "a").status is Status.SUCCEEDED, policy
        assert one(result, "soft").status is not Status.UNFINISHED, policy


def test_suspended_time_and_preemptions() -> None:
    jobs = [traced("long", 1, 100), traced("short", 1, 1, at_s=10)]
    world = costly(suspend_ms=5_000, resume_ms=25_000)
    result = outcome_of(a_scenario(jobs, "1x1", world), a_policy("srtf"))
    long = one(result, "long")
    assert (long.preemptions, long.migrations) == (1, 0)
    assert long.finish_ms == 131_000
    assert long.suspended_ms == 31_000, "not making progress after the first start"
    assert long.held == (100 + 5 + 25) * 1_000 * 1_000
    assert result.summary.gpu_hours_wasted == pytest.approx(30 / 3600)
    assert one(result, "short").queue_ms == 5_000


def test_jain_over_queues() -> None:
    assert jain([1.0, 1.0, 1.0]) == 1
    assert jain([1.0, 0.0]) == 0.5
    assert jain([]) is None
    equal = [traced("a", 1, 10, queue="x"), traced("b", 1, 10, queue="y")]
    assert fifo(equal, "1x2").summary.jain_index == 1
    # x holds 3 GPUs and y 1, entitled to 2 each while both are active.
    skewed = [traced("a", 3, 10, queue="x"), traced("b", 1, 10, queue="y")]
    assert fifo(skewed, "1x4").summary.jain_index == pytest.approx(
        (1.5 + 0.5) ** 2 / (2 * (1.5**2 + 0.5**2))
    )


def test_jain_follows_the_queues_weights() -> None:
    jobs = (traced("a", 3, 10, queue="x"), traced("b", 1, 10, queue="y"))
    plain = a_scenario(jobs, "1x4")
    queues = {"x": Queue("x", weight=3), "y": Queue("y", weight=1)}
    weighted = Scenario(plain.trace, plain.topology, "1x4", plain.perf, queues=queues)
    assert outcome_of(weighted, a_policy("fifo")).summary.jain_index == 1


def test_bins_by_size() -> None:
    result = fifo([traced("a", 1, 10), traced("b", 2, 10), traced("c", 4, 20)], "1x8")
    assert [(b.label, b.jobs, b.avg_jct_s) for b in result.bins] == [
        ("1 GPU", 1, 10),
        ("2-4 GPUs", 2, 15),
    ]


def test_delays_by_cause() -> None:
    """Too few are free: contention. Enough, but not together: fragmentation."""
    apart = [traced("a", 1, 100), traced("b", 2, 100), traced("pair", 2, 10, at_s=10)]
    scenario = a_scenario(apart, "n1[2] n2[2]")
    delays = outcome_of(scenario, a_policy("yarn-cs")).delays
    assert delays is not None
    assert (delays.contention_s, delays.fragmentation_s, delays.fair_share_s) == (90, 0, 0)
    spread = [traced("a", 3, 100), traced("b", 3, 100), traced("pair", 2, 10, at_s=10)]
    delays = outcome_of(a_scenario(spread, "n1[4] n2[4]"), a_policy("yarn-cs")).delays
    assert delays is not None
    assert (delays.contention_s, delays.fragmentation_s, delays.fair_share_s) == (0, 90, 0)


def test_curves_start_with_the_run_and_end_at_rest() -> None:
    result = fifo([traced("a", 1, 10), traced("b", 2, 10, at_s=5)], "1x2")
    assert result.utilisation.times_s[0] == 0
    assert set(zip(result.utilisation.times_s, result.utilisation.values, strict=True)) >= {
        (10, 1.0),
        (20, 0.0),
    }
    waiting = dict(zip(result.queue_length.times_s, result.queue_length.values, strict=True))
    assert (waiting[5], waiting[10], waiting[20]) == (1, 0, 0)


# -- the JSON --------------------------------------------------------------------------------------


def test_the_json_has_the_contracts_keys_and_three_decimals() -> None:
    result = fifo([traced("a", 1, 10.0007), traced("b", 1, 1 / 3, at_s=0.1)], "1x1")
    entry = json.loads(to_json([result], {"fifo": 0.12345}))["results"][0]
    assert set(entry) >= {"policy", "options", "cluster", "summary", "jobs"}
    assert list(entry["summary"]) == [
        "jobs", "finished", "rejected", "unfinished", "load", "avg_jct_s", "avg_excess_s",
        "avg_jct_lower_bound_s", "p50_jct_s", "p95_jct_s", "p99_jct_s", "avg_queue_s", "makespan_s",
        "gpu_util", "gpu_hours_wasted", "preemptions", "migrations", "max_rho", "p99_rho", "jain_index",
        "wall_s", "events", "cost", "cost_wasted", "cost_idle",
    ]  # fmt: skip
    assert set(entry["jobs"][0]) >= {
        "job_id", "submit_s", "start_s", "finish_s", "jct_s", "queue_s", "suspended_s", "gpu_s",
        "preemptions", "migrations", "status",
    }  # fmt: skip
    assert entry["summary"]["wall_s"] == 0.123
    assert entry["jobs"][0]["finish_s"] == 10.001
    assert entry["jobs"][1]["jct_s"] == 10.234
    assert entry["options"] == {"backfill": "none", "elastic": "rigid"}
    assert entry["summary"]["avg_jct_lower_bound_s"] is None


def test_an_interrupted_run_says_what_is_known_so_far() -> None:
    from trainmaster.sim.driver import Simulation
    from trainmaster.sim.metrics import result_of

    jobs = [traced("a", 1, 10), traced("b", 1, 10, at_s=1)]
    simulation = Simulation(a_scenario(jobs, "1x1"), a_policy("fifo"))
    for _ in range(3):
        simulation.step()
    result = result_of(simulation)
    assert result.summary.unfinished == 2
    assert result.summary.avg_jct_s is None
    assert simulated(a_scenario(jobs, "1x1"), a_policy("fifo")).ledger.ended_count == 2


def test_a_run_that_is_cut_has_its_books_in_order() -> None:
    jobs = [traced("a", 1, 1_000), traced("b", 1, 1_000)]
    result = outcome_of(a_scenario(jobs, "1x2", until_s=100), a_policy("fifo"))
    assert [job.suspended_ms for job in result.jobs] == [0, 0]
    assert [job.held for job in result.jobs] == [100 * SECOND * 1_000] * 2


def test_cpu_slots_do_not_count_as_gpus() -> None:
    job = traced("a", Demand(Shape(2), 2, 2, gpu_type="cpu"), 100)
    result = outcome_of(a_scenario([job, traced("g", 1, 100)], "n1[1] n2[4cpu]"), a_policy("fifo"))
    assert result.summary.gpu_util == pytest.approx(1.0)
    assert one(result, "a").rho is None


def test_entitlement_follows_the_tree_of_queues() -> None:
    """q holds half, c1 and c2 under p a quarter each: just what they are entitled to."""
    jobs = [
        traced("a", 1, 10, queue="c1"),
        traced("b", 1, 10, queue="c2"),
        traced("d", 2, 10, queue="q"),
    ]
    plain = a_scenario(jobs, "1x4")
    tree = [Queue("p"), Queue("c1", "p"), Queue("c2", "p"), Queue("q")]
    queues = {queue.name: queue for queue in tree}
    scenario = Scenario(plain.trace, plain.topology, "1x4", IDEAL, queues=queues)
    simulation = Simulation(scenario, a_policy("fifo"))
    simulation.run()
    assert result_of(simulation).summary.jain_index == pytest.approx(1.0)
