"""Elastic shares against static ones, in small: 64 jobs of 8 models on 64 GPUs (benchmarks has 512)."""

from __future__ import annotations

import pytest

from benchmarks.elastic_sharing import ALONE, curves, run
from trainmaster.evaluation.suites.eight_models import MODELS, trace
from trainmaster.model.result import Summary
from trainmaster.perf.perf_model import IDEAL, PerfModel

POLICIES = ("fifo", "max-min", "afs-l")


def found(world: PerfModel, seed: int) -> dict[str, Summary]:
    jobs = trace(64, 64, seed, largest=16)
    return {name: run(jobs, "16x4", curves(world), name, {})[0] for name in POLICIES}


def known(seconds: float | None) -> float:
    assert seconds is not None, "a job did not end"
    return seconds


def test_there_are_eight_models_of_three_kinds() -> None:
    assert len(MODELS) == 8
    assert {model.kind for model in MODELS} == {"CNN", "RNN", "GAN"}


@pytest.mark.parametrize("world", [IDEAL, ALONE], ids=["ideal", "switching and spans cost"])
@pytest.mark.parametrize("seed", [0, 1])
def test_dynamic_shares_beat_static_ones_in_mean_jct_and_makespan(
    world: PerfModel, seed: int
) -> None:
    """AFS-L aims at the mean alone: it lets the longest jobs wait, so that they end last."""
    got = found(world, seed)
    static, fair, afs = got["fifo"], got["max-min"], got["afs-l"]
    assert 0 < known(fair.avg_jct_s) < known(static.avg_jct_s)
    assert 0 < known(fair.makespan_s) < known(static.makespan_s)
    assert 0 < known(afs.avg_jct_s) < known(static.avg_jct_s)
