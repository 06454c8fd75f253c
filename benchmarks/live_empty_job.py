"""The empty job that every contender runs: it writes down when it began, and ends.

`sh` that becomes `date`: no Python in it, about two milliseconds of a core. All contenders that start a
process start this one, so that what differs is their own.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

PROGRAM = '#!/bin/sh\nexec date +%s%N > "$1"\n'
PATIENCE_S = 120.0


@dataclass(frozen=True, slots=True)
class Latency:
    """From the request to the program's own timestamp, in ms."""

    median_ms: float
    p95_ms: float
    least_ms: float
    jobs: int


@dataclass(frozen=True, slots=True)
class Burst:
    """Many empty jobs asked for at once, two at a time or as many as there are cores."""

    jobs: int
    took_s: float
    """From the request until the client knows that all have ended."""
    starts_per_s: float
    """By the programs' own timestamps: from the request to the last start."""


@dataclass(frozen=True, slots=True)
class StartMeasurement:
    """One contender."""

    name: str
    includes: str
    """Steps that a start includes, in words."""
    latency: Latency | None = None
    burst: Burst | None = None
    absent: str = ""
    """Why it was not measured; empty where it was."""

    def as_json(self) -> dict[str, object]:
        return asdict(self)


def written_program(folder: Path) -> Path:
    path = folder / "stamp.sh"
    path.write_text(PROGRAM)
    path.chmod(0o755)
    return path


def until(
    condition: Callable[[], bool], what: str, pause_s: float = 0.005, patience_s: float = PATIENCE_S
) -> None:
    end = time.monotonic() + patience_s
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"waited {patience_s:g} s for {what}")
        time.sleep(pause_s)


def stamp_of(path: Path) -> int:
    """When the program of this file began, in ns; waits for it."""
    until(lambda: path.exists() and path.stat().st_size > 0, f"the program to write {path}")
    return int(path.read_text())


def latency_of(starts_ns: Sequence[int]) -> Latency:
    times = sorted(each / 1e6 for each in starts_ns)
    p95 = times[min(len(times) - 1, int(0.95 * len(times)))]
    return Latency(
        round(statistics.median(times), 2), round(p95, 2), round(times[0], 2), len(times)
    )


def burst_of(began_ns: int, ended_ns: int, stamps: Iterable[int]) -> Burst:
    starts = list(stamps)
    return Burst(
        jobs=len(starts),
        took_s=round((ended_ns - began_ns) / 1e9, 3),
        starts_per_s=round(len(starts) / ((max(starts) - began_ns) / 1e9), 1),
    )


def one_by_one(count: int, folder: Path, ask: Callable[[Path], int], warm: int = 5) -> Latency:
    """Ask for a job, wait for it, ask for the next; `ask` returns when it was asked for, in ns."""
    folder.mkdir(parents=True, exist_ok=True)
    waited: list[int] = []
    for number in range(warm + count):
        path = folder / str(number)
        waited.append(-ask(path) + stamp_of(path))
        time.sleep(0.02)  # so that the last one's end is over
    return latency_of(waited[warm:])


def burst(jobs: int, folder: Path, ask_all: Callable[[Path], object]) -> Burst:
    """Submit all jobs at once; each writes its start time into the folder. `ask_all` returns at the end."""
    folder.mkdir(parents=True, exist_ok=True)
    began = time.time_ns()
    ask_all(folder)
    ended = time.time_ns()
    until(lambda: len(stamps_in(folder)) == jobs, "the last stamps")
    return burst_of(began, ended, stamps_in(folder))


def burst_of_single_requests(jobs: int, folder: Path, ask: Callable[[Path], int]) -> Burst:
    """The same where each job is asked for by itself: as many at once as there are cores."""

    def ask_all(many: Path) -> None:
        with ThreadPoolExecutor(cores()) as threads:
            list(threads.map(lambda number: ask(many / str(number)), range(jobs)))

    return burst(jobs, folder, ask_all)


def stamps_in(folder: Path) -> list[int]:
    return [int(path.read_text()) for path in folder.iterdir() if path.stat().st_size]


def cores() -> int:
    return os.cpu_count() or 1
