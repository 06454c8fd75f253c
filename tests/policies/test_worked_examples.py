"""The papers' own examples, and one test per policy that fails when its idea is switched off."""

from __future__ import annotations

import pytest

from tests.builders import (
    a_policy,
    a_scenario,
    costly,
    finishes,
    fraction,
    one,
    outcome_of,
    traced,
)
from tests.property.drive import Drive
from trainmaster.model import actions as a
from trainmaster.model.job import gpus
from trainmaster.model.trace import TracedJob
from trainmaster.model.units import SECOND
from trainmaster.sim.driver import Scenario


def figure_7() -> Scenario:
    """Tiresias (NSDI'19), Figure 7: two GPUs, three jobs at time 0, ties by index."""
    return a_scenario([traced("J1", 2, 2), traced("J2", 1, 8), traced("J3", 2, 6)], "1x2")


def run_order(drive: Drive, units: int) -> str:
    """Who ran in each second, as the orders say; one job at a time in these examples."""
    runs = ""
    found = []
    for second in range(units):
        for now, orders in drive.orders():
            for order in orders:
                if now == second * SECOND and isinstance(order, a.Launch):
                    runs = order.run.job.removeprefix("J")
        found.append(runs)
    return ",".join(found)


# -- worked examples -------------------------------------------------------------------------------


def test_srsf_on_figure_7() -> None:
    result = outcome_of(figure_7(), a_policy("srsf"))
    assert finishes(result) == {"J1": 2, "J2": 10, "J3": 16}
    assert result.summary.avg_jct_s == pytest.approx(28 / 3)


def test_two_dimensional_las_on_figure_7_in_its_exact_order() -> None:
    drive = Drive(figure_7(), a_policy("las", quantum_s=1)).run()
    assert run_order(drive, 16) == "1,2,3,2,1,2,3,2,2,3,2,2,3,2,3,3"
    result = outcome_of(figure_7(), a_policy("las", quantum_s=1))
    assert finishes(result) == {"J1": 5, "J2": 14, "J3": 16}
    assert result.summary.avg_jct_s == pytest.approx(35 / 3)


def test_discretised_las_on_figure_7() -> None:
    drive = Drive(figure_7(), a_policy("tiresias-l", thresholds_gpu_s=4)).run()
    assert run_order(drive, 16) == "1,1,2,2,2,2,3,3,2,2,2,2,3,3,3,3"
    result = outcome_of(figure_7(), a_policy("tiresias-l", thresholds_gpu_s=4))
    assert finishes(result) == {"J1": 2, "J2": 12, "J3": 16}
    assert result.summary.avg_jct_s == pytest.approx(10.0)


@pytest.mark.parametrize(("model", "start_s"), [("vgg16", 100), ("resnet50", 1)])
def test_with_pack_limit_04_vgg16_waits_for_a_node_and_resnet50_runs_spread(
    model: str, start_s: int
) -> None:
    jobs = [traced("a", 2, 100), traced("b", 2, 100), traced("new", 4, 50, at_s=1, model=model)]
    scenario = a_scenario(jobs, "n1[3] n2[5]")  # a goes to n1, b to n2: free are 1 and 3
    assert one(outcome_of(scenario, a_policy("tiresias-l")), "new").start_ms == start_s * SECOND


# -- each policy without its idea ------------------------------------------------------------------


def convoy() -> list[TracedJob]:
    """A wide job waits for a long one; two short narrow ones come later."""
    return [
        traced("long", 1, 100),
        traced("wide", 2, 10, at_s=1),
        traced("quick", 1, 5, at_s=2),
        traced("slow", 1, 200, at_s=3),
    ]


