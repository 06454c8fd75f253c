"""Curves of each GPU over the last hours: use, memory, temperature and power, in memory only.

A point is the mean of the looks at the GPUs in one piece of time. Four numbers of two bytes for each of 1,080
points: 8.6 kB for a GPU, 86 MB for 10,000 of them.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator

from trainmaster.daemon.gpu_readings import GpuReadings
from trainmaster.gpu.driver import Reading
from trainmaster.model.units import HOUR, MIB, NOMINAL, SECOND

STEP_MS = 20 * SECOND
KEPT_MS = 6 * HOUR
POINTS = KEPT_MS // STEP_MS
NONE = 0xFFFF
"""The driver did not say, or nobody looked."""
PARTS = 1000
"""Use of a GPU is kept in thousandths, memory in units of 16 MiB."""
MEMORY_UNIT = 16 * MIB
SCALES = (1 / PARTS, float(MEMORY_UNIT), 1.0, 1.0)
"""What the kept numbers stand for: use from 0 to 1, bytes, degrees, watts."""


class Ring:
    """The last points of one GPU; the place of a point follows from its time."""

    __slots__ = ("_counts", "_kept", "_piece", "_sums")

    def __init__(self) -> None:
        self._kept = tuple(array("H", [NONE]) * POINTS for _ in SCALES)
        self._piece = -1
        """The piece of time that is being summed up."""
        self._sums, self._counts = [0.0] * len(SCALES), [0] * len(SCALES)

    def add(self, reading: Reading, piece: int) -> None:
        if piece != self._piece:
            self._forget(self._piece + 1, piece)
            self._piece = piece
            self._sums, self._counts = [0.0] * len(SCALES), [0] * len(SCALES)
        for number, value in enumerate(_measured(reading)):
            if value is not None:
                self._sums[number] += value
                self._counts[number] += 1
                mean = round(self._sums[number] / self._counts[number])
                self._kept[number][piece % POINTS] = min(mean, NONE - 1)

    def _forget(self, first: int, last: int) -> None:
        """Pieces in which nobody looked, and the new one."""
        for piece in range(max(first, last - POINTS + 1), last + 1):
            for kept in self._kept:
                kept[piece % POINTS] = NONE

    def is_over(self, piece: int) -> bool:
        """Whether all its points are older than what is kept."""
        return self._piece <= piece - POINTS

    def points(self, since: int, until: int) -> Iterator[tuple[float | None, ...]]:
        """Of each piece of time between these two, both included."""
        for piece in range(since, until + 1):
            is_kept = self._piece - POINTS < piece <= self._piece
            yield tuple(
                kept[piece % POINTS] * scale if is_kept and kept[piece % POINTS] != NONE else None
                for kept, scale in zip(self._kept, SCALES, strict=True)
            )


def _measured(reading: Reading) -> tuple[float | None, ...]:
    """What is kept of a look, in the units in which it is kept."""
    if reading.trouble:
        return (None,) * len(SCALES)
    util = None if reading.util_ppm is None else reading.util_ppm * PARTS / NOMINAL
    return util, reading.memory_used / MEMORY_UNIT, reading.temperature_c, reading.power_w


class GpuCurves:
    """Listens to the readings of the GPUs."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._rings: dict[str, Ring] = {}
        self._piece = -1

    def look(self, readings: GpuReadings) -> None:
        self.add(readings.readings())

    def add(self, readings: Iterable[Reading]) -> None:
        """What was read of all GPUs at once, now."""
        piece = self._now() // STEP_MS
        for reading in readings:
            ring = self._rings.get(reading.uuid)
            if ring is None:
                ring = self._rings[reading.uuid] = Ring()
            ring.add(reading, piece)
        if piece != self._piece:  # GPUs that are there no more
            self._piece = piece
            over = [uuid for uuid, ring in self._rings.items() if ring.is_over(piece)]
            for uuid in over:
                del self._rings[uuid]

    def times_ms(self, since_ms: int) -> range:
        """When the points of an answer begin: from then on, as far back as they are kept."""
        last = self._now() // STEP_MS
        first = max(since_ms // STEP_MS, last - POINTS + 1)
        return range(first * STEP_MS, (last + 1) * STEP_MS, STEP_MS)

    def of(self, uuid: str, times_ms: range) -> list[tuple[float | None, ...]] | None:
        """Use, memory, temperature and power at these times; None: the GPU was not read since."""
        ring = self._rings.get(uuid)
        if ring is None or not times_ms:
            return None
        return list(ring.points(times_ms[0] // STEP_MS, times_ms[-1] // STEP_MS))
