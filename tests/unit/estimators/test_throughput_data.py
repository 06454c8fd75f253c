"""Throughput estimation on measurements that nobody here made; skipped where they are not at hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.estimation import after_learning, curve_step, errors, fit_links
from benchmarks.published_steps import adaptdl

DATA = Path(__file__).parents[4] / "shared" / "data" / "adaptdl"
STRIDE = 7
"""Every so many-th point: enough to judge by, and quick."""


@pytest.mark.skipif(not DATA.is_dir(), reason="AdaptDL's measurements are not at ../shared/data")
def test_a_predicted_step_beats_scaling_laws_and_learning_beats_a_predicted_step() -> None:
    bed = adaptdl(DATA)
    links = fit_links(bed.of(bed.teacher)[::STRIDE])
    linear, curve, before, after = [], [], [], []
    for model in bed.models():
        if model == bed.teacher:
            continue
        points = bed.of(model)[::STRIDE]
        linear.append(errors(points, lambda point: point.alone_ns).mean)
        curve.append(errors(points, curve_step).mean)
        before.append(errors(points, lambda point: point.predicted(links)).mean)
        learned = after_learning(points, links, seed=0)[1:]
        after.append(sum(learned) / len(learned))
    assert sum(linear) > sum(curve) > 2 * sum(before)
    assert sum(before) > 1.3 * sum(after)
