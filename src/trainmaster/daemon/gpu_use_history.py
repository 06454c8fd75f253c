"""What each job used of its GPUs over time: some hundred points, in memory and in a file that is kept as long
as its output.

The file is the manager's own, beside those of the runs: a job's user cannot exchange it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import structlog

from trainmaster.daemon.gpu_readings import GpuReadings
from trainmaster.durable_files import write_whole
from trainmaster.model.units import SECOND

log = structlog.get_logger("trainmaster.gpu")

FOLDER = "gpu-use"
MOST_POINTS = 360
"""More are thinned to half as many, each of twice the time."""
KEEP_S = 60.0
"""Between two writes: a manager that is killed loses so much of the curves."""


class UsePoint(NamedTuple):
    """What all processes of a job used in a piece of time."""

    at_ms: int
    """When it began."""
    util_ppm: int | None
    """Mean over its GPUs and the time; None: the driver does not say."""
    memory: int
    """The most that they had, in bytes, over all its GPUs."""
    looks: int = 1


class UseCurve:
    """The points of one job, the oldest first."""

    def __init__(self, every_ms: int = SECOND, points: Iterable[UsePoint] = ()) -> None:
        self.every_ms = every_ms
        self.points = list(points)

    def add(self, point: UsePoint) -> None:
        self.points.append(point)
        self._thin(self.points[-2:])

    def _thin(self, last: Sequence[UsePoint]) -> None:
        if len(last) == 2 and self._piece(last[0]) == self._piece(last[1]):
            self.points[-2:] = [_merged(last)]
        while len(self.points) > MOST_POINTS:
            self.every_ms *= 2
            self.points = [_merged(list(each)) for _, each in groupby(self.points, self._piece)]

    def _piece(self, point: UsePoint) -> int:
        return point.at_ms // self.every_ms

    def after(self, earlier: UseCurve) -> UseCurve:
        """Both, as one."""
        found = UseCurve(max(earlier.every_ms, self.every_ms))
        for point in (*earlier.points, *self.points):
            found.add(point)
        return found

    def to_json(self) -> str:
        return json.dumps({"every_ms": self.every_ms, "points": self.points})

    @classmethod
    def from_json(cls, text: str) -> UseCurve:
        said = json.loads(text)
        return cls(int(said["every_ms"]), (UsePoint(*each) for each in said["points"]))


def _merged(points: Sequence[UsePoint]) -> UsePoint:
    if len(points) == 1:
        return points[0]
    known = [each for each in points if each.util_ppm is not None]
    looks = sum(each.looks for each in known)
    busy = sum((each.util_ppm or 0) * each.looks for each in known)
    return UsePoint(
        points[0].at_ms,
        busy // looks if looks else None,
        max(each.memory for each in points),
        sum(each.looks for each in points),
    )


class GpuUseHistory:
    """Listens to the readings of the GPUs; files are written and read in threads."""

    def __init__(
        self, folder: Path, now: Callable[[], int], is_live: Callable[[str], bool]
    ) -> None:
        self._folder = folder / FOLDER
        self._now = now
        self._is_live = is_live
        self._curves: dict[str, UseCurve] = {}
        """What was read since the manager started, of jobs that have not ended."""
        self._earlier: dict[str, UseCurve] = {}
        """What the file of each of them had before."""
        self._changed: set[str] = set()

    def look(self, readings: GpuReadings) -> None:
        now = self._now()
        for use in readings.runs():
            curve = self._curves.setdefault(use.run.job, UseCurve())
            curve.add(UsePoint(now, use.mean_util_ppm, use.total_memory))
            self._changed.add(use.run.job)

    async def watch(self) -> None:
        while True:
            await asyncio.sleep(KEEP_S)
            await self.keep()

    async def keep(self) -> None:
        """Write what is new, and forget jobs that have ended."""
        changed, self._changed = self._changed, set()
        for job in changed:
            curve = await self.of(job)
            try:
                await asyncio.to_thread(self._write, job, curve)
            except OSError as problem:
                log.warning("the GPU use of a job could not be kept", job=job, why=str(problem))
                self._changed.add(job)
        for job in [each for each in self._curves if not self._is_live(each)]:
            if job not in self._changed:
                del self._curves[job]
                self._earlier.pop(job, None)

    async def of(self, job: str) -> UseCurve:
        """By the id of a job; without points where nothing was read, or it is not kept any more."""
        if job not in self._curves:
            return await asyncio.to_thread(self._read, job)
        if job not in self._earlier:
            self._earlier[job] = await asyncio.to_thread(self._read, job)
        return self._curves[job].after(self._earlier[job])

    def _write(self, job: str, curve: UseCurve) -> None:
        self._folder.mkdir(mode=0o700, exist_ok=True)
        write_whole(self._file(job), curve.to_json(), 0o600)

    def _read(self, job: str) -> UseCurve:
        try:
            return UseCurve.from_json(self._file(job).read_text())
        except (OSError, ValueError, KeyError, TypeError):
            return UseCurve()

    def _file(self, job: str) -> Path:
        return self._folder / f"{job}.json"
