"""The score of a trial and the result of a suite, from which reports are made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

from trainmaster.evaluation.suite import Suite, Trial

SERVICE_FLOOR_S = 600
"""In rho, a shorter service counts as this: minutes of waiting are not unfair to a job of seconds."""
TRANSIENT = 1.0
"""From this load on the queue grows for as long as jobs arrive: means depend on the span."""
BLOCKS = 20
"""Blocks per trace: enough for an interval, and each long enough that blocks are nearly independent."""


@dataclass(frozen=True, slots=True)
class SizeDelay:
    """Job-seconds of waiting by cause, of the jobs of one size class."""

    size: str
    fair_share_s: float
    fragmentation_s: float
    contention_s: float


SMALL_GPUS, SHORT_S = 2, 800
"""Largest small job and longest short job: the bins of Tiresias' testbed."""


@dataclass(frozen=True, slots=True)
class BinTimes:
    """Completion times of the jobs of one bin of size and length."""

    label: str
    jobs: int
    mean_jct_s: float
    p95_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """The measures of one trial, over its measured jobs unless they say otherwise.

    Where a measured job did not end, every mean, percentile, rho and the makespan is None, and
    `lower_bound_s` is given instead.
    """

    jobs: int
    """Measured jobs, rejected ones left out."""
    load: float | None
    """Of the whole stream, as realised: sum of GPUs x service / (GPUs x arrival span)."""
    window_load: float | None
    """The same of the measured jobs over their own span."""
    is_transient: bool
    gpus: int
    """Of the cluster."""
    mean_jct_s: float | None = None
    """Over all ended jobs, however they ended."""
    passed_jct_s: float | None = None
    """Over the jobs that succeeded."""
    floor_s: float | None
    """Mean service: the mean JCT if no job ever waited."""
    excess_s: float | None = None
    """Mean of JCT - service alone at best placement."""
    p50_s: float | None = None
    p95_s: float | None = None
    p99_s: float | None = None
    max_s: float | None = None
    std_s: float | None = None
    """Standard deviation of the JCT."""
    queue_s: float | None = None
    """Mean time to the first start."""
    makespan_s: float | None = None
    """First submission of the trace to the last end of a measured job."""
    gpu_util: float | None
    """GPU time making progress / (GPUs x time), from the first submission until all measured ended."""
    gpu_hours_wasted: float
    """Of all jobs: switching, lost work, failed runs."""
    preemptions: int
    migrations: int
    rho_p99: float | None = None
    rho_over_1: float | None = None
    """Part of the jobs whose rho is more than 1."""
    rho_max: float | None = None
    rejected: int
    """Of the measured ones: jobs that can never fit."""
    unfinished: int
    lower_bound_s: float | None
    """Mean JCT if every unfinished measured job had ended where the simulation did."""
    after_arrivals: int
    """Measured jobs that ended after the last arrival: they met an emptying cluster."""
    cost: float | None
    """Price of the GPU time that the measured jobs held; None without prices."""
    chosen: Mapping[str, str] | None
    """Settings that tuning picked; None for a contender that is not tuned."""
    tuning_jobs: int
    """Jobs of the disjoint prefix that it was tuned on."""
    delays: tuple[SizeDelay, ...] = ()
    """Of all jobs, measured or not."""
    run_s: float | None = None
    """Mean time from the first start to the end: Big Brain's process time."""
    run_max_s: float | None = None
    run_std_s: float | None = None
    bins: tuple[BinTimes, ...] = ()
    """Small-short, small-long, large-short and large-long jobs; bins without jobs are left out."""
    excess_blocks_s: tuple[float, ...] = ()
    """Mean excess of each of `BLOCKS` runs of consecutive submissions: a fixed trace's own spread."""
    remarks: tuple[str, ...] = ()
    """Problems that did not end the trial: refused actions, a policy that raised."""


@cache
def _reader() -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(Score)


def score_from(mapping: Mapping[str, object]) -> Score:
    """Read a stored score; one with other measures than today's raises ValueError."""
    if set(mapping) != {each.name for each in fields(Score)}:
        raise ValueError("other measures")
    score: Score = _reader().validate_python(mapping)
    return score


@dataclass(frozen=True, slots=True)
class ScoredTrial:
    """A trial with its score and its wall time (which no result depends on)."""

    trial: Trial
    score: Score
    wall_s: float


@dataclass(frozen=True, slots=True)
class Skipped:
    """A workload or contender that could not be run here, and why."""

    experiment: str
    what: str
    """Name of the workload, or label of the contender."""
    why: str


@dataclass(frozen=True, slots=True)
class FailedTrial:
    """A trial that raised an error."""

    trial: Trial
    error: str


@dataclass(frozen=True, slots=True)
class SuiteResult:
    """All scores of a suite, in the suite's own order."""

    suite: Suite
    scored: tuple[ScoredTrial, ...]
    skipped: tuple[Skipped, ...] = ()
    failures: tuple[FailedTrial, ...] = ()
