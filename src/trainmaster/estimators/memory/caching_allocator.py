"""PyTorch's caching allocator for one stream, without a device: what it reserves for a row of requests.

Expandable segments are off, as they are by default. Nothing is given back to the device.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field

from trainmaster.model.units import MIB

GRAIN = 512
SMALL_MOST = MIB
SMALL_SEGMENT = 2 * MIB
MIDDLE_SEGMENT = 20 * MIB
OWN_SEGMENT_LEAST = 10 * MIB
SEGMENT_GRAIN = 2 * MIB


def block_bytes(request: int) -> int:
    """A request, rounded as the allocator does."""
    return max(GRAIN, -(-request // GRAIN) * GRAIN)


def segment_bytes(request: int) -> int:
    """What is asked of the device where no free block fits."""
    wanted = block_bytes(request)
    if wanted <= SMALL_MOST:
        return SMALL_SEGMENT
    if wanted < OWN_SEGMENT_LEAST:
        return MIDDLE_SEGMENT
    return -(-wanted // SEGMENT_GRAIN) * SEGMENT_GRAIN


@dataclass(slots=True, eq=False)
class _Block:
    """A part of a segment; its neighbours are None at the segment's ends."""

    start: int
    size: int
    is_small: bool
    before: _Block | None = None
    after: _Block | None = None
    is_free: bool = False


@dataclass(slots=True)
class CachingAllocator:
    """The state of the allocator: addresses are numbers from one growing range."""

    reserved: int = 0
    allocated: int = 0
    peak_allocated: int = 0
    _end: int = 0
    _blocks: dict[int, _Block] = field(default_factory=dict)
    _free: dict[bool, list[tuple[int, int]]] = field(default_factory=lambda: {True: [], False: []})
    """Size and address of free blocks, by pool."""
    _at: dict[int, _Block] = field(default_factory=dict)

    def allocate(self, name: int, request: int) -> None:
        """Take a block for a tensor; one of no bytes takes none."""
        if request == 0:
            return
        wanted = block_bytes(request)
        block = self._best(wanted) or self._segment(wanted)
        rest = block.size - wanted
        if rest >= GRAIN if block.is_small else rest > SMALL_MOST:
            self._split(block, wanted)
        self._blocks[name] = block
        self.allocated += block.size
        self.peak_allocated = max(self.peak_allocated, self.allocated)

    def free(self, name: int) -> None:
        """Give a tensor's block back, joined with its free neighbours."""
        block = self._blocks.pop(name, None)
        if block is None:
            return
        self.allocated -= block.size
        if block.before is not None and block.before.is_free:
            self._take(block.before)
            block = self._joined(block.before, block)
        if block.after is not None and block.after.is_free:
            self._take(block.after)
            block = self._joined(block, block.after)
        self._put(block)

    def _best(self, wanted: int) -> _Block | None:
        free = self._free[wanted <= SMALL_MOST]
        place = bisect_left(free, (wanted, 0))
        if place == len(free):
            return None
        block = self._at[free[place][1]]
        self._take(block)
        return block

    def _segment(self, wanted: int) -> _Block:
        size = segment_bytes(wanted)
        block = _Block(self._end, size, wanted <= SMALL_MOST)
        self._end += size
        self.reserved += size
        return block

    def _split(self, block: _Block, wanted: int) -> None:
        rest = _Block(block.start + wanted, block.size - wanted, block.is_small, block, block.after)
        if block.after is not None:
            block.after.before = rest
        block.after = rest
        block.size = wanted
        self._put(rest)

    def _joined(self, left: _Block, right: _Block) -> _Block:
        left.size += right.size
        left.after = right.after
        if right.after is not None:
            right.after.before = left
        return left

    def _put(self, block: _Block) -> None:
        block.is_free = True
        self._at[block.start] = block
        insort(self._free[block.is_small], (block.size, block.start))

    def _take(self, block: _Block) -> None:
        block.is_free = False
        del self._at[block.start]
        free = self._free[block.is_small]
        del free[bisect_left(free, (block.size, block.start))]
