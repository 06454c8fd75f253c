"""A second opinion: a naive simulator that only counts GPUs, in whole milliseconds.

It shares no line with ours. At each instant it takes in everything that happens, sorts all jobs and
places one after another; preemption is free and nothing breaks. What it lacks in speed it has in
being short enough to check by eye.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(slots=True)
class Counted:
    """One job; times in ms, service in GPU-ms."""

    row: int
    gpus: int
    submit: int
    left: int
    attained: int = 0
    first_start: int | None = None
    runs: bool = False
    finish: int = 0
    preemptions: int = 0


Key = Callable[[Counted, Sequence[int]], tuple[int, ...]]


def _queue(job: Counted, limits: Sequence[int]) -> int:
    return sum(job.attained >= limit for limit in limits)


def _since_first_start(job: Counted) -> tuple[int, int]:
    """Started jobs by first start, then the others."""
    return (0, job.first_start) if job.first_start is not None else (1, 0)


KEYS: dict[str, Key] = {
    "srtf": lambda job, _: (job.left,),
    "srsf": lambda job, _: (job.left * job.gpus,),
    "las": lambda job, _: (job.attained,),
    "tiresias-l": lambda job, limits: (_queue(job, limits), *_since_first_start(job)),
}


def count(
    jobs: Sequence[tuple[int, int, int]],
    capacity: int,
    policy: str,
    *,
    quantum: int = 60_000,
    limits: Sequence[int] = (),
) -> list[Counted]:
    """Jobs as (gpus, submit, service), in submission order; policies as in KEYS, `fifo`, `fifo skip`."""
    coming = [Counted(row, *job) for row, job in enumerate(jobs)]
    everyone, here, now = list(coming), [], 0
    while coming or here:
        then = min(_next_instants(coming, here, now, policy, quantum, limits))
        for job in here:
            if job.runs:
                job.left -= then - now
                job.attained += (then - now) * job.gpus
                job.finish = then
        now = then
        here = [job for job in here if job.left] + [job for job in coming if job.submit <= now]
        coming = [job for job in coming if job.submit > now]
        _decide(here, capacity, policy, limits, now)
    return everyone


def _next_instants(
    coming: list[Counted],
    here: list[Counted],
    now: int,
    policy: str,
    quantum: int,
    limits: Sequence[int],
) -> list[int]:
    """Arrivals, ends, and what the policy itself waits for."""
    instants = [job.submit for job in coming] + [now + job.left for job in here if job.runs]
    if policy == "las" and here:
        instants.append((now // quantum + 1) * quantum)
    for job in here:
        ahead = [limit for limit in limits if limit > job.attained]
        if job.runs and ahead:
            crossing = now + -(-(ahead[0] - job.attained) // job.gpus)
            instants.append(-(-crossing // 1_000) * 1_000)
    return instants


def _decide(
    here: list[Counted], capacity: int, policy: str, limits: Sequence[int], now: int
) -> None:
    is_fifo = policy.startswith("fifo")
    line = sorted(
        here,
        key=lambda job: (
            (not job.runs,) if is_fifo else KEYS[policy](job, limits),
            job.submit,
            job.row,
        ),
    )
    for job in line:
        fits = job.gpus <= capacity
        if fits:
            capacity -= job.gpus
            job.first_start = now if job.first_start is None else job.first_start
        elif job.runs:
            job.preemptions += 1
        elif policy == "fifo":
            capacity = 0
        job.runs = fits
