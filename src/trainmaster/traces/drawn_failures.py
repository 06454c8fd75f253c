"""Reasons of failures for a trace that has none, drawn from the failure table of Microsoft's Philly study.

A job fails for one reason, that of all its failed attempts: it is drawn by how often the study saw the
reason in jobs of that size, by how likely so many attempts are with it, and by how likely each attempt's
run time to failure is. A job that passes in the end has only reasons of which another attempt may end
otherwise. Of a trace in which nothing fails, so many jobs are chosen to fail as failed in the study, and
failed attempts before their last one are drawn too. Everything comes from one seeded PCG64 stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from trainmaster.model.trace import Outcome, Trace, TracedJob
from trainmaster.model.units import MINUTE, SECOND
from trainmaster.traces import philly_tables as philly
from trainmaster.traces.csv_reader import RETRIES
from trainmaster.traces.philly_like import USERS_PER_QUEUE, quantile

Floats = npt.NDArray[np.float64]

BAD_INPUT = "incorrect-input"
"""Jobs of this reason fail on an input that they share with others."""
JOBS_PER_INPUT = 4.0
"""Jobs in a row of a queue that fail on the same input, on average: ours, the study does not say."""
NEAR = 0.1
"""Run times count as alike within so much of their logarithm: 10 % either way."""
UNLIKELY = 1e-6
"""Chance of a run time that the study's curve of a reason does not reach."""
MOST_ATTEMPTS = 20

_DETERMINISTIC = np.array([reason.is_deterministic for reason in philly.FAILURES])
_TRIALS_PER_JOB = np.array([reason.in_all / reason.jobs for reason in philly.FAILURES])


def draw_failures(trace: Trace, seed: int, jobs_per_input: float = JOBS_PER_INPUT) -> Trace:
    """The trace with a reason for each failure, and with failures where it has none."""
    rng = np.random.Generator(np.random.PCG64(seed))
    jobs: Sequence[TracedJob] = trace.jobs
    notes = trace.notes
    has_failures = any(each.failed_attempts_ms or _fails(each) for each in jobs)
    if not has_failures:
        jobs = _failing(jobs, rng)
        failed = sum(map(_fails, jobs))
        notes = (*notes, f"nothing fails in the trace: {failed} of its jobs were chosen to fail.")
    drawn = [_with_reasons(each, rng, draws_attempts=not has_failures) for each in jobs]
    return replace(trace, jobs=tuple(_with_inputs(drawn, rng, jobs_per_input)), notes=notes)


def _fails(traced: TracedJob) -> bool:
    return traced.outcome is Outcome.FAILED


def _failing(jobs: Sequence[TracedJob], rng: np.random.Generator) -> list[TracedJob]:
    """With the study's part of unsuccessful jobs, whatever their size and run time."""
    fails = (rng.random(len(jobs)) < philly.UNSUCCESSFUL).tolist()
    return [
        replace(each, outcome=Outcome.FAILED) if fail else each
        for each, fail in zip(jobs, fails, strict=True)
    ]


def _with_reasons(
    traced: TracedJob, rng: np.random.Generator, *, draws_attempts: bool
) -> TracedJob:
    if not traced.failed_attempts_ms and not _fails(traced):
        return traced
    gpus = traced.job.demand.nominal.count
    last = (traced.service_ms,) if _fails(traced) else ()
    times = (*traced.failed_attempts_ms, *last)
    weights = np.array([each.jobs * each.trials(gpus) / each.in_all for each in philly.FAILURES])
    if not draws_attempts:
        weights = weights * _chance_of_trials(len(times))
    for ms in times:
        weights = weights * _likelihoods(ms)
    if not _fails(traced):
        weights = np.where(_DETERMINISTIC, 0.0, weights)
    ends = np.cumsum(weights)
    reason = philly.FAILURES[int(np.searchsorted(ends / ends[-1], rng.random(), side="right"))]
    before = traced.failed_attempts_ms
    if draws_attempts:
        before = _attempts_before(reason, rng)
    reasons = (reason.key,) * (len(before) + len(last))
    job = replace(traced.job, retries=max(RETRIES, len(before)))
    return replace(traced, job=job, failed_attempts_ms=before, failure_reasons=reasons)


def _chance_of_trials(count: int) -> Floats:
    """That a job has so many failed trials, by reason: geometric with the study's mean."""
    last = 1 / _TRIALS_PER_JOB
    return np.asarray(last * (1 - last) ** (count - 1) + UNLIKELY)


def _likelihoods(ms: int) -> Floats:
    """That a trial fails after about this time, by reason."""
    at = np.log(max(philly.SHORTEST_MIN, ms / MINUTE))
    return np.array([_part(curve, at + NEAR) - _part(curve, at - NEAR) for curve in _CURVES]) + (
        UNLIKELY
    )


def _part(curve: tuple[Floats, Floats], at: float) -> float:
    """Part of the trials that have failed by then."""
    return float(np.interp(at, curve[0], curve[1]))


def _curve(reason: philly.FailureReason) -> tuple[Floats, Floats]:
    minutes, parts = (np.array(each) for each in zip(*reason.curve(), strict=True))
    steps = np.arange(len(minutes)) * 1e-9  # so that equal percentiles are in order too
    return np.log(minutes) + steps, parts


_CURVES = tuple(_curve(reason) for reason in philly.FAILURES)


def _attempts_before(reason: philly.FailureReason, rng: np.random.Generator) -> tuple[int, ...]:
    """Run times of the failed attempts before the last one."""
    mean = reason.in_all / reason.jobs
    trials = min(int(rng.geometric(1 / mean)), MOST_ATTEMPTS)
    minutes = quantile(reason.curve(), rng.random(trials - 1))
    return tuple(max(1, round(each * 60)) * SECOND for each in minutes.tolist())


def _with_inputs(
    jobs: Sequence[TracedJob], rng: np.random.Generator, jobs_per_input: float
) -> list[TracedJob]:
    """Jobs of a queue that fail on inputs fail on the same one for a while; who has no user gets one."""
    inputs: dict[str, int] = {}
    shares = np.cumsum([1 / (n + 1) for n in range(USERS_PER_QUEUE)])
    found = []
    for traced in jobs:
        if BAD_INPUT in traced.failure_reasons:
            job = traced.job
            if job.queue not in inputs or rng.random() < 1 / jobs_per_input:
                inputs[job.queue] = inputs.get(job.queue, 0) + 1
            if not job.user:
                nth = int(np.searchsorted(shares / shares[-1], rng.random(), side="right"))
                job = replace(job, user=f"{job.queue}-u{nth}")
            path = f"/data/{job.queue}/{inputs[job.queue]}"
            traced = replace(traced, job=job, bad_input=path)
        found.append(traced)
    return found
