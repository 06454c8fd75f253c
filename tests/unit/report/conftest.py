"""Results with the shapes of real ones, made by a toy scheduler over a heavy-tailed workload."""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest

from trainmaster.model.result import (
    Bin,
    Curve,
    Delays,
    JobResult,
    Result,
    Status,
    Stint,
    Summary,
)
from trainmaster.model.topology import parse_shorthand

SECOND = 1_000
SIZES = (1, 1, 1, 2, 4, 8)
LOAD = 0.8
MEAN_SERVICE = math.exp(6.2 + 1.9**2 / 2)


@dataclass(frozen=True, slots=True)
class Toy:
    """A job of the toy workload; times in seconds."""

    job_id: str
    submit: float
    gpus: int
    service: float


@dataclass(slots=True)
class Ledger:
    """What the toy scheduler wrote down."""

    jobs: list[JobResult]
    stints: list[Stint]


def toy_workload(number: int, gpus: int, seed: int = 1) -> list[Toy]:
    rng = random.Random(seed)
    jobs, now = [], 0.0
    for index in range(number):
        size = min(rng.choice(SIZES), gpus)
        service = min(rng.lognormvariate(6.2, 1.9), 400_000.0)
        now += rng.expovariate(1.0) * 2.83 / LOAD * MEAN_SERVICE / gpus
        jobs.append(Toy(f"job-{index:04}", now, size, service))
    return jobs


def run_toy(workload: Sequence[Toy], gpus: int, key: Callable[[Toy], float], cut: bool) -> Ledger:
    """The waiting job with the least key goes next, onto the lowest free GPUs; none overtakes it.

    `cut` takes long jobs off their GPUs for ten minutes halfway.
    """
    free = list(range(gpus))
    ledger = Ledger([], [])
    waiting: list[tuple[float, int]] = []
    ends: list[tuple[float, int, tuple[int, ...]]] = []
    arrivals = list(enumerate(workload))[::-1]
    while arrivals or waiting or ends:
        next_arrival = arrivals[-1][1].submit if arrivals else math.inf
        now = min(next_arrival, ends[0][0] if ends else math.inf)
        while ends and ends[0][0] <= now:
            free.extend(heapq.heappop(ends)[2])
        while arrivals and arrivals[-1][1].submit <= now:
            index, job = arrivals.pop()
            heapq.heappush(waiting, (key(job), index))
        while waiting and workload[waiting[0][1]].gpus <= len(free):
            index = heapq.heappop(waiting)[1]
            job = workload[index]
            free.sort()
            chosen, free = free[: job.gpus], free[job.gpus :]
            away = 600.0 if cut and job.service > 3_600 else 0.0
            end = now + job.service + away
            heapq.heappush(ends, (end, index, tuple(chosen)))
            _record(ledger, job, chosen, now, end, away)
    ledger.jobs.sort(key=lambda job: job.submit_ms)
    return ledger


def _record(
    ledger: Ledger, job: Toy, chosen: list[int], begin: float, end: float, away: float
) -> None:
    half = begin + job.service / 2
    parts = [(begin, half), (half + away, end)] if away else [(begin, end)]
    for first, last in parts:
        stint = Stint(job.job_id, tuple(chosen), int(first * SECOND), int(last * SECOND))
        ledger.stints.append(stint)
    jct = end - job.submit
    ledger.jobs.append(
        JobResult(
            job_id=job.job_id,
            queue="default",
            gpus_milli=1_000 * job.gpus,
            service_ms=int(job.service * SECOND),
            submit_ms=int(job.submit * SECOND),
            start_ms=int(begin * SECOND),
            finish_ms=int(end * SECOND),
            suspended_ms=int(away * SECOND),
            held=int(job.service * SECOND) * 1_000 * job.gpus,
            preemptions=int(away > 0),
            migrations=0,
            status=Status.SUCCEEDED,
            rho=jct / (job.service * max(1.0, job.gpus * 1.5)),
        )
    )


