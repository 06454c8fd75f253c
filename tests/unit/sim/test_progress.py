"""Reports of progress: synthetic losses that converge where the work ends, and when they come."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import a_policy, a_scenario, at, traced
from tests.property.drive import Drive
from trainmaster.estimators.convergence import informative_samples, total_work
from trainmaster.model import events as e
from trainmaster.model.job import gpus
from trainmaster.model.progress import Sample
from trainmaster.model.trace import TracedJob
from trainmaster.model.units import NOMINAL, SECOND
from trainmaster.sim.driver import Estimates
from trainmaster.sim.progress import EPOCHS, MEASURING_ERROR, ProgressReports, training_of

SOFT = gpus(1, minimum=1, maximum=4)
JOB = traced("a", SOFT, 3_000)


def samples_of(job: TracedJob, error: float = 0.0, until: float = 0.9) -> list[Sample]:
    """Thirty reports up to a part of its life, on one GPU."""
    reports = ProgressReports(10 * SECOND, error, seed=0)
    needed = job.service_ms * NOMINAL
    found = []
    for n in range(1, 31):
        work = round(needed * until * n / 30)
        running = [(("a", 1), job, work, 1, NOMINAL)]
        (fact,) = reports.facts_at(n * 10 * SECOND, running)  # type: ignore[arg-type]
        found.append(fact.sample)  # type: ignore[union-attr]
    return found


@pytest.mark.parametrize("name", ["a", "b", "c", "d", "e"])
@pytest.mark.parametrize("service_s", [600, 3_000, 86_400])
def test_training_converges_where_the_work_ends(name: str, service_s: int) -> None:
    job = traced(name, SOFT, service_s)
    training = training_of(job, seed=3)
    epochs = training.steps / training.epoch_steps
    assert EPOCHS[0] <= epochs <= 1.1 * EPOCHS[1]
    assert training.loss.converges_at() == pytest.approx(epochs)
    assert training.step_at(job.service_ms * NOMINAL) == training.steps


def test_steps_are_the_iterations_of_the_trace_or_seconds() -> None:
    assert training_of(JOB, 0).steps == 3_000
    declared = replace(JOB, job=replace(JOB.job, iterations=120_000))
    assert training_of(declared, 0).steps == 120_000
    assert training_of(traced("z", SOFT, 1), 0).steps == EPOCHS[1]


def test_jobs_and_seeds_differ_and_nothing_else_does() -> None:
    assert training_of(JOB, 0) == training_of(JOB, 0)
    assert training_of(JOB, 0).loss != training_of(JOB, 1).loss
    assert training_of(JOB, 0).loss != training_of(traced("b", SOFT, 3_000), 0).loss


def test_exact_reports_predict_the_end() -> None:
    assert total_work(samples_of(JOB, until=0.3)) == pytest.approx(3_000e3 * NOMINAL, rel=0.001)


def test_noisy_reports_are_off_and_still_predict_it() -> None:
    exact, noisy = samples_of(JOB), samples_of(JOB, error=0.02)
    ratios = [one.loss_ppm / other.loss_ppm for one, other in zip(noisy, exact, strict=True)]
    assert 0.98 <= min(ratios) < 0.99 < 1.01 < max(ratios) <= 1.02
    assert len({each.speed_ppm for each in noisy}) == len(noisy)
    assert total_work(noisy) == pytest.approx(3_000e3 * NOMINAL, rel=0.15)


def test_steps_done_again_count_once() -> None:
    """It fell back to a checkpoint: reports of lost work say nothing."""
    samples = samples_of(JOB)
    assert informative_samples([*samples, *samples[10:]]) == informative_samples(samples)
    again = informative_samples([*samples, samples[10]])
    assert [each.step for each in again] == sorted(each.step for each in again)
    assert again[-1] == samples[10]


def reports(drive: Drive) -> list[tuple[int, e.RunProgressed]]:
    return [
        (step.now, fact)
        for step in drive.steps
        for fact in step.events
        if isinstance(fact, e.RunProgressed)
    ]


def test_elastic_runs_report_at_whole_multiples() -> None:
    jobs = [traced("soft", SOFT, 100, at_s=3), traced("hard", 1, 100)]
    drive = Drive(a_scenario(jobs, "1x8"), a_policy("optimus", interval_s=10)).run()
    found = reports(drive)
    assert {fact.run.job for _, fact in found} == {"soft"}
    assert [now for now, _ in found] == [10_000, 20_000]
    first = found[0][1].sample
    assert (first.gpus, first.speed_ppm) == (4, 4 * NOMINAL)
    assert first.work == 7_000 * 4 * NOMINAL
    assert first.step == 28


def test_runs_report_only_if_the_policy_asks() -> None:
    scenario = a_scenario([traced("soft", SOFT, 100)], "1x4")
    for policy in (a_policy("fifo", elastic="malleable"), a_policy("optimus", learn="given")):
        drive = Drive(scenario, policy)
        assert drive.simulation.reports is None
        assert reports(drive.run()) == []


def test_rigid_jobs_cost_nothing() -> None:
    drive = Drive(a_scenario([traced("hard", 1, 10_000)], "1x4"), a_policy("optimus")).run()
    assert drive.simulation.reports is None
    assert len(drive.steps) == 4, "submitted, started, one look at the end of the interval, ended"


def test_waiting_forever_makes_no_reports() -> None:
    """Its node has gone for good: nothing runs, so nothing is due."""
    scenario = a_scenario([traced("soft", SOFT, 100)], "1x4", node_changes=(at(15, e.NodeLeft(0)),))
    drive = Drive(scenario, a_policy("optimus", interval_s=10), checked=False).run()
    assert [now for now, _ in reports(drive)] == [10_000]
    assert drive.simulation.stuck() == ["soft"]
    assert drive.steps[-1].now <= 20_000


@pytest.mark.parametrize(
    ("estimates", "error"),
    [(Estimates(), 0.0), (Estimates(error=0.3), 0.3), (Estimates(known=False), MEASURING_ERROR)],
)
def test_the_error_follows_the_estimates(estimates: Estimates, error: float) -> None:
    scenario = replace(a_scenario([JOB], "1x4"), estimates=estimates)
    made = Drive(scenario, a_policy("optimus")).simulation.reports
    assert made is not None
    assert made.error == error
