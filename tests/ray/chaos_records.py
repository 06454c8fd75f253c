"""What the processes of the chaos run have written down (`chaos_job.py`), and what of it must not be."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path


@dataclass(frozen=True)
class Line:
    what: str
    at_ms: int
    step: int


@dataclass(frozen=True)
class Process:
    """One process of a job, and what it has written."""

    job: str
    attempt: int
    rank: int
    world: int
    generation: str
    """The port at which its gang met: another one after a resize by a checkpoint."""
    pid: int
    lines: tuple[Line, ...]

    @property
    def begin_ms(self) -> int:
        return self.lines[0].at_ms

    @property
    def last_ms(self) -> int:
        return self.lines[-1].at_ms

    def is_of_gang(self, other: Process) -> bool:
        """Whether both are ranks of one gang, which run at once."""
        return (self.attempt, self.world, self.generation) == (
            other.attempt,
            other.world,
            other.generation,
        ) and self.rank != other.rank

    def __str__(self) -> str:
        return (
            f"rank {self.rank} of {self.world} of {self.job}.{self.attempt} (process {self.pid}, from"
            f" {self.begin_ms} to {self.last_ms} ms)"
        )


def read(folder: Path) -> dict[str, list[Process]]:
    """All processes by job, in the order in which they began."""
    found: defaultdict[str, list[Process]] = defaultdict(list)
    for file in folder.glob("*/*"):
        lines = tuple(_lines(file.read_text()))
        if not lines:
            continue
        attempt, place, port, pid = file.name.split("-")
        rank, world = map(int, place.split("of"))
        job = file.parent.name
        found[job].append(Process(job, int(attempt), rank, world, port, int(pid), lines))
    return {job: sorted(each, key=lambda one: one.begin_ms) for job, each in found.items()}


def _lines(text: str) -> Iterator[Line]:
    for line in text.splitlines():
        what, at_ms, step = line.split()
        yield Line(what, int(at_ms), int(step))


def twice_at_once(processes: Iterable[Process]) -> list[str]:
    """Of one job: each that went on when one of another attempt, or of another gang of it, had begun."""
    found = []
    rows = sorted(processes, key=lambda each: each.begin_ms)
    for index, one in enumerate(rows):
        for other in rows[index + 1 :]:
            if other.begin_ms <= one.last_ms and not one.is_of_gang(other):
                found.append(f"{one} and {other} went on at once")
    return found


def steps_lost(processes: Iterable[Process]) -> list[str]:
    """Of one job: each that went on from before the last checkpoint, or from one that was never written."""
    first = sorted((each for each in processes if each.rank == 0), key=lambda each: each.begin_ms)
    saved = saving = 0
    found = []
    for before, process in pairwise([None, *first]):
        assert process is not None
        for line in () if before is None else before.lines:
            saved = line.step if line.what == "saved" else saved
            saving = line.step if line.what == "saving" else saving
        begin = process.lines[0].step
        if not saved <= begin <= saving:
            found.append(f"{process} began at step {begin}: {saved} was saved, and {saving} begun")
        saved = max(saved, begin)
    return found


def unlike(processes: Iterable[Process]) -> list[str]:
    """Of one job: ranks that were at another step than the others."""
    rows = ((each, line) for each in processes for line in each.lines if line.what == "UNLIKE")
    return [f"{each} was at step {line.step} and another rank was not" for each, line in rows]


def has_ended(processes: Iterable[Process]) -> bool:
    """Whether the first rank came to the end of its work."""
    return any(line.what == "ends" for each in processes if each.rank == 0 for line in each.lines)