def test_fifo_is_strict_skip_overtakes_and_easy_overtakes_without_delaying_the_head() -> None:
    starts = {}
    for backfill in ("none", "skip", "easy"):
        result = outcome_of(a_scenario(convoy(), "1x2"), a_policy("fifo", backfill=backfill))
        starts[backfill] = {job.job_id: (job.start_ms or 0) // SECOND for job in result.jobs}
    assert starts["none"] == {"long": 0, "wide": 100, "quick": 110, "slow": 110}
    assert starts["skip"] == {"long": 0, "wide": 207, "quick": 2, "slow": 7}
    assert starts["easy"] == {"long": 0, "wide": 100, "quick": 2, "slow": 110}


def test_fifo_moldable_and_malleable_differ_from_rigid() -> None:
    soft = gpus(2, minimum=1, maximum=4)
    jobs = [traced("hard", 3, 10), traced("soft", soft, 30, at_s=1)]
    scenario = a_scenario(jobs, "1x4")
    ends = {
        elastic: finishes(outcome_of(scenario, a_policy("fifo", elastic=elastic)))["soft"]
        for elastic in ("rigid", "moldable", "malleable")
    }
    # rigid: waits until 10, runs 30; moldable: half speed from 1; malleable: twice nominal from 10.
    assert ends == {"rigid": 40, "moldable": 61, "malleable": 22.75}


def test_yarn_consolidates_where_fifo_spreads() -> None:
    jobs = [traced("a", 3, 100), traced("b", 3, 100), traced("gang", 2, 10, at_s=1)]
    scenario = a_scenario(jobs, "n1[4] n2[4]")
    assert one(outcome_of(scenario, a_policy("fifo")), "gang").start_ms == 1 * SECOND
    assert one(outcome_of(scenario, a_policy("yarn-cs")), "gang").start_ms == 100 * SECOND


def test_srtf_looks_at_time_and_srsf_at_time_times_size() -> None:
    jobs = [traced("wide", 4, 10), traced("narrow", 1, 20)]
    scenario = a_scenario(jobs, "1x4")
    assert finishes(outcome_of(scenario, a_policy("srtf"))) == {"wide": 10, "narrow": 30}
    assert finishes(outcome_of(scenario, a_policy("srsf"))) == {"wide": 30, "narrow": 20}


def test_srtf_preempts_where_fifo_waits() -> None:
    jobs = [traced("long", 1, 100), traced("short", 1, 1, at_s=10)]
    scenario = a_scenario(jobs, "1x1")
    assert finishes(outcome_of(scenario, a_policy("srtf"))) == {"long": 101, "short": 11}
    assert finishes(outcome_of(scenario, a_policy("fifo"))) == {"long": 100, "short": 101}


def test_las_shares_by_attained_service_every_quantum() -> None:
    jobs = [traced("a", 1, 10), traced("b", 1, 10)]
    scenario = a_scenario(jobs, "1x1")
    fine = outcome_of(scenario, a_policy("las", quantum_s=1))
    assert finishes(fine) == {"a": 19, "b": 20}
    assert fine.summary.preemptions == 18
    coarse = outcome_of(scenario, a_policy("las", quantum_s=60))
    assert finishes(coarse) == {"a": 10, "b": 20}


def test_tiresias_without_demotion_is_first_come_first_served() -> None:
    jobs = [traced("long", 1, 100), traced("short", 1, 1, at_s=10)]
    scenario = a_scenario(jobs, "1x1")
    demoting = outcome_of(scenario, a_policy("tiresias-l", thresholds_gpu_s=5))
    never = outcome_of(scenario, a_policy("tiresias-l", thresholds_gpu_s=10**9))
    assert finishes(demoting) == {"long": 101, "short": 11}
    assert finishes(never) == {"long": 100, "short": 101}


def test_tiresias_promotes_a_starved_job() -> None:
    """A demoted job waits behind a stream of newcomers until the knob lets it back."""
    stream = [traced(f"new{n:02}", 1, 4, at_s=4 * n + 4) for n in range(40)]
    scenario = a_scenario([traced("old", 1, 10), *stream], "1x1")
    starving = finishes(outcome_of(scenario, a_policy("tiresias-l", thresholds_gpu_s=4)))["old"]
    promoted = finishes(
        outcome_of(scenario, a_policy("tiresias-l", thresholds_gpu_s=4, promote_knob=2))
    )["old"]
    assert starving == 170, "after every newcomer"
    assert promoted is not None
    assert promoted < 60


def test_pack_limit_one_switches_the_skew_rule_off() -> None:
    jobs = [traced("a", 3, 100), traced("b", 3, 100), traced("vgg", 2, 10, at_s=1, model="vgg16")]
    scenario = a_scenario(jobs, "n1[4] n2[4]")
    assert one(outcome_of(scenario, a_policy("tiresias-l")), "vgg").start_ms == 100 * SECOND
    loose = outcome_of(scenario, a_policy("tiresias-l", pack_limit=1))
    assert one(loose, "vgg").start_ms == 1 * SECOND


@pytest.mark.parametrize("policy", ["srtf", "srsf", "las", "tiresias-l"])
def test_a_whole_gpu_job_of_better_rank_takes_the_gpu_of_fractions(policy: str) -> None:
    """The documented rule is one line for all: sort by rank, place one after another."""
    jobs = [
        traced("half", fraction(0.5), 100),
        traced("other", fraction(0.5), 100),
        traced("whole", 1, 1, at_s=50),
    ]
    options = {"thresholds_gpu_s": 5} if policy == "tiresias-l" else {}
    result = outcome_of(a_scenario(jobs, "1x1"), a_policy(policy, **options))
    assert finishes(result)["whole"] == 51


def test_preemption_costs_what_the_world_says() -> None:
    jobs = [traced("long", 1, 100), traced("short", 1, 1, at_s=10)]
    scenario = a_scenario(jobs, "1x1", costly(suspend_ms=5_000, resume_ms=25_000))
    assert finishes(outcome_of(scenario, a_policy("srtf"))) == {
        "long": 10 + 5 + 1 + 25 + 90,
        "short": 16,
    }
