"""A synthetic trace like Philly's: sizes, run times, ends and failures as published.

Everything is drawn by inversion from uniform numbers of one seeded PCG64 stream, in a fixed order, so
that the same arguments give the same bytes. `docs/traces.md` has the distributions and their sources.
"""

from __future__ import annotations

import numpy as np

from trainmaster.model.job import Job
from trainmaster.model.trace import Outcome, Trace, TracedJob
from trainmaster.traces import philly_tables as philly
from trainmaster.traces.csv_reader import RETRIES, demand_for
from trainmaster.traces.drawing import (
    Floats,
    Ints,
    arrivals,
    check_arguments,
    log_quantile,
    pick,
    whole_seconds,
)

KILLED_SKEW = 2.44
"""How much longer killed jobs run: the chance of being killed grows as (part of shorter jobs)^this.

It leaves 13.5 % of jobs killed, and gives them the 38 % of GPU time that they have in the paper.
"""

QUEUE_WEIGHTS = (30, 20, 14, 10, 8, 6, 5, 3, 2, 2)
"""Percent of jobs by virtual cluster, vc0 to vc9: as unequal as Philly's, not any one of them."""
USERS_PER_QUEUE = 20


def generate(jobs: int, gpus: int, load: float, seed: int) -> Trace:
    """A trace of `jobs` jobs that offers exactly this load to `gpus` GPUs, to the millisecond."""
    check_arguments(jobs, gpus, load, seed)
    rng = np.random.Generator(np.random.PCG64(seed))
    sizes = _sizes(rng.random(jobs), gpus)
    ranks = rng.random(jobs)
    services = _services(sizes, ranks)
    outcomes = _outcomes(ranks, rng.random(jobs))
    span = round(float(np.dot(sizes, services)) / (gpus * load))
    submits = arrivals(rng.random(jobs), span)
    queues = pick(QUEUE_WEIGHTS, rng.random(jobs))
    users = pick([1 / (n + 1) for n in range(USERS_PER_QUEUE)], rng.random(jobs))
    models = pick([1] * len(philly.MODELS), rng.random(jobs))
    attempts = _failed_attempts(rng, sizes, outcomes)
    columns = (submits, sizes, services, outcomes, queues, users, models)
    rows = zip(*(column.tolist() for column in columns), attempts, strict=True)
    made = []
    for index, (submit, size, service, outcome, queue, user, model, failed) in enumerate(rows):
        job = Job(
            id=f"j{index}",
            submit_ms=submit,
            demand=demand_for(size),
            queue=_QUEUES[queue],
            user=_USERS[queue][user],
            model=philly.MODELS[model],
            retries=max(RETRIES, len(failed)),
        )
        made.append(TracedJob(job, service, _OUTCOMES[outcome], failed))
    return Trace(jobs=tuple(made))


_OUTCOMES = (Outcome.SUCCEEDED, Outcome.CANCELLED, Outcome.FAILED)
_PASSED, _KILLED, _FAILED = range(3)
_QUEUES = tuple(f"vc{n}" for n in range(len(QUEUE_WEIGHTS)))
_USERS = tuple(tuple(f"{queue}-u{n}" for n in range(USERS_PER_QUEUE)) for queue in _QUEUES)


def _sizes(uniform: Floats, gpus: int) -> Ints:
    """GPUs of each job: the size mix without sizes that the cluster cannot hold."""
    fitting = [(size, weight) for size, weight in philly.SIZE_MIX if size <= gpus]
    chosen = pick([weight for _, weight in fitting], uniform)
    return np.array([size for size, _ in fitting], dtype=np.int64)[chosen]


def quantile(curve: philly.Quantiles, part: Floats) -> Floats:
    """Run times in minutes at these quantiles, interpolated linearly in log time."""
    points = curve if curve[0][1] == 0 else ((philly.SHORTEST_MIN, 0.0), *curve)
    if points[-1][1] < 1:
        points = (*points, (philly.LONGEST_MIN, 1.0))
    return log_quantile(points, part)


def _services(sizes: Ints, ranks: Floats) -> Ints:
    services = np.zeros(len(sizes), dtype=np.int64)
    for size, _ in philly.SIZE_MIX:
        chosen = sizes == size
        services[chosen] = whole_seconds(quantile(philly.run_time_curve(size), ranks[chosen]))
    return services


def _outcomes(ranks: Floats, uniform: Floats) -> Ints:
    """How each job ends: long jobs are killed more often, failures do not depend on the run time."""
    killed = philly.KILLED * (KILLED_SKEW + 1) * ranks**KILLED_SKEW
    return np.where(
        uniform < philly.UNSUCCESSFUL,
        _FAILED,
        np.where(uniform < philly.UNSUCCESSFUL + killed, _KILLED, _PASSED),
    ).astype(np.int64)


def _failed_attempts(
    rng: np.random.Generator, sizes: Ints, outcomes: Ints
) -> list[tuple[int, ...]]:
    """Run times of the failed attempts before each unsuccessful job's last one.

    The number of trials is geometric with the published mean; each draws its reason by the trials
    of that reason at that size, and its run time from the reason's percentiles.
    """
    attempts: list[tuple[int, ...]] = [()] * len(sizes)
    failed = np.flatnonzero(outcomes == _FAILED)
    again = 1 - 1 / philly.TRIALS_PER_UNSUCCESSFUL_JOB
    before = np.floor(np.log1p(-rng.random(len(failed))) / np.log(again)).astype(np.int64)
    gangs = np.repeat(sizes[failed], before)
    reasons, parts = rng.random(len(gangs)), rng.random(len(gangs))
    times = np.zeros(len(gangs), dtype=np.int64)
    for size, _ in philly.SIZE_MIX:
        here = np.flatnonzero(gangs == size)
        reason = pick([failure.trials(size) for failure in philly.FAILURES], reasons[here])
        for index, failure in enumerate(philly.FAILURES):
            drawn = here[reason == index]
            times[drawn] = whole_seconds(quantile(failure.curve(), parts[drawn]))
    ends = np.cumsum(before)
    for job, end, count in zip(failed.tolist(), ends.tolist(), before.tolist(), strict=True):
        attempts[job] = tuple(times[end - count : end].tolist())
    return attempts