def percentile(values: Sequence[float], part: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def summary_of(jobs: Sequence[JobResult], util: float) -> Summary:
    jcts = [job.jct_ms / SECOND for job in jobs if job.jct_ms is not None]
    queues = [job.queue_ms / SECOND for job in jobs if job.queue_ms is not None]
    rhos = [job.rho for job in jobs if job.rho is not None]
    excess = [job.jct_ms / SECOND - job.service_ms / SECOND for job in jobs if job.jct_ms]
    last = max(job.finish_ms or 0 for job in jobs)
    return Summary(
        jobs=len(jobs),
        finished=len(jobs),
        rejected=0,
        unfinished=0,
        load=0.93,
        avg_jct_s=sum(jcts) / len(jcts),
        avg_excess_s=sum(excess) / len(jobs),
        avg_jct_lower_bound_s=None,
        p50_jct_s=percentile(jcts, 0.5),
        p95_jct_s=percentile(jcts, 0.95),
        p99_jct_s=percentile(jcts, 0.99),
        avg_queue_s=sum(queues) / len(queues),
        makespan_s=(last - jobs[0].submit_ms) / SECOND,
        gpu_util=util,
        gpu_hours_wasted=12.5,
        preemptions=sum(job.preemptions for job in jobs),
        migrations=0,
        max_rho=max(rhos),
        p99_rho=percentile(rhos, 0.99),
        jain_index=0.97,
        events=4 * len(jobs),
    )


def bins_of(jobs: Sequence[JobResult]) -> tuple[Bin, ...]:
    bins = []
    for low, high, label in ((0, 1, "1 GPU"), (1, 4, "2-4 GPUs"), (4, 8, "5-8 GPUs")):
        inside = [job for job in jobs if low * 1_000 < job.gpus_milli <= high * 1_000]
        jcts = [job.jct_ms / SECOND for job in inside if job.jct_ms is not None]
        if jcts:
            average = sum(jcts) / len(jcts)
            halves = percentile(jcts, 0.5), percentile(jcts, 0.95)
            bins.append(Bin(label, len(inside), average, *halves, average / 3))
    return tuple(bins)


def curve_of(changes: Sequence[tuple[int, float]]) -> Curve:
    """The running sum of changes at times in ms."""
    times: list[float] = []
    values: list[float] = []
    level = 0.0
    for at_ms, change in sorted(changes):
        level += change
        if times and times[-1] == at_ms / SECOND:
            values[-1] = level
        else:
            times.append(at_ms / SECOND)
            values.append(level)
    return Curve(tuple(times), tuple(values))


def result_of(
    policy: str,
    *,
    jobs: int = 300,
    gpus: int = 16,
    cluster: str = "4x4",
    key: Callable[[Toy], float] = lambda job: job.submit,
    cut: bool = False,
) -> Result:
    ledger = run_toy(toy_workload(jobs, gpus), gpus, key, cut)
    waits = [(job.submit_ms, 1.0) for job in ledger.jobs]
    waits += [(job.start_ms or 0, -1.0) for job in ledger.jobs]
    holds = [(s.start_ms, len(s.gpus) / gpus) for s in ledger.stints]
    holds += [(s.end_ms, -len(s.gpus) / gpus) for s in ledger.stints]
    busy = curve_of(holds)
    queued = sum((job.queue_ms or 0) / SECOND for job in ledger.jobs)
    return Result(
        policy=policy,
        options={"quantum_s": 60, "thresholds_gpu_s": (3250, 7200)},
        cluster=cluster,
        gpus=gpus,
        summary=summary_of(ledger.jobs, sum(busy.values) / len(busy.values)),
        jobs=tuple(ledger.jobs),
        bins=bins_of(ledger.jobs),
        delays=Delays(0.2 * queued, 0.3 * queued, 0.5 * queued),
        utilisation=Curve(busy.times_s, tuple(min(1.0, max(0.0, v)) for v in busy.values)),
        queue_length=curve_of(waits),
        fragmentation=Curve(busy.times_s, tuple(abs(math.sin(v * 9)) for v in busy.values)),
        stints=tuple(ledger.stints),
        nodes=nodes_of(cluster),
    )


def nodes_of(cluster: str) -> tuple[tuple[str, int], ...]:
    return tuple((node.name, node.gpus) for node in parse_shorthand(cluster).nodes)


@pytest.fixture(scope="session")
def make_result() -> Callable[..., Result]:
    return result_of


@pytest.fixture(scope="session")
def three_policies() -> tuple[Result, ...]:
    return (
        result_of("fifo"),
        result_of("srtf", key=lambda job: job.service),
        result_of("tiresias-l", key=lambda job: job.service * job.gpus, cut=True),
    )
