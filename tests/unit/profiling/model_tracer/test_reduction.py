"""Scratch memory of sums on an H200, as its allocator's peaks showed it."""

from __future__ import annotations

import pytest

from trainmaster.model.units import MIB
from trainmaster.profiling.model_tracer.reduction import scratch_bytes


@pytest.mark.parametrize(
    ("rows", "columns", "scratch"),
    [(4096, 8192, 132 * MIB), (16384, 2048, 132 * MIB), (16384, 1024, 128 * MIB), (64, 8192, 0)],
)
def test_a_sum_over_rows_splits_each_column(rows: int, columns: int, scratch: int) -> None:
    assert scratch_bytes((rows, columns), (columns, 1), {0}) == scratch


def test_a_sum_along_rows_keeps_one_part_for_each_block() -> None:
    assert 0 < scratch_bytes((16, 1 << 24), (1 << 24, 1), {1}) < MIB


def test_nothing_to_sum_takes_nothing() -> None:
    assert scratch_bytes((8, 1), (1, 1), {1}) == 0
