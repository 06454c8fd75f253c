"""Switching costs: a run lasts ten times what a switch was seen to cost, and no default thrashes."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from tests.builders import a_policy, a_scenario, costly, finishes, one, outcome_of, traced
from trainmaster.catalog import POLICIES
from trainmaster.core.policy import Policy
from trainmaster.model.job import Demand, Shape, gpus
from trainmaster.model.result import Result
from trainmaster.model.trace import TracedJob
from trainmaster.model.units import GIB, HOUR, SECOND
from trainmaster.perf.perf_model import DEFAULT, PerfModel
from trainmaster.sim.driver import Estimates, Simulation
from trainmaster.sim.metrics import result_of

SWITCH_S = 20
SLOW = costly(suspend_ms=8 * SECOND, resume_ms=12 * SECOND)
"""A switch takes 20 s, a first start nothing."""


def crowd(count: int, service_s: int, **kind: object) -> list[TracedJob]:
    """Jobs of about one length that come one by one, a second apart."""
    return [traced(f"j{n}", 1, service_s + 7 * n, at_s=n, **kind) for n in range(count)]  # type: ignore[arg-type]


def without_estimates(
    jobs: list[TracedJob], cluster: str, world: PerfModel, policy: Policy
) -> Result:
    """Policies are not told how long jobs take, unless they must know."""
    scenario = replace(
        a_scenario(jobs, cluster, world), estimates=Estimates(known=False), keep_stints=True
    )
    return outcome_of(scenario, policy)


def switching_share(result: Result) -> float:
    """Of the GPU time that jobs held, what was spent on switching."""
    held = sum(job.held for job in result.jobs) / (1000 * HOUR)
    assert result.summary.gpu_hours_wasted is not None
    return result.summary.gpu_hours_wasted / held


@pytest.mark.parametrize("name", POLICIES)
def test_no_policy_by_its_defaults_spends_a_tenth_of_the_gpus_on_switching(name: str) -> None:
    """Thirty jobs of two hours on four GPUs, a third of them elastic, with a gang among them."""
    elastic = gpus(1, minimum=1, maximum=2)
    jobs = crowd(20, 7_200)
    jobs += [traced(f"e{n}", elastic, 7_200, at_s=30 * n) for n in range(9)]
    jobs.append(traced("gang", 4, 3_600, at_s=600))
    result = without_estimates(jobs, "1x4", DEFAULT, a_policy(name))
    assert result.summary.finished == len(jobs)
    assert switching_share(result) < 0.1
    assert result.summary.preemptions < 1_000


TURNS: dict[str, dict[str, object]] = {
    "las": {},
    "gittins": {},
    "gandiva": {"packing": "off"},
    "tiresias-l": {"promote_knob": 1, "thresholds_gpu_s": 60},
    "tiresias-g": {"promote_knob": 1, "thresholds_gpu_s": 60},
}
"""Policies whose jobs of one length take turns; without the rule, within 60 s or sooner."""


@pytest.mark.parametrize("name", TURNS)
def test_a_run_lasts_ten_times_what_a_switch_was_seen_to_cost(name: str) -> None:
    """Time between two starts of a job is training, a suspension and a wait; stints include switches."""
    result = without_estimates(crowd(7, 3_000), "1x2", SLOW, a_policy(name, **TURNS[name]))
    stints = sorted(result.stints or (), key=lambda each: (each.job_id, each.start_ms))
    again = [
        each
        for before, each, after in zip(stints, stints[1:], stints[2:], strict=False)
        if before.job_id == each.job_id == after.job_id
    ]  # neither the first, before anything was seen, nor the last, which ends by itself
    assert again, "they take turns"
    assert all(each.end_ms - each.start_ms >= (10 * SWITCH_S) * SECOND for each in again)


def test_elastic_jobs_of_unknown_length_do_not_take_turns_in_seconds() -> None:
    """Without the rule `afs-l` preempts 1,142 times here."""
    elastic = gpus(1, minimum=1, maximum=2)
    jobs = [traced(f"j{n}", elastic, 3_000 + 7 * n, at_s=n) for n in range(7)]
    result = without_estimates(jobs, "1x2", SLOW, a_policy("afs-l"))
    assert 0 < result.summary.preemptions < 50


def test_the_quantum_is_doubled_until_it_is_long_enough() -> None:
    """20 s a switch and turns of 60 s: 240 s is the first doubling that holds 12 switches."""
    result = without_estimates(crowd(3, 3_000), "1x1", SLOW, a_policy("las"))
    starts = sorted(each.start_ms for each in result.stints or ())
    turns = {after - before for before, after in pairwise(starts[4:12])}
    assert turns == {240 * SECOND}


def test_where_switching_takes_no_time_turns_are_as_short_as_asked() -> None:
    """A frozen run is back after a tenth of a second: a quantum of five seconds stays one."""
    world = costly(can_freeze=True, start_ms=3_000, freeze_ms=50, thaw_ms=50)
    jobs = [traced(name, 1, 30) for name in "abc"]
    for name in ("las", "gandiva"):
        ends = finishes(outcome_of(a_scenario(jobs, "1x2", world), a_policy(name, quantum_s=5)))
        assert max(end or 0 for end in ends.values()) < 56, name


@pytest.mark.parametrize("name", ["las", "gandiva"])
def test_jobs_that_need_most_of_a_gpu_take_turns_by_freezing(name: str) -> None:
    """Three programs that cannot save, each with most of a GPU's memory; every fifth freeze fails."""
    world = costly(
        can_freeze=True,
        saves_on_demand=False,
        saves_ever=False,
        start_ms=3_000,
        freeze_ms=300,
        thaw_ms=200,
        refuse_every=5,
    )
    most = Demand(Shape(1, memory=10 * GIB), 1, 1)
    jobs = [traced(job, most, 60) for job in "abc"]
    simulation = Simulation(a_scenario(jobs, "1x1", world), a_policy(name, quantum_s=5))
    while simulation.step():
        pass
    accounts = simulation.ledger.accounts.values()
    assert [each.lost for each in accounts] == [0, 0, 0], "no work is done twice"
    starts = [each.start_ms or 0 for each in accounts]
    ends = [each.finish_ms or 0 for each in accounts]
    assert max(starts) < 30 * SECOND < min(ends), "they take turns"
    assert max(ends) < 1.15 * (3 * 60 + 9) * SECOND, (
        "a tenth of the time at most goes into switching"
    )


