"""One trial by hand: which jobs are measured, what is counted, and how a contender is tuned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.evaluation.builders import IDEAL, generated, job, trace, trial
from trainmaster.evaluation import trial as trials
from trainmaster.evaluation.score import Score
from trainmaster.evaluation.scoring import score_of
from trainmaster.evaluation.suite import Conditions, Contender, Generated, PolicySettings, Workload
from trainmaster.evaluation.trial import TrialError, empty_scenario, run_trial, simulate
from trainmaster.evaluation.workloads import MeasurementWindow, stream_of
from trainmaster.model.trace import TracedJob
from trainmaster.model.units import SECOND
from trainmaster.policy_files import policy_with
from trainmaster.sim.driver import Scenario

WORKLOAD = Workload("hand", Generated(1, 1), "1x2")


def scored(jobs: Sequence[TracedJob], window: MeasurementWindow, policy: str = "fifo") -> Score:
    scenario = empty_scenario(WORKLOAD, IDEAL, 0)
    simulation = simulate(scenario, policy_with(policy, {}), jobs, window.measured(jobs))
    return score_of(simulation, window, None, 0)


def window(from_s: float, until_s: float) -> MeasurementWindow:
    return MeasurementWindow(round(from_s * SECOND), round(until_s * SECOND))


def test_only_jobs_of_the_window_are_measured_and_arrivals_go_on() -> None:
    jobs = trace(
        job("early", 0, 2, 1_000),
        job("a", 200, 2, 700),  # waits until 1,000, ends at 1,700
        job("b", 300, 1, 600),  # waits until 1,700, ends at 2,300
        job("late", 400, 1, 90_000),
        job("later", 5_000, 1, 10),
    ).jobs
    score = scored(jobs, window(200, 300))
    assert score.jobs == 2
    assert score.mean_jct_s == pytest.approx((1_500 + 2_000) / 2)
    assert score.floor_s == pytest.approx(650)
    assert score.excess_s == pytest.approx((800 + 1_400) / 2)
    assert score.queue_s == pytest.approx((800 + 1_400) / 2)
    assert score.makespan_s == pytest.approx(2_300)
    assert score.max_s == pytest.approx(2_000)
    assert score.std_s == pytest.approx(250)
    assert (score.unfinished, score.after_arrivals) == (0, 0)
    # 1,000 x 2 + 700 x 2 + 600 + 600 of the late one, in 2,300 s of 2 GPUs: it stops there
    assert score.gpu_util == pytest.approx(4_600 / 4_600)


def test_load_is_that_of_the_whole_stream_and_the_window_has_its_own() -> None:
    jobs = trace(job("a", 0, 2, 100), job("b", 500, 1, 300), job("c", 1_000, 1, 500)).jobs
    score = scored(jobs, window(500, 1_000))
    assert score.load == pytest.approx(1_000 / (2 * 1_000))
    assert score.window_load == pytest.approx(800 / (2 * 500))
    assert not score.is_transient


def test_load_of_one_and_more_is_transient() -> None:
    jobs = trace(job("a", 0, 2, 100), job("b", 100, 1, 10)).jobs
    score = scored(jobs, window(0, 100))
    assert score.load == pytest.approx(1.05)
    assert score.is_transient
    assert score.after_arrivals == 1


def test_rho_counts_no_service_below_ten_minutes() -> None:
    jobs = trace(job("short", 0, 1, 60), job("long", 0, 1, 6_000), job("third", 0, 2, 600)).jobs
    score = scored(jobs, window(0, 0))
    # short: alone on its GPU, 60 s / 600. long: 6,000 / 6,000. third: it waits for long: 6,600 s;
    # its N is (60 x 3 + 5,940 x 2 + 600 x 1) / 6,600, of which it is entitled to 2 x N / 2.
    crowd = (60 * 3 + 5_940 * 2 + 600) / 6_600
    assert score.rho_max == pytest.approx(6_600 / (600 * crowd), abs=1e-6)
    assert score.rho_over_1 == pytest.approx(1 / 3, abs=1e-6)


def test_jobs_that_never_fit_are_counted_and_left_out() -> None:
    jobs = trace(job("a", 0, 1, 10), job("huge", 5, 8, 10), job("b", 10, 1, 10)).jobs
    score = scored(jobs, window(0, 10))
    assert (score.jobs, score.rejected) == (2, 1)
    assert score.mean_jct_s == pytest.approx(10)


def test_killed_and_failed_jobs_count_and_passed_ones_also_apart() -> None:
    conditions = Conditions("default", "default")
    score = run_trial(trial(workload=generated(200), conditions=conditions)).score
    assert score.mean_jct_s is not None
    assert score.passed_jct_s is not None
    assert score.passed_jct_s != score.mean_jct_s
    assert score.gpu_hours_wasted > 0
    ideal = run_trial(trial(workload=generated(200))).score
    assert ideal.passed_jct_s == ideal.mean_jct_s


def test_every_contender_meets_the_same_jobs() -> None:
    found = [
        run_trial(trial(Contender(name, name), seed=3)).score for name in ("fifo", "las", "srsf")
    ]
    assert len({(each.jobs, each.load, each.floor_s) for each in found}) == 1
    assert len({each.mean_jct_s for each in found}) == 3


def test_a_trial_repeats_itself() -> None:
    one = trial(Contender("las", "las"), conditions=Conditions("default", estimates="noisy:0.3"))
    assert run_trial(one).score == run_trial(one).score


def test_a_policy_that_raises_spoils_its_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    policy: Any = policy_with("fifo", {})

    def plan(*_: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(policy, "plan", plan, raising=False)
    jobs = trace(job("a", 0, 1, 10)).jobs
    with pytest.raises(TrialError, match=r"fifo raised an error: .*oops"):
        simulate(empty_scenario(WORKLOAD, IDEAL, 0), policy, jobs, jobs)


# -- tuning ------------------------------------------------------------------------------------------

THRESHOLDS = ({"thresholds_gpu_s": "1000000"}, {"thresholds_gpu_s": "100"})
TUNED = Contender("tuned", "tiresias-l", grid=THRESHOLDS)


def test_the_setting_with_the_least_excess_on_the_prefix_wins() -> None:
    prefix = trace(job("long", 0, 2, 5_000), job("short", 60, 2, 50)).jobs
    scenario = empty_scenario(WORKLOAD, IDEAL, 0)
    assert trials.tuned(TUNED, scenario, prefix) == {"thresholds_gpu_s": "100"}


def test_of_equal_settings_the_first_wins() -> None:
    prefix = trace(job("alone", 0, 1, 10)).jobs
    assert trials.tuned(TUNED, empty_scenario(WORKLOAD, IDEAL, 0), prefix) == THRESHOLDS[0]


def test_tuning_sees_the_jobs_before_the_measured_ones_and_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[str] = []

    def watch(
        contender: Contender, scenario: Scenario, prefix: Sequence[TracedJob]
    ) -> PolicySettings:
        seen.extend(each.job.id for each in prefix)
        return contender.grid[1]

    monkeypatch.setattr("trainmaster.evaluation.trial.tuned", watch)
    workload = generated(100)
    score = run_trial(trial(TUNED, workload)).score
    stream = stream_of(workload, 8, 0, None)
    measured = {each.job.id for each in stream.window.measured(stream.trace.jobs)}
    assert seen
    assert score.tuning_jobs == len(seen)
    assert not measured.intersection(seen)
    first = min(each.job.submit_ms for each in stream.trace.jobs if each.job.id in measured)
    assert all(each.job.submit_ms < first for each in stream.trace.jobs if each.job.id in set(seen))
    assert score.chosen == THRESHOLDS[1]


def test_the_chosen_setting_is_the_one_that_is_measured() -> None:
    tuned_score = run_trial(trial(TUNED, generated(100))).score
    assert tuned_score.chosen is not None
    fixed = Contender("fixed", "tiresias-l", settings=tuned_score.chosen)
    assert run_trial(trial(fixed, generated(100))).score.excess_s == tuned_score.excess_s


def test_run_times_count_from_the_first_start_and_bins_go_by_size_and_length() -> None:
    jobs = trace(
        job("a", 0, 1, 100),
        job("b", 0, 1, 1_000),
        job("c", 0, 2, 300),  # waits until 1,000
        job("d", 10, 1, 100),  # behind it, until 1,300
    ).jobs
    score = scored(jobs, window(0, 10))
    assert (score.run_s, score.run_max_s) == (pytest.approx(375), 1_000)
    assert score.run_std_s == pytest.approx(136_875**0.5)
    assert [(each.label, each.jobs, each.mean_jct_s, each.p95_s) for each in score.bins] == [
        ("small-short", 3, pytest.approx((100 + 1_300 + 1_390) / 3), 1_390),
        ("small-long", 1, 1_000, 1_000),
    ]
