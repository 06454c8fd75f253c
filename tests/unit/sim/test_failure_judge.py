"""What rules about failures save in the simulator: not retrying, pre-runs, blocked inputs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import a_policy, a_scenario, one, outcome_of, simulated, traced
from trainmaster.daemon.failure_table import built_in_table
from trainmaster.model.result import Result, Status
from trainmaster.model.trace import Outcome, TracedJob
from trainmaster.model.units import DAY, HOUR, SECOND
from trainmaster.perf.perf_model import IDEAL
from trainmaster.sim.failure_judge import PRERUN_MS, FailureRules

FAILING = replace(IDEAL, has_failures=True)


def broken(
    name: str,
    gpus: int,
    *,
    reason: str,
    attempts_s: tuple[int, ...] = (),
    last_s: int = 30,
    outcome: Outcome = Outcome.FAILED,
    **others: object,
) -> TracedJob:
    job = traced(name, gpus, last_s)
    count = len(attempts_s) + (outcome is Outcome.FAILED)
    return replace(
        job,
        job=replace(job.job, retries=max(2, len(attempts_s))),
        outcome=outcome,
        failed_attempts_ms=tuple(each * SECOND for each in attempts_s),
        failure_reasons=(reason,) * count,
        **others,
    )


def result_with(
    *jobs: TracedJob,
    cluster: str = "1x8",
    retries: bool = False,
    prerun_ms: int | None = None,
    blocks_inputs: bool = False,
    policy: str = "fifo",
) -> Result:
    rules = FailureRules(built_in_table(), retries, prerun_ms, blocks_inputs)
    scenario = replace(a_scenario(jobs, cluster, FAILING), failure_rules=rules)
    return outcome_of(scenario, a_policy(policy))


def lost_gpu_s(result: Result) -> float:
    return round(result.failures.report.gpu_hours * HOUR / SECOND, 3)


def test_every_attempt_of_the_trace_happens_without_rules():
    result = result_with(broken("a", 8, reason="syntax-error", attempts_s=(20, 40), last_s=30))
    assert lost_gpu_s(result) == 8 * (20 + 40 + 30)
    assert result.summary.gpu_hours_wasted * 3600 == pytest.approx(8 * 90)
    row = result.failures.report.reasons[0]
    assert (row.reason, row.blame, row.trials, row.jobs) == ("syntax-error", "user", 3, 1)
    assert one(result, "a").status is Status.FAILED


def test_what_fails_each_time_is_not_tried_again():
    job = broken("a", 8, reason="syntax-error", attempts_s=(20, 40), last_s=30)
    result = result_with(job, retries=True)
    assert lost_gpu_s(result) == 8 * 20
    assert (result.failures.effects.jobs_given_up, result.failures.effects.rules) == (1, ("retry",))
    assert result.failures.effects.jobs_given_up_in_vain == 0
    assert one(result, "a").finish_ms == 20 * SECOND


def test_a_fault_of_the_cluster_is_tried_again_and_the_job_passes():
    job = broken(
        *("a", 2), reason="mpi-error", attempts_s=(900,), last_s=60, outcome=Outcome.SUCCEEDED
    )
    result = result_with(job, retries=True)
    assert one(result, "a").status is Status.SUCCEEDED
    assert result.failures.effects.jobs_given_up == 0
    assert one(result, "a").finish_ms > 960 * SECOND, "a retry waits a moment"


def test_a_job_that_is_given_up_wrongly_is_counted():
    job = broken(
        *("a", 2), reason="syntax-error", attempts_s=(60,), last_s=60, outcome=Outcome.SUCCEEDED
    )
    result = result_with(job, retries=True)
    assert one(result, "a").status is Status.FAILED
    assert result.failures.effects.jobs_given_up_in_vain == 1


def test_a_broken_gang_costs_one_device_with_a_prerun():
    job = broken("a", 8, reason="syntax-error", attempts_s=(20, 40), last_s=30)
    result = result_with(job, prerun_ms=PRERUN_MS)
    assert lost_gpu_s(result) == 20 + 40 + 30
    assert one(result, "a").status is Status.FAILED
    assert result.failures.report.reasons[0].sizes == (3, 0, 0)
    assert lost_gpu_s(result_with(job, prerun_ms=PRERUN_MS, retries=True)) == 20


def test_a_prerun_does_not_show_what_comes_later_or_needs_the_gang():
    late = broken("late", 4, reason="syntax-error", last_s=300)
    gang = broken("gang", 4, reason="mpi-error", last_s=30)
    result = result_with(late, gang, prerun_ms=PRERUN_MS)
    assert lost_gpu_s(result) == 4 * 300 + 4 * 30
    assert result.failures.effects.prerun_gpu_hours * 3600 == pytest.approx(60 + 30)


def test_a_prerun_is_overhead_of_a_job_that_passes():
    result = result_with(traced("a", 4, 600), traced("one", 1, 600), prerun_ms=PRERUN_MS)
    a, alone = one(result, "a"), one(result, "one")
    assert a.finish_ms == 660 * SECOND
    assert a.queue_ms == 60 * SECOND, "it starts when it starts on all its devices"
    assert a.held == (4 * 600 + 60) * SECOND * 1000
    assert alone.finish_ms == 600 * SECOND, "there is nothing to try on fewer devices"
    assert result.summary.gpu_hours_wasted * 3600 == pytest.approx(60)
    assert result.failures.report.trials == 0


@pytest.mark.parametrize("policy", ["trainmaster", "tiresias-l", "themis", "gandiva", "philly"])
def test_preruns_and_retries_end_under_every_kind_of_policy(policy):
    jobs = [
        broken(f"j{n}", 1 + n % 5, reason=reason, attempts_s=(20, 400), last_s=50 + 40 * n)
        for n, reason in enumerate(
            ("syntax-error", "mpi-error", "unknown", "host-out-of-memory") * 4
        )
    ]
    jobs += [traced(f"p{n}", 1 + n % 4, 200 * n + 10) for n in range(8)]
    rules = FailureRules(built_in_table(), retries=True, prerun_ms=PRERUN_MS, blocks_inputs=True)
    scenario = replace(a_scenario(jobs, "2x4", FAILING), failure_rules=rules)
    simulation = simulated(scenario, a_policy(policy))
    assert all(account.finish_ms is not None for account in simulation.ledger.accounts.values())
    assert not any(simulation.ledger.waiting.values()), "the books of waiting jobs close"
    assert simulation.ledger.queued == 0


def on_one_input(count: int, every_s: int) -> list[TracedJob]:
    """Jobs of as many users, submitted one after another, that all fail on one input."""
    return [
        replace(
            broken(f"j{n}", 1, reason="incorrect-input", last_s=100, bad_input="/data/x"),
            job=replace(traced(f"j{n}", 1, 100, at_s=every_s * n).job, user=f"u{n}"),
        )
        for n in range(count)
    ]


def test_jobs_are_not_started_on_an_input_that_failed_in_three():
    jobs = on_one_input(8, every_s=50)
    jobs.append(replace(jobs[-1], job=replace(jobs[-1].job, id="other"), bad_input="/data/y"))
    result = result_with(*jobs, cluster="1x1", blocks_inputs=True)
    effects = result.failures.effects
    assert (effects.inputs_blocked, effects.jobs_set_aside) == (1, 5)
    assert result.failures.report.trials == 4
    assert {row.name: row.trials for row in result.failures.report.inputs} == {
        "/data/x": 3,
        "/data/y": 1,
    }
    assert all(one(result, f"j{n}").status is Status.FAILED for n in range(8))
    assert one(result, "j7").held == 0


@pytest.mark.parametrize(("days", "set_aside"), [(3, 1), (4, 0)])
def test_failures_on_an_input_count_for_a_week(days: int, set_aside: int):
    jobs = on_one_input(4, every_s=days * DAY // SECOND)
    effects = result_with(*jobs, cluster="1x1", blocks_inputs=True).failures.effects
    assert (effects.inputs_blocked, effects.jobs_set_aside) == (set_aside, set_aside)


def test_a_result_has_no_table_unless_it_is_asked_for():
    scenario = a_scenario([broken("a", 1, reason="syntax-error")], "1x1", FAILING)
    assert outcome_of(scenario, a_policy("fifo")).failures is None
