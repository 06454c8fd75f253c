"""A synthetic trace like Philly's: sizes, run times, ends and failures as published.

Everything is drawn by inversion from uniform numbers of one seeded PCG64 stream, in a fixed order, so
that the same arguments give the same bytes. `docs/traces.md` has the distributions and their sources.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import cos, pi

import numpy as np
import numpy.typing as npt

from trainmaster.model.job import Job
from trainmaster.model.trace import Outcome, Trace, TracedJob, TraceError
from trainmaster.model.units import MINUTE, SECOND
from trainmaster.traces import philly_tables as philly
from trainmaster.traces.csv_reader import RETRIES, demand_for

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

KILLED_SKEW = 2.44
"""How much longer killed jobs run: the chance of being killed grows as (part of shorter jobs)^this.

It leaves 13.5 % of jobs killed, and gives them the 38 % of GPU time that they have in the paper.
"""

QUEUE_WEIGHTS = (30, 20, 14, 10, 8, 6, 5, 3, 2, 2)
"""Percent of jobs by virtual cluster, vc0 to vc9: as unequal as Philly's, not any one of them."""
USERS_PER_QUEUE = 20

PEAK_HOUR, DAILY_SWING, WEEKEND = 15, 0.4, 0.8
"""Arrivals: 1 + 0.4 cos(2π (hour - 15) / 24), most at three in the afternoon, and 0.8 of it on
Saturday and Sunday. Time 0 is midnight before a Monday."""

_WEEK_HOURS = 7 * 24


def generate(jobs: int, gpus: int, load: float, seed: int) -> Trace:
    """A trace of `jobs` jobs that offers exactly this load to `gpus` GPUs, to the millisecond."""
    _check(jobs, gpus, load, seed)
    rng = np.random.Generator(np.random.PCG64(seed))
    sizes = _sizes(rng.random(jobs), gpus)
    ranks = rng.random(jobs)
    services = _services(sizes, ranks)
    outcomes = _outcomes(ranks, rng.random(jobs))
    span = round(float(np.dot(sizes, services)) / (gpus * load))
    submits = _arrivals(rng.random(jobs), span)
    queues = _pick(QUEUE_WEIGHTS, rng.random(jobs))
    users = _pick([1 / (n + 1) for n in range(USERS_PER_QUEUE)], rng.random(jobs))
    models = _pick([1] * len(philly.MODELS), rng.random(jobs))
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


def _check(jobs: int, gpus: int, load: float, seed: int) -> None:
    if jobs < 1:
        raise TraceError(f"a trace needs at least one job, not {jobs}.")
    if gpus < 1:
        raise TraceError(f"a cluster needs at least one GPU, not {gpus}.")
    if not 0 < load < float("inf"):
        raise TraceError(f"the load must be more than 0, such as 0.9, not {load}.")
    if seed < 0:
        raise TraceError(f"the seed must not be negative, as {seed} is.")


def _pick(weights: Sequence[float], uniform: Floats) -> Ints:
    """Indices drawn by weight."""
    ends = np.cumsum(np.asarray(weights, dtype=np.float64))
    return np.searchsorted(ends / ends[-1], uniform, side="right").astype(np.int64)


def _sizes(uniform: Floats, gpus: int) -> Ints:
    """GPUs of each job: the size mix without sizes that the cluster cannot hold."""
    fitting = [(size, weight) for size, weight in philly.SIZE_MIX if size <= gpus]
    chosen = _pick([weight for _, weight in fitting], uniform)
    return np.array([size for size, _ in fitting], dtype=np.int64)[chosen]


def quantile(curve: philly.Quantiles, part: Floats) -> Floats:
    """Run times in minutes at these quantiles, interpolated linearly in log time."""
    points = curve if curve[0][1] == 0 else ((philly.SHORTEST_MIN, 0.0), *curve)
    if points[-1][1] < 1:
        points = (*points, (philly.LONGEST_MIN, 1.0))
    minutes, parts = zip(*points, strict=True)
    return np.exp(np.interp(part, parts, np.log(minutes)))


def _whole_seconds(minutes: Floats) -> Ints:
    """Milliseconds, rounded to whole seconds as in the real trace, at least one second."""
    seconds = np.maximum(1, np.rint(minutes * (MINUTE // SECOND)))
    return (seconds * SECOND).astype(np.int64)


def _services(sizes: Ints, ranks: Floats) -> Ints:
    services = np.zeros(len(sizes), dtype=np.int64)
    for size, _ in philly.SIZE_MIX:
        chosen = sizes == size
        services[chosen] = _whole_seconds(quantile(philly.run_time_curve(size), ranks[chosen]))
    return services


def _outcomes(ranks: Floats, uniform: Floats) -> Ints:
    """How each job ends: long jobs are killed more often, failures do not depend on the run time."""
    killed = philly.KILLED * (KILLED_SKEW + 1) * ranks**KILLED_SKEW
    return np.where(
        uniform < philly.UNSUCCESSFUL,
        _FAILED,
        np.where(uniform < philly.UNSUCCESSFUL + killed, _KILLED, _PASSED),
    ).astype(np.int64)


def _arrivals(uniform: Floats, span: int) -> Ints:
    """Submit times in order: given their number, a Poisson process is that many independent draws.

    The first is at 0 and the last at `span`, so that the load is met; between them the draws follow
    the daily and weekly cycle.
    """
    ordered = np.sort(uniform)
    if len(ordered) == 1:
        return np.zeros(1, dtype=np.int64)
    ordered = (ordered - ordered[0]) / (ordered[-1] - ordered[0])
    hour = 60 * MINUTE
    knots = np.arange(_WEEK_HOURS + 1, dtype=np.float64)
    expected = np.concatenate(([0.0], np.cumsum([_rate(h) for h in range(_WEEK_HOURS)])))
    weeks, rest = divmod(span / hour, _WEEK_HOURS)
    in_all = weeks * expected[-1] + float(np.interp(rest, knots, expected))
    whole, part = np.divmod(ordered * in_all, expected[-1])
    hours = whole * _WEEK_HOURS + np.interp(part, expected, knots)
    submits: Ints = np.minimum(np.rint(hours * hour), span).astype(np.int64)
    return submits


def _rate(hour: int) -> float:
    """Arrivals per hour in the middle of that hour of the week, relative to a weekday's mean."""
    daily = 1 + DAILY_SWING * cos(2 * pi * (hour % 24 + 0.5 - PEAK_HOUR) / 24)
    return daily * (WEEKEND if hour // 24 >= 5 else 1.0)


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
        reason = _pick([failure.trials(size) for failure in philly.FAILURES], reasons[here])
        for index, failure in enumerate(philly.FAILURES):
            drawn = here[reason == index]
            times[drawn] = _whole_seconds(quantile(failure.curve(), parts[drawn]))
    ends = np.cumsum(before)
    for job, end, count in zip(failed.tolist(), ends.tolist(), before.tolist(), strict=True):
        attempts[job] = tuple(times[end - count : end].tolist())
    return attempts
