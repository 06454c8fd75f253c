"""Predictions of gloo trainings from what one rank and all-reduces showed."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.gloo_predictions import links_of, rows
from trainmaster.estimators.interconnect import GB


def measured(ranks: int, step_s: float) -> dict[str, Any]:
    """All-reduces of 2 GB/s and 50 µs per hop, and one training."""
    hops, size = 2 * (ranks - 1), 26_214_400
    small = hops * 50e-6
    return {
        "all_reduce_s": {"4096": small, str(size): small + hops * size / ranks / 2e9}
        if hops
        else {},
        "models": {"m": {"step_s": step_s, "batch": 8, "parameter_bytes": 50_000_000}},
    }


BY_RANKS = {ranks: measured(ranks, 0.1 + 0.03 * (ranks - 1)) for ranks in (1, 2, 4, 8)}


def test_all_reduces_give_the_link() -> None:
    links = links_of(BY_RANKS)
    assert links.at("node").latency_us == pytest.approx(50, abs=1)
    assert links.at("node").bytes_per_s == pytest.approx(2 * GB, rel=1e-3)
    assert links.overlap_ppm == 0, "the exchange takes the cores that compute"


def test_a_row_is_corrected_by_fewer_ranks_and_never_by_itself() -> None:
    first, second, third = rows(BY_RANKS, "m", links_of(BY_RANKS))
    assert first[2] == first[3]
    for ranks, speed, before, after in (second, third):
        assert speed == pytest.approx(ranks * 8 / (0.1 + 0.03 * (ranks - 1)))
        assert abs(after - speed) < abs(before - speed)
