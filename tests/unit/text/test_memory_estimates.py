"""Sentences on estimates of memory."""

from __future__ import annotations

import pytest

from trainmaster.model.memory_estimate import MemoryEstimate, MemorySource
from trainmaster.model.units import GIB
from trainmaster.text.memory_estimates import memory_sentence


@pytest.mark.parametrize(
    ("source", "runs", "is_same", "words"),
    [
        (MemorySource.MEASURED, 0, False, "what it has used so far"),
        (
            MemorySource.MEASURED,
            1,
            False,
            "what another run with the same arguments has used so far",
        ),
        (MemorySource.LEARNED, 1, True, "1 earlier run with the same arguments"),
        (MemorySource.LEARNED, 3, False, "3 earlier runs with other arguments"),
        (MemorySource.STATIC, 0, False, "its model, without a GPU"),
    ],
)
def test_what_is_expected_and_judging_by_what(
    source: MemorySource, runs: int, is_same: bool, words: str
) -> None:
    estimate = MemoryEstimate(12 * GIB, 13 * GIB, 14 * GIB, source, runs, is_same)
    mixed = MemoryEstimate(GIB // 2, GIB, 2 * GIB, source, runs, is_same)
    assert "need 512 MiB to 2.0 GiB on each GPU" in memory_sentence(mixed, 0)
    said = f"It is expected to need 12.0 to 14.0 GiB on each GPU, judging by {words}"
    assert memory_sentence(estimate, 0) == f"{said}."
    assert memory_sentence(estimate, 15 * GIB) == f"{said}; 15.0 GiB is reserved."
