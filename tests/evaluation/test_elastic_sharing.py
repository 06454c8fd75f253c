"""Elastic shares against static ones, in small: 64 jobs of 8 models on 64 GPUs (benchmarks has 512)."""

from __future__ import annotations

import pytest

from benchmarks.elastic_sharing import ALONE, Found, curves, run
from trainmaster.evaluation.suites.eight_models import MODELS, trace
from trainmaster.perf.perf_model import IDEAL, PerfModel

POLICIES = ("fifo", "max-min", "afs-l")


def found(world: PerfModel, seed: int) -> dict[str, Found]:
    jobs = trace(64, 64, seed, largest=16)
    return {name: run(jobs, "16x4", curves(world), name, {}, seed) for name in POLICIES}


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
    assert fair.mean_jct_s < static.mean_jct_s
    assert fair.makespan_s < static.makespan_s
    assert afs.mean_jct_s < static.mean_jct_s
