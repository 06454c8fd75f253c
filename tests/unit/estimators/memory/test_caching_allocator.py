"""The allocator's constants and rules, by the worked examples of its documentation."""

from __future__ import annotations

import pytest

from trainmaster.estimators.memory.caching_allocator import (
    CachingAllocator,
    block_bytes,
    segment_bytes,
)
from trainmaster.model.units import MIB


@pytest.mark.parametrize(("request_", "block"), [(1, 512), (512, 512), (513, 1024)])
def test_requests_are_rounded_to_512_bytes(request_: int, block: int) -> None:
    assert block_bytes(request_) == block


@pytest.mark.parametrize(
    ("request_", "segment"),
    [
        (MIB, 2 * MIB),
        (MIB + 1, 20 * MIB),
        (10 * MIB, 10 * MIB),
        (10 * MIB + 1, 12 * MIB),
        (25_000_000, 25_165_824),
    ],
)
def test_segments_by_size_of_the_request(request_: int, segment: int) -> None:
    assert segment_bytes(request_) == segment


def test_small_requests_share_a_segment() -> None:
    allocator = CachingAllocator()
    for name in range(2):
        allocator.allocate(name, MIB)
    assert allocator.reserved == 2 * MIB
    allocator.allocate(2, 1)
    assert allocator.reserved == 4 * MIB


def test_a_block_of_a_large_segment_is_split_if_more_than_1_mib_is_left() -> None:
    allocator = CachingAllocator()
    allocator.allocate(1, 12 * MIB)
    allocator.free(1)
    allocator.allocate(2, 11 * MIB)
    assert allocator.allocated == 12 * MIB
    allocator.free(2)
    allocator.allocate(3, 11 * MIB - 512)
    assert allocator.allocated == 11 * MIB - 512


def test_free_neighbours_are_joined_and_used_again() -> None:
    allocator = CachingAllocator()
    for name in (1, 2, 3, 4):
        allocator.allocate(name, 5 * MIB)
    assert allocator.reserved == 20 * MIB
    for name in (1, 3, 2):
        allocator.free(name)
    allocator.allocate(5, 15 * MIB)
    assert (allocator.reserved, allocator.allocated) == (20 * MIB, 20 * MIB)


def test_the_smallest_free_block_that_fits_is_taken() -> None:
    allocator = CachingAllocator()
    allocator.allocate(1, 40 * MIB)
    allocator.allocate(2, 12 * MIB)
    allocator.free(1)
    allocator.free(2)
    allocator.allocate(3, 12 * MIB)
    allocator.allocate(4, 40 * MIB)
    assert allocator.reserved == 52 * MIB


def test_fragments_that_do_not_fit_cost_a_new_segment() -> None:
    allocator = CachingAllocator()
    for name in (1, 2, 3, 4):
        allocator.allocate(name, 5 * MIB)
    allocator.free(1)
    allocator.free(3)
    allocator.allocate(5, 10 * MIB)
    assert allocator.reserved == 30 * MIB


def test_a_tensor_of_no_bytes_takes_nothing() -> None:
    allocator = CachingAllocator()
    allocator.allocate(1, 0)
    allocator.free(1)
    assert (allocator.reserved, allocator.peak_allocated) == (0, 0)
