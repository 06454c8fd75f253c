"""YARN's fair sharing between queues (section 2), with whole gangs of GPUs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import a_policy, a_scenario, finishes, one, outcome_of, simulated, traced
from tests.property.drive import Drive
from trainmaster.model.queue import Queue
from trainmaster.model.reasons import Why
from trainmaster.model.result import Result
from trainmaster.model.trace import TracedJob
from trainmaster.model.units import SECOND, WHOLE, to_ms
from trainmaster.sim.driver import Scenario
from trainmaster.sim.metrics import result_of


def with_queues(scenario: Scenario, *queues: Queue) -> Scenario:
    return replace(scenario, queues={queue.name: queue for queue in queues})


def borrowed() -> list[TracedJob]:
    """A holds all 16 GPUs; at 100 s B wants 8 of them."""
    jobs = [traced(f"a{n}", 4, 10_000, at_s=n, queue="A") for n in range(4)]
    return jobs + [traced(f"b{n}", 4, 1_000, at_s=100, queue="B") for n in range(2)]


def ran(jobs: list[TracedJob], topology: str = "2x8", *queues: Queue, **options: object) -> Result:
    scenario = with_queues(a_scenario(jobs, topology), *queues)
    return outcome_of(scenario, a_policy("fair", **options))


def starts(result: Result, queue: str) -> list[float | None]:
    """When jobs whose names begin so started, in seconds."""
    mine = [job for job in result.jobs if job.job_id.startswith(queue)]
    return [None if job.start_ms is None else job.start_ms / SECOND for job in mine]


def holding(scenario: Scenario, second: float, **options: object) -> dict[str, int]:
    """GPUs held by each queue after all that happens then."""
    simulation = simulated(replace(scenario, until_ms=to_ms(second)), a_policy("fair", **options))
    held: dict[str, int] = {}
    for record in simulation.controller.state.jobs.values():
        if record.placement is not None:
            queue = record.job.queue
            held[queue] = held.get(queue, 0) + len(record.placement.slices)
    return held


# -- borrowing and giving back ---------------------------------------------------------------------


def test_borrowed_gpus_come_back_after_the_timeout() -> None:
    """Shares 8/8. B starves (0 < 4) from 100 s on; at 400 s exactly 8 come back, A keeps 8."""
    scenario = a_scenario(borrowed(), "2x8")
    assert holding(scenario, 399) == {"A": 16}
    assert holding(scenario, 400) == {"A": 8, "B": 8}
    done = ran(borrowed())
    assert starts(done, "b") == [400, 400]
    assert {job.job_id: job.preemptions for job in done.jobs} == {
        "a0": 0,
        "a1": 0,
        "a2": 1,
        "a3": 1,
        "b0": 0,
        "b1": 0,
    }, "those that have run for the shortest time go"


def test_without_preemption_borrowers_keep_what_they_have() -> None:
    assert starts(ran(borrowed(), preemption="off"), "b") == [10_000, 10_001]


@pytest.mark.parametrize(("timeout", "want"), [(0, 100), (50, 150), (1_000, 1_100)])
def test_the_timeout(timeout: int, want: int) -> None:
    assert starts(ran(borrowed(), preempt_timeout_s=timeout), "b") == [want, want]


def test_a_queue_above_the_threshold_does_not_starve() -> None:
    """B holds 4 of its 8: at the threshold of one half that is enough, at 0.6 it is not."""
    jobs = [traced("b0", 4, 20_000, queue="B")]
    jobs += [traced(f"a{n}", 4, 10_000, at_s=n + 1, queue="A") for n in range(3)]
    jobs += [traced("b1", 4, 1_000, at_s=100, queue="B")]
    assert one(ran(jobs), "b1").start_ms == 10_001_000
    assert one(ran(jobs, share_threshold=0.6), "b1").start_ms == 400_000


def test_nothing_is_taken_back_while_the_cluster_is_not_full() -> None:
    """B's gang of 8 does not fit into the 4 GPUs left; 12 of 16 are held: 75 %."""
    jobs = [traced(f"a{n}", 4, 9_000, queue="A") for n in range(3)]
    jobs += [traced("b", 8, 100, at_s=100, queue="B")]
    assert one(ran(jobs, "2x8"), "b").start_ms == 9_000_000
    assert one(ran(jobs, "2x8", utilisation_threshold=0.7), "b").start_ms == 400_000


