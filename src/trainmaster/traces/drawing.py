"""Draws jobs of synthetic traces from uniform numbers, by inversion: the same numbers give the same bytes."""

from __future__ import annotations

from collections.abc import Sequence
from math import cos, pi

import numpy as np
import numpy.typing as npt

from trainmaster.model.trace import TraceError
from trainmaster.model.units import MINUTE, SECOND

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

PEAK_HOUR, DAILY_SWING, WEEKEND = 15, 0.4, 0.8
"""Arrivals: 1 + 0.4 cos(2π (hour - 15) / 24), most at three in the afternoon, and 0.8 of it on
Saturday and Sunday. Time 0 is midnight before a Monday."""

_WEEK_HOURS = 7 * 24


def check_arguments(jobs: int, gpus: int, load: float, seed: int) -> None:
    if jobs < 1:
        raise TraceError(f"a trace needs at least one job, not {jobs}.")
    if gpus < 1:
        raise TraceError(f"a cluster needs at least one GPU, not {gpus}.")
    if not 0 < load < float("inf"):
        raise TraceError(f"the load must be more than 0, such as 0.9, not {load}.")
    if seed < 0:
        raise TraceError(f"the seed must not be negative, as {seed} is.")


def pick(weights: Sequence[float], uniform: Floats) -> Ints:
    """Indices drawn by weight."""
    ends = np.cumsum(np.asarray(weights, dtype=np.float64))
    return np.searchsorted(ends / ends[-1], uniform, side="right").astype(np.int64)


def log_quantile(points: Sequence[tuple[float, float]], part: Floats) -> Floats:
    """Run times at these quantiles, interpolated linearly in log time between (time, part of the jobs)."""
    times, parts = zip(*points, strict=True)
    return np.exp(np.interp(part, parts, np.log(times)))


def whole_seconds(minutes: Floats) -> Ints:
    """Milliseconds, rounded to whole seconds as in the real trace, at least one second."""
    seconds = np.maximum(1, np.rint(minutes * (MINUTE // SECOND)))
    return (seconds * SECOND).astype(np.int64)


def arrivals(uniform: Floats, span: int) -> Ints:
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
