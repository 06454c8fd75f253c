"""How good estimates of memory were is counted by what they were made from."""

from __future__ import annotations

from trainmaster.estimators.memory.memory_calibration import memory_calibration
from trainmaster.model.memory_estimate import MemoryEstimate, MemorySource
from trainmaster.text.memory_estimates import calibration_words


def test_peaks_within_the_interval_and_not_above_its_top_are_counted() -> None:
    same = MemoryEstimate(90, 100, 110, MemorySource.LEARNED, 3, is_same=True)
    others = MemoryEstimate(50, 100, 150, MemorySource.LEARNED, 3)
    of_model = MemoryEstimate(90, 100, 110, MemorySource.STATIC)
    ended = [(same, 100), (same, 80), (same, 125), (others, 125), (of_model, 110)]
    rows = memory_calibration(ended)
    found = [
        (calibration_words(row), row.estimates, row.within, row.covered, row.median_error)
        for row in rows
    ]
    assert found == [
        ("its model", 1, 1, 1, 10 / 110),
        ("earlier runs with the same arguments", 3, 1, 2, 0.2),
        ("earlier runs with other arguments", 1, 1, 1, 0.2),
    ]
    assert memory_calibration([]) == []