def test_a_gang_gets_its_turn_among_small_jobs() -> None:
    """Runs that may be preempted one by one would be replaced one by one."""
    jobs = [*crowd(16, 20_000), traced("gang", 4, 400, at_s=900)]
    gang = one(without_estimates(jobs, "1x4", DEFAULT, a_policy("las")), "gang")
    assert gang.start_ms is not None
    assert gang.start_ms < 2_400 * SECOND


@pytest.mark.parametrize("world", [costly(), SLOW], ids=["free", "slow"])
def test_las_skips_quanta_in_which_nothing_changes(world: PerfModel) -> None:
    """The first job has received ten hours, which the second never will: it runs for 500 quanta."""
    jobs = [traced("old", 1, 80_000), traced("new", 1, 30_000, at_s=36_000)]
    simulation = Simulation(a_scenario(jobs, "1x1", world), a_policy("las"))
    steps = 0
    while simulation.step():
        steps += 1
    assert one(result_of(simulation), "old").preemptions == 1
    assert steps < 20


def test_gandiva_skips_quanta_in_which_no_run_may_yield() -> None:
    simulation = Simulation(
        a_scenario(crowd(12, 20_000), "1x4", DEFAULT), a_policy("gandiva", packing="off")
    )
    steps = 0
    while simulation.step():
        steps += 1
    summary = result_of(simulation).summary
    assert summary.makespan_s is not None
    assert steps < summary.makespan_s / 60, "fewer than quanta"
