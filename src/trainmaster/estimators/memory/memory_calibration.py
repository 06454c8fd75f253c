"""How good estimates of GPU memory were that were made before their jobs had run."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

from trainmaster.model.memory_estimate import MemoryCalibration, MemoryEstimate


def memory_calibration(ended: Iterable[tuple[MemoryEstimate, int]]) -> list[MemoryCalibration]:
    """Of jobs that have succeeded: what was expected of each when it started, and its peak on one GPU."""
    found: dict[tuple[str, bool], list[tuple[MemoryEstimate, int]]] = {}
    for estimate, peak in ended:
        found.setdefault((estimate.source.value, estimate.is_same), []).append((estimate, peak))
    return [
        MemoryCalibration(
            pairs[0][0].source,
            is_same,
            len(pairs),
            sum(each.low <= peak <= each.high for each, peak in pairs),
            sum(peak <= each.high for each, peak in pairs),
            median(abs(peak - each.expected) / peak for each, peak in pairs),
        )
        for (_, is_same), pairs in sorted(found.items(), key=lambda item: item[0], reverse=True)
    ]
