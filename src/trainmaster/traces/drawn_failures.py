"""Reasons of failures for a trace that has none, drawn from the failure table of Microsoft's Philly study.

A job fails for one reason, that of all its failed attempts: it is drawn by how often the study saw the
reason in jobs of that size, by how likely so many attempts are with it, and by how likely each attempt's
run time to failure is. A job that passes in the end has only reasons of which another attempt may end
otherwise. Of a trace in which nothing fails, so many jobs are chosen to fail, at last or at first, as
failed in the study, and their failed attempts are drawn too. All comes from one seeded PCG64 stream.
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
RECOVERED = 1_013 / 96_260
"""Part of all jobs that fail at first and pass in the end: the study counts 17,581 jobs by reason, and
16,568 unsuccessful ones; that the others passed is ours, some may have failed for two reasons."""

_DETERMINISTIC = np.array([reason.is_deterministic for reason in philly.FAILURES])
_TRIALS_PER_JOB = np.array([reason.in_all / reason.jobs for reason in philly.FAILURES])


def draw_failures(trace: Trace, seed: int, jobs_per_input: float = JOBS_PER_INPUT) -> Trace:
    """The trace with a reason for each failure, and with failures where it has none."""
    rng = np.random.Generator(np.random.PCG64(seed))
    jobs: Sequence[TracedJob] = trace.jobs
    notes = trace.notes
    has_failures = any(each.failed_attempts_ms or _fails(each) for each in jobs)
    if has_failures:
        drawn = [_with_reasons(each, rng) for each in jobs]
    else:
        drawn = [
            _failing(each, u, rng) for each, u in zip(jobs, rng.random(len(jobs)), strict=True)
        ]
        failed = sum(map(_fails, drawn))
        notes = (*notes, f"nothing fails in the trace: {failed} of its jobs were chosen to fail.")
    return replace(trace, jobs=tuple(_with_inputs(drawn, rng, jobs_per_input)), notes=notes)


def _fails(traced: TracedJob) -> bool:
    return traced.outcome is Outcome.FAILED


def _failing(traced: TracedJob, chosen: float, rng: np.random.Generator) -> TracedJob:
    """With failures where this number from 0 to 1 chooses it, whatever its size and run time."""
    if chosen >= philly.UNSUCCESSFUL + RECOVERED:
        return traced
    fails = chosen < philly.UNSUCCESSFUL
    outcome = Outcome.FAILED if fails else traced.outcome
    reason = _draw(traced, (traced.service_ms,) if fails else (), rng, fails=fails)
    trials = min(int(rng.geometric(reason.jobs / reason.in_all)), MOST_ATTEMPTS)
    minutes = quantile(reason.curve(), rng.random(trials - fails)).tolist()
    before = tuple(max(1, round(each * 60)) * SECOND for each in minutes)
    return _with(replace(traced, outcome=outcome, failed_attempts_ms=before), reason)


def _with_reasons(traced: TracedJob, rng: np.random.Generator) -> TracedJob:
    """With a reason for the failures that it has."""
    fails = _fails(traced)
    times = (*traced.failed_attempts_ms, *((traced.service_ms,) if fails else ()))
    if not times:
        return traced
    return _with(traced, _draw(traced, times, rng, fails=fails, trials=len(times)))


def _with(traced: TracedJob, reason: philly.FailureReason) -> TracedJob:
    before = len(traced.failed_attempts_ms)
    reasons = (reason.key,) * (before + _fails(traced))
    job = replace(traced.job, retries=max(RETRIES, before))
    return replace(traced, job=job, failure_reasons=reasons)


def _draw(
    traced: TracedJob,
    times: Sequence[int],
    rng: np.random.Generator,
    *,
    fails: bool,
    trials: int | None = None,
) -> philly.FailureReason:
    """The reason of a job by its size, the run times of failed attempts, and their number if known."""
    gpus = traced.job.demand.nominal.count
    weights = np.array([each.jobs * each.trials(gpus) / each.in_all for each in philly.FAILURES])
    if trials is not None:
        weights = weights * _chance_of_trials(trials)
    for ms in times:
        weights = weights * _likelihoods(ms)
    if not fails:
        weights = np.where(_DETERMINISTIC, 0.0, weights)
    ends = np.cumsum(weights)
    return philly.FAILURES[int(np.searchsorted(ends / ends[-1], rng.random(), side="right"))]


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
