"""The generator follows the statistics of Alibaba's trace, meets its load, and repeats itself."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from trainmaster.model.trace import Outcome, Trace
from trainmaster.model.units import WHOLE
from trainmaster.traces import alibaba_like

JOBS, GPUS, LOAD = 30_000, 64, 0.9


@pytest.fixture(scope="module")
def trace() -> Trace:
    return alibaba_like.generate(JOBS, GPUS, LOAD, seed=3)


def test_sizes_and_ends_are_those_of_the_trace(trace: Trace) -> None:
    sizes = Counter(each.job.demand.nominal.total_share for each in trace.jobs)
    pods = sum(count for _, count in alibaba_like.SHARES)
    for share, count in alibaba_like.SHARES:
        assert sizes[share] / JOBS == pytest.approx(count / pods, abs=0.01)
    several = [each for each in trace.jobs if each.job.demand.nominal.total_share > WHOLE]
    assert all(each.job.demand.nominal.share == WHOLE for each in several)
    one = [each for each in trace.jobs if each.job.demand.nominal.total_share == WHOLE]
    failed = sum(each.outcome is Outcome.FAILED for each in one) / len(one)
    assert failed == pytest.approx(652 / 3556, abs=0.01)


def test_run_times_pass_through_its_quantiles(trace: Trace) -> None:
    parts = [e for e in trace.jobs if e.job.demand.nominal.total_share < WHOLE]
    minutes = np.array([each.service_ms / 60_000 for each in parts])
    for part, point in zip(alibaba_like.PARTS, alibaba_like.MINUTES["part"], strict=True):
        assert np.mean(minutes <= point + 1 / 120) == pytest.approx(part, abs=0.015)


def test_it_meets_its_load_and_repeats_itself(trace: Trace) -> None:
    held = sum(e.service_ms * e.job.demand.nominal.total_share for e in trace.jobs)
    span = trace.jobs[-1].job.submit_ms
    assert held / WHOLE / GPUS / span == pytest.approx(LOAD, abs=1e-6)
    assert alibaba_like.generate(JOBS, GPUS, LOAD, seed=3) == trace
    small = alibaba_like.generate(200, 1, 0.5, seed=1)
    assert max(e.job.demand.nominal.total_share for e in small.jobs) <= WHOLE
