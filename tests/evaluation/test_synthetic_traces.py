"""The workloads of the papers' experiments are what the papers say of theirs."""

from __future__ import annotations

from collections import Counter

import pytest

from trainmaster.config.performance import perf_model_from
from trainmaster.evaluation import one_gpu_mix
from trainmaster.evaluation.score import Score
from trainmaster.evaluation.suite import Trial
from trainmaster.evaluation.suites import eight_models
from trainmaster.evaluation.suites import synthetic_traces as testbeds
from trainmaster.evaluation.suites.published import SUITE
from trainmaster.evaluation.suites.synthetic_traces import TRACE_MAKERS
from trainmaster.evaluation.trial import run_trial
from trainmaster.evaluation.workloads import cluster_of
from trainmaster.model.topology import parse_shorthand
from trainmaster.model.trace import TracedJob
from trainmaster.model.units import GIB, HOUR, SECOND
from trainmaster.perf.default_parameters import PAIRS
from trainmaster.sim.driver import arrival_span
from trainmaster.sim.metrics import load_of


def score(experiment: str, contender: str, conditions: str | None = None) -> Score:
    """What the experiment's first seed finds."""
    found = next(each for each in SUITE.experiments if each.name == experiment)
    trial = next(each for each in found.trials() if fits(each, contender, conditions))
    return run_trial(trial).score


def fits(trial: Trial, contender: str, conditions: str | None) -> bool:
    names = trial.conditions.name, trial.contender.label
    return names == (conditions or names[0], contender)


@pytest.mark.parametrize("name", TRACE_MAKERS)
def test_the_same_seed_gives_the_same_jobs(name: str) -> None:
    assert TRACE_MAKERS[name](64, 3) == TRACE_MAKERS[name](64, 3)


# -- Tiresias ----------------------------------------------------------------------------------------


def bin_of(traced: TracedJob) -> str:
    size = "small" if traced.job.demand.nominal.count <= 2 else "large"
    return f"{size}-{'short' if traced.service_ms <= 800 * SECOND else 'long'}"


def test_tiresias_480_jobs_lie_in_its_bins() -> None:
    jobs = testbeds.tiresias_480(60, 0).jobs
    assert Counter(bin_of(each) for each in jobs) == {
        "small-short": 305,
        "small-long": 60,
        "large-short": 79,
        "large-long": 36,
    }


def test_tiresias_jobs_are_of_ten_models_and_run_for_minutes_to_two_hours() -> None:
    jobs = testbeds.tiresias_480(60, 0).jobs
    assert len({each.job.model for each in jobs}) == 10
    assert min(each.service_ms for each in jobs) > 2 * 60 * SECOND
    assert max(each.service_ms for each in jobs) <= 2 * HOUR
    gap_s = arrival_span(jobs) / SECOND / (len(jobs) - 1)
    assert 25 < gap_s < 35


def test_tiresias_jobs_keep_60_gpus_busy() -> None:
    load = load_of(testbeds.tiresias_480(60, 0).jobs, 60)
    assert parse_shorthand(testbeds.TIRESIAS_CLUSTER).gpu_count == 60
    assert load is not None
    assert 0.8 < load < 1.5


# -- Gandiva -----------------------------------------------------------------------------------------


def test_gandiva_gives_six_equal_jobs_two_thirds_of_a_gpu_each() -> None:
    """An hour of work at two thirds of the speed takes one and a half; FIFO has two wait an hour."""
    jobs = testbeds.gandiva_six(4, 0).jobs
    assert [(each.job.submit_ms, each.service_ms) for each in jobs] == [(0, HOUR)] * 6
    sliced, fifo = score("gandiva-six", "gandiva"), score("gandiva-six", "fifo")
    assert sliced.mean_jct_s == pytest.approx(1.5 * 3_600, rel=0.02)
    assert fifo.mean_jct_s == pytest.approx(4 / 3 * 3_600)
    assert fifo.makespan_s == 2 * 3_600


# -- Big Brain ---------------------------------------------------------------------------------------


def test_big_brain_s_stream_keeps_two_gpus_busy_at_every_factor() -> None:
    jobs = testbeds.big_brain_stream(2, 0).jobs
    assert arrival_span(jobs) <= 30 * SECOND
    assert all(each.job.gpu_util_ppm == 250_000 for each in jobs)
    for factor in (1, 4):
        found = score("concurrency", f"concurrency {factor}", "linear law")
        assert found.queue_s is not None
        assert found.queue_s > 30


def test_process_time_grows_by_the_time_alone_for_each_job_more_under_the_linear_law_only() -> None:
    """A job lasts a second alone; beside the whole jobs each GPU carries half of a split one."""
    runs = {
        (law, factor): score("concurrency", f"concurrency {factor}", law).run_s or 0.0
        for law in ("linear law", "H200 law")
        for factor in (1, 4)
    }
    assert runs["linear law", 1] == pytest.approx(1 + 1, rel=0.05)
    assert runs["linear law", 4] == pytest.approx(4 + 1, rel=0.05)
    assert runs["H200 law", 4] < 2 * runs["H200 law", 1]


# -- elastic shares --------------------------------------------------------------------


def test_512_jobs_of_8_models_ask_512_gpus_for_one_and_a_half_times_what_they_have() -> None:
    jobs = eight_models.make_trace(512, 0).jobs
    load = load_of(jobs, 512)
    assert len(jobs) == 512
    assert {each.job.model for each in jobs} == {model.name for model in eight_models.MODELS}
    assert {model.kind for model in eight_models.MODELS} == {"CNN", "RNN", "GAN"}
    assert parse_shorthand(eight_models.CLUSTER).gpu_count == 512
    assert load is not None
    assert load == pytest.approx(1.5, rel=0.15)
    assert all(each.job.demand.min_count == 1 for each in jobs)


def test_the_models_curves_can_be_read_and_fall_short_of_linear() -> None:
    world = perf_model_from({"base": "ideal", "elastic": eight_models.curves()}, "curves")
    job = next(
        each.job for each in eight_models.make_trace(512, 0).jobs if each.job.model == "alexnet"
    )
    speedups = dict(world.speedups_of(job))
    assert 1_800_000 < speedups[2] < 2_000_000


# -- jobs that can share -----------------------------------------------------------------------------


def test_nine_of_ten_jobs_of_the_mix_want_one_gpu_and_say_what_they_need() -> None:
    jobs = one_gpu_mix.generate(2_000, 64, 0.9, 0).jobs
    ones = sum(each.job.demand.nominal.count == 1 for each in jobs)
    assert 0.88 < ones / len(jobs) < 0.96
    assert all(0 < each.job.demand.nominal.memory <= 8 * GIB for each in jobs)
    assert all(each.job.gpu_util_ppm for each in jobs)
    measured = {name for pair in PAIRS for name in pair}
    assert {each.job.model for each in jobs} <= measured


# -- Philly ------------------------------------------------------------------------------------------


def test_philly_s_delays_are_told_by_size() -> None:
    found = next(each for each in SUITE.experiments if each.name == "philly-delays")
    assert {each.policy for each in found.contenders} == {"philly", "fair"}
    assert cluster_of(found.workloads[0]).topology.gpu_count == 128
    philly = score("philly-delays", "philly")
    assert {each.size for each in philly.delays} >= {"1 GPU"}
    assert sum(each.fragmentation_s for each in philly.delays) > 0
    assert sum(each.fair_share_s for each in philly.delays) > 0