def test_a_queue_at_its_share_is_never_preempted() -> None:
    """A holds one gang of 14: to give any back it would have to fall below its share of 8."""
    jobs = [traced("a", 14, 9_000, queue="A"), traced("b", 8, 100, at_s=100, queue="B")]
    assert one(ran(jobs), "b").start_ms == 9_000_000


def test_a_guarantee_comes_back_even_so() -> None:
    jobs = [traced("a", 14, 9_000, queue="A"), traced("b", 8, 100, at_s=100, queue="B")]
    done = ran(jobs, "2x8", Queue("B", guaranteed=8 * WHOLE))
    assert one(done, "b").start_ms == 400_000
    assert one(done, "a").preemptions == 1


def test_three_queues_by_weight() -> None:
    """16 GPUs, weights 1, 1 and 2: 4, 4 and 8. With six guaranteed to A: 6, 3.333 and 6.667, and the
    GPU that nobody's part holds whole goes by the order of offers: B and C use 3 per weight, B."""
    jobs = [traced(f"{q}{n}", 1, 100, queue=q) for q in "ABC" for n in range(16)]
    scenario = a_scenario(jobs, "2x8")
    assert holding(scenario, 0, queues="A:1,B:1,C:2") == {"A": 4, "B": 4, "C": 8}
    needy = with_queues(scenario, Queue("A", guaranteed=6 * WHOLE))
    assert holding(needy, 0, queues="A:1,B:1,C:2") == {"A": 6, "B": 4, "C": 6}


def test_ten_gpus_for_three_equal_queues_are_never_twelve() -> None:
    jobs = [traced(f"{q}{n}", 1, 100, queue=q) for q in "ABC" for n in range(9)]
    assert holding(a_scenario(jobs, "1x10"), 0) == {"A": 4, "B": 3, "C": 3}


def test_freed_gpus_are_offered_to_the_queue_that_uses_least_for_its_weight() -> None:
    """Both have a job for the one GPU that comes free; B uses less."""
    jobs = [traced("a0", 2, 1_000, queue="A"), traced("b0", 1, 1_000, queue="B")]
    jobs += [traced("c", 1, 50, queue="C")]
    jobs += [traced("a1", 1, 10, at_s=1, queue="A"), traced("b1", 1, 10, at_s=2, queue="B")]
    assert starts(ran(jobs, "1x4"), "b1") == [50]
    assert starts(ran(jobs, "1x4", queues="A:9,B:1"), "b1") == [60]


def test_a_maximum_is_kept_at_every_level() -> None:
    tree = (Queue("top", maximum=6 * WHOLE), Queue("x", parent="top"), Queue("y", parent="top"))
    jobs = [traced(f"{q}{n}", 1, 100, queue=q) for q in "xy" for n in range(8)]
    assert holding(with_queues(a_scenario(jobs, "2x8"), *tree), 0) == {"x": 3, "y": 3}


def test_a_maximum_around_two_queues_is_shared_by_taking_back() -> None:
    """x has borrowed all that top may hold; y's part comes from x, though other GPUs are idle."""
    tree = (Queue("top", maximum=6 * WHOLE), Queue("x", parent="top"), Queue("y", parent="top"))
    jobs = [
        traced(f"{q}{n}", 1, 100, at_s=10 * (q == "y"), queue=q) for q in "xy" for n in range(8)
    ]
    scenario = with_queues(a_scenario(jobs, "2x8"), *tree)
    options = {"preempt_timeout_s": 5, "utilisation_threshold": 0}
    assert holding(scenario, 14, **options) == {"x": 6}
    assert holding(scenario, 15, **options) == {"x": 3, "y": 3}


def test_a_guarantee_inside_a_queue_is_one_of_the_queue_around_it() -> None:
    tree = (Queue("top"), Queue("x", parent="top", guaranteed=10 * WHOLE), Queue("y", weight=3))
    jobs = [traced(f"{q}{n}", 1, 100, queue=q) for q in "xy" for n in range(16)]
    assert holding(with_queues(a_scenario(jobs, "2x8"), *tree), 0) == {"x": 10, "y": 6}


def test_jobs_of_a_queue_that_has_queues_inside_are_one_more_of_them() -> None:
    tree = (Queue("top"), Queue("x", parent="top"))
    jobs = [traced(f"{q}{n}", 1, 100, queue=q) for q in ("top", "x") for n in range(8)]
    assert holding(with_queues(a_scenario(jobs, "1x8"), *tree), 0) == {"top": 4, "x": 4}


