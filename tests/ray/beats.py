"""What ranks of `beating.py` have written: which lived when, by their own clock."""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from tests.live.daemons import until

PROGRAM = Path(__file__).with_name("beating.py")


@dataclass(frozen=True, order=True)
class Life:
    """One process: its first and its last line, on the clock of this machine."""

    job: int
    attempt: int
    rank: int
    first_s: float
    last_s: float
    last: str


def lives(folder: Path, job: str | None = None) -> list[Life]:
    found = []
    for file in folder.glob(f"{job or '*'}.*.*.*"):
        lines = [line.split() for line in file.read_text().splitlines() if len(line.split()) == 2]
        if lines:
            of, attempt, rank, _ = map(int, file.name.split("."))
            first, last = lines[0], lines[-1]
            found.append(Life(of, attempt, rank, float(first[0]), float(last[0]), last[1]))
    return sorted(found)


def attempts(folder: Path, job: str) -> list[int]:
    """Those that have begun."""
    return sorted({each.attempt for each in lives(folder, job)})


def until_beats(folder: Path, job: str, ranks: int, attempt: int = 1) -> float:
    """The time at which all its ranks were seen to live."""

    def are_alive() -> bool:
        now = time.monotonic()
        own = [each for each in lives(folder, job) if each.attempt == attempt]
        return len({each.rank for each in own if each.last_s > asked_s}) == ranks and now > asked_s

    asked_s = time.monotonic()
    until(are_alive, f"all {ranks} ranks of {job}.{attempt} to live")
    return time.monotonic()


def until_still(folder: Path, job: str) -> None:
    """No rank of it writes any more."""

    def is_still() -> bool:
        before = lives(folder, job)
        time.sleep(0.5)
        return before == lives(folder, job)

    until(is_still, f"job {job} to stand still")


def judge(folder: Path) -> None:
    """Each rank of each attempt was one process, and no attempt began while one before it lived."""
    for job, each in groupby(lives(folder), lambda life: life.job):
        own = [*each]
        started = [(life.attempt, life.rank) for life in own]
        assert len(started) == len(set(started)), f"job {job}: a rank was started twice: {own}"
        over_s = 0.0
        for attempt, ranks in groupby(own, lambda life: life.attempt):
            all_ = [*ranks]
            begun_s = min(life.first_s for life in all_)
            assert begun_s > over_s, (
                f"job {job}: attempt {attempt} began before the last was over: {own}"
            )
            over_s = max(life.last_s for life in all_)
