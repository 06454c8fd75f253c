"""Step functions behind the plots: distributions, thinning, averages, the busiest hour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from trainmaster.model.result import Curve, JobResult, Result, Status
from trainmaster.model.units import HOUR, to_seconds

FloatArray = npt.NDArray[np.float64]

MOST_POINTS = 1_500
SMOOTH_POINTS = 240


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """A step function: `ys[i]` holds from `xs[i]` on."""

    xs: FloatArray
    ys: FloatArray

    @property
    def is_empty(self) -> bool:
        return len(self.xs) == 0


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """A stretch of simulated time."""

    start_ms: int
    end_ms: int
    chosen: str
    """Why this one, in words."""

    @property
    def length_ms(self) -> int:
        return self.end_ms - self.start_ms


def from_curve(curve: Curve, origin_s: float) -> Steps:
    """A curve over the time since `origin_s`."""
    return Steps(np.asarray(curve.times_s, dtype=np.float64) - origin_s, _array(curve.values))


def distribution(values: Sequence[float], population: int) -> Steps:
    """Part of a population at or below each value; those without a value are never reached."""
    if not values:
        return Steps(_array(()), _array(()))
    xs, counts = np.unique(_array(values), return_counts=True)
    return Steps(xs, np.cumsum(counts) / max(population, len(values)))


def completion_times(result: Result) -> Steps:
    """Distribution of JCT over the accepted jobs: a job cut off by the horizon never arrives."""
    ended = [
        to_seconds(job.jct_ms) for job in result.jobs if has_ended(job) and job.jct_ms is not None
    ]
    return distribution(ended, accepted(result))


def rho_values(result: Result) -> Steps:
    """Distribution of finish-time fairness over the jobs that have one."""
    rhos = [job.rho for job in result.jobs if job.rho is not None]
    return distribution(rhos, len(rhos))


def has_ended(job: JobResult) -> bool:
    return job.finish_ms is not None and job.status not in (Status.UNFINISHED, Status.REJECTED)


def accepted(result: Result) -> int:
    return sum(job.status is not Status.REJECTED for job in result.jobs)


def thinned(steps: Steps, most: int = MOST_POINTS) -> Steps:
    """At most `most` points of a curve over time, its lowest and highest ones among them.

    Of each of many equal stretches the first, last, lowest and highest point stay: the last,
    because it holds until the next stretch, however far that is.
    """
    if len(steps.xs) <= most:
        return steps
    edges = np.linspace(steps.xs[0], steps.xs[-1], most // 4 + 1)
    bounds = np.searchsorted(steps.xs, edges[1:-1]).tolist()
    kept: set[int] = set()
    for first, past in pairwise([0, *bounds, len(steps.xs)]):
        if first < past:
            stretch = steps.ys[first:past]
            kept.update((first, past - 1))
            kept.update((first + int(stretch.argmin()), first + int(stretch.argmax())))
    return _picked(steps, np.array(sorted(kept)))


def thinned_ranks(steps: Steps, most: int = MOST_POINTS) -> Steps:
    """At most `most` points of a distribution, evenly by rank, both ends among them."""
    size = len(steps.xs)
    if size <= most:
        return steps
    return _picked(steps, np.unique(np.linspace(0, size - 1, most).round().astype(np.int64)))


def _picked(steps: Steps, index: npt.NDArray[np.int64]) -> Steps:
    return Steps(steps.xs[index], steps.ys[index])


def smoothed(steps: Steps, points: int = SMOOTH_POINTS) -> Steps:
    """Time-weighted means over equal stretches, at their middles."""
    edges = np.linspace(steps.xs[0], steps.xs[-1], points + 1)
    widths = np.diff(edges)
    if not widths.all():
        return steps
    sums = np.interp(edges, steps.xs, _integral(steps))
    return Steps((edges[:-1] + edges[1:]) / 2, np.diff(sums) / widths)


def mean(steps: Steps) -> float | None:
    """Time-weighted mean from the first to the last point; None when nothing was recorded."""
    if steps.is_empty:
        return None
    span = float(steps.xs[-1] - steps.xs[0])
    return float(_integral(steps)[-1]) / span if span > 0 else float(steps.ys[-1])


def first_submit_s(results: Sequence[Result]) -> float:
    """Where the reports' time begins."""
    submits = [job.submit_ms for result in results for job in result.jobs]
    curves = [result.queue_length.times_s[0] for result in results if result.queue_length.times_s]
    return to_seconds(min(submits)) if submits else min(curves, default=0.0)


def busiest_hour(results: Sequence[Result]) -> TimeWindow | None:
    """The hour in which jobs come to GPUs or leave them most often, over all policies.

    A run shorter than an hour is shown whole, as long as the longest of the policies took.
    """
    starts = [stint.start_ms for result in results for stint in result.stints]
    ends = [stint.end_ms for result in results for stint in result.stints]
    if not starts:
        return None
    begin_ms, end_ms = min(starts), max(ends)
    if end_ms - begin_ms <= HOUR:
        return TimeWindow(begin_ms, end_ms, "the whole run, which is no longer than an hour,")
    changes = np.sort(np.asarray([*starts, *ends], dtype=np.int64))
    within = np.searchsorted(changes, changes + HOUR, side="right") - np.arange(len(changes))
    first = int(changes[int(np.argmax(within))])
    start_ms = max(begin_ms, min(first, end_ms - HOUR))
    return TimeWindow(start_ms, start_ms + HOUR, "the hour in which GPUs change hands most often,")


def _integral(steps: Steps) -> FloatArray:
    """The integral up to each point."""
    return np.concatenate([[0.0], np.cumsum(steps.ys[:-1] * np.diff(steps.xs))])


def _array(values: Sequence[float]) -> FloatArray:
    return np.asarray(values, dtype=np.float64)