def test_a_queue_that_nobody_defined_has_weight_one() -> None:
    jobs = [traced(f"{q}{n}", 1, 100, queue=q) for q in ("known", "strange") for n in range(8)]
    scenario = a_scenario(jobs, "1x8")
    assert holding(scenario, 0, queues="known:3") == {"known": 6, "strange": 2}


# -- inside a queue --------------------------------------------------------------------------------


def test_inside_a_queue_any_job_that_fits_may_start_unless_told_otherwise() -> None:
    jobs = [traced("busy", 2, 100, queue="A"), traced("wide", 4, 10, at_s=1, queue="A")]
    jobs += [traced("small", 1, 10, at_s=2, queue="A")]
    assert one(ran(jobs, "1x4"), "small").start_ms == 2_000
    assert one(ran(jobs, "1x4", inner_options="backfill=none"), "small").start_ms == 110_000


def test_the_inner_policy_decides_who_of_the_queue_runs() -> None:
    jobs = [traced("long", 2, 100, queue="A"), traced("short", 2, 10, at_s=1, queue="A")]
    jobs += [traced("b", 2, 500, queue="B")]
    assert one(ran(jobs, "1x4"), "short").start_ms == 100_000
    assert one(ran(jobs, "1x4", inner="srtf"), "short").start_ms == 1_000


def test_a_young_run_is_protected() -> None:
    """At 600 s the first of A's runs is old enough to go, at 601 s the next."""
    done = ran(borrowed(), preempt_timeout_s=0, min_run_s=600, share_threshold=1)
    assert starts(done, "b") == [600, 601]


# -- memory ----------------------------------------------------------------------------------------


def remembered() -> list[TracedJob]:
    """A has used everything for 1000 s; then A and B, equally poor, want all."""
    jobs = [traced("a", 8, 1_000, queue="A")]
    return jobs + [traced(f"{q}{n}", 1, 1_000, at_s=1_000, queue=q) for q in "AB" for n in range(8)]


def test_without_memory_only_the_present_counts() -> None:
    assert holding(a_scenario(remembered(), "1x8"), 1_000) == {"A": 4, "B": 4}


@pytest.mark.parametrize(
    ("half_life", "want"),
    {
        "on average A held 8: a quarter of its weight is left, 1.6 and 6.4": (
            100,
            {"A": 1, "B": 7},
        ),
        "on average it held 4: half is left, 2.667 and 5.333": (1_000, {"A": 2, "B": 6}),
        "it has hardly been noticed yet": (1_000_000, {"A": 4, "B": 4}),
    }.values(),
)
def test_past_usage_counts_against_a_queue(half_life: int, want: dict[str, int]) -> None:
    """Its weight is lessened by 2^-(average / steady share); the share of each is four GPUs. What is
    left over goes to B, which has used less."""
    found = holding(a_scenario(remembered(), "1x8"), 1_000, half_life_s=half_life)
    assert found == want


def test_memory_fades() -> None:
    late = [replace(each, job=replace(each.job, submit_ms=9_000_000)) for each in remembered()[1:]]
    scenario = a_scenario([remembered()[0], *late], "1x8")
    assert holding(scenario, 9_000, half_life_s=500) == {"A": 4, "B": 4}


# -- reasons and the rest --------------------------------------------------------------------------


def test_it_says_that_the_share_is_used_up() -> None:
    jobs = [traced(f"{q}{n}", 2, 100, queue=q) for q in "AB" for n in range(3)]
    scenario = replace(a_scenario(jobs, "1x8"), until_ms=0)
    controller = simulated(scenario, a_policy("fair")).controller
    assert controller.explain("A2").why is Why.SHARE_USED_UP
    lone = replace(a_scenario(jobs[:3], "1x4"), until_ms=0)
    controller = simulated(lone, a_policy("fair")).controller
    assert controller.explain("A2").why is Why.NOT_ENOUGH_FREE, "A has the cluster for itself"


def test_a_borrower_in_the_way_is_named() -> None:
    scenario = replace(a_scenario(borrowed(), "2x8"), until_ms=to_ms(200))
    reason = simulated(scenario, a_policy("fair")).controller.explain("b0")
    assert reason.why is Why.NOT_ENOUGH_FREE
    assert set(reason.held_by) == {"a0", "a1", "a2", "a3"}


def test_it_is_invariant_and_ends() -> None:
    drive = Drive(a_scenario(borrowed(), "2x8"), a_policy("fair", half_life_s=100))
    drive.run().everything_ended()
    assert finishes(result_of(drive.simulation))["b0"] is not None
