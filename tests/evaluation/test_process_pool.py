"""Processes that run trials do not grow with every one of them."""

from __future__ import annotations

import gc
from weakref import WeakSet

from trainmaster.evaluation.process_pool import SWEEPING, Broom, spread


class Ring:
    """Something that only a search for cycles can free."""

    def __init__(self) -> None:
        self.itself = self


LEFT: WeakSet[Ring] = WeakSet()


def leave_a_ring(piece: int) -> int:
    """Leaves a ring among the old things, as a simulation does; how many earlier ones are there?"""
    before = len(LEFT)
    LEFT.add(Ring())
    gc.freeze()
    gc.unfreeze()
    return before


def test_what_a_piece_leaves_behind_is_gone_when_the_next_begins() -> None:
    assert [done.result for done in spread(leave_a_ring, [0, 1], 1)] == [0, 0]


def test_freeing_takes_a_small_part_of_the_time() -> None:
    time, sweeps = [0.0], [0]

    def collect() -> None:
        time[0] += 1.0
        sweeps[0] += 1

    broom = Broom(collect, lambda: time[0])
    for _ in range(1_000):
        time[0] += 1.0
        broom.sweep()
    assert 0.8 * SWEEPING * 1_000 <= sweeps[0] <= SWEEPING * 1_000 + 1
