"""The largest batch that fits, by doubling and bisection."""

from __future__ import annotations

import pytest

from trainmaster.cli.support.memory_estimates import largest_batch


@pytest.mark.parametrize("first", [1, 3, 64, 500])
@pytest.mark.parametrize("most", [1, 2, 63, 64, 100, 199])
def test_a_small_batch_is_found_exactly_from_any_start(first: int, most: int) -> None:
    assert largest_batch(lambda batch: batch <= most, first) == most


def test_none_where_one_example_is_too_much() -> None:
    assert largest_batch(lambda batch: False, 8) is None


def test_the_largest_batch_is_found_to_a_hundredth_with_few_traces() -> None:
    """Each try traces a model."""
    tried: list[int] = []

    def fits(batch: int) -> bool:
        tried.append(batch)
        return batch <= 77_777

    found = largest_batch(fits, 1)
    assert found is not None
    assert 77_777 * 0.99 <= found <= 77_777
    assert len(tried) <= 25, "18 by doubling, 7 by bisection"
