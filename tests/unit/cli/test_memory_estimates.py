"""The largest batch that fits, by doubling and bisection."""

from __future__ import annotations

import pytest

from trainmaster.cli.support.memory_estimates import largest_batch


@pytest.mark.parametrize("first", [1, 3, 64, 500])
@pytest.mark.parametrize("most", [1, 2, 63, 64, 100, 999])
def test_the_largest_that_fits_is_found_from_any_start(first: int, most: int) -> None:
    assert largest_batch(lambda batch: batch <= most, first) == most


def test_none_where_one_example_is_too_much() -> None:
    assert largest_batch(lambda batch: False, 8) is None
