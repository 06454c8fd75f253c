"""Training with parameter servers: how fast on p servers and w workers (Optimus, EuroSys'18, section 3.2).

    asynchronous   f(p, w) = w / (t0 + t1 w/p + t2 w + t3 p)
    synchronous    f(p, w) = 1 / (t0 M/w + t1 + t2 w/p + t3 w + t4 p),   M the global batch

in steps per unit of time, all t >= 0, fitted to measured points; a measured point overrides the fit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Point = tuple[int, int, float]
"""(servers, workers, measured speed)."""


def terms(servers: int, workers: int, batch: float | None) -> tuple[float, ...]:
    """What the times t are multiplied by; without a batch, asynchronous."""
    ratio = workers / servers
    if batch is None:
        return (1.0, ratio, float(workers), float(servers))
    return (batch / workers, 1.0, ratio, float(workers), float(servers))


def nonnegative(rows: Sequence[Sequence[float]], values: Sequence[float]) -> list[float]:
    """Coefficients >= 0 with the least squared residuals."""
    from scipy.optimize import nnls

    found: list[float] = nnls(rows, values)[0].tolist()
    return found


@dataclass(frozen=True, slots=True)
class SpeedModel:
    """The fitted surface, and the points where it is not needed."""

    times: tuple[float, ...]
    batch: float | None = None
    """Samples per step over all workers when these wait for each other; None: they do not."""
    measured: Mapping[tuple[int, int], float] = field(default_factory=dict)

    def speed(self, servers: int, workers: int) -> float:
        known = self.measured.get((servers, workers))
        if known is not None:
            return known
        parts = zip(self.times, terms(servers, workers, self.batch), strict=True)
        time = sum(coefficient * term for coefficient, term in parts)
        if time <= 0:
            return 0.0
        return (1.0 if self.batch is not None else workers) / time


def fit_speed_model(
    points: Sequence[Point], batch: float | None = None, trust: Sequence[float] = ()
) -> SpeedModel | None:
    """The model through these points, each as likely to be off by a given percentage.

    None where they are fewer than the times that they can tell apart: two less than all where there
    are always as many servers as workers. `trust` weighs points (1 unless said), and only those of full
    trust count as measured.
    """
    is_tied = all(servers == workers for servers, workers, _ in points)
    if len(points) < len(terms(1, 1, batch)) - (2 if is_tied else 0):
        return None
    weights = trust or [1.0] * len(points)
    rows, values = [], []
    for (servers, workers, speed), weight in zip(points, weights, strict=True):
        scale = weight * speed / (1.0 if batch is not None else workers)
        rows.append([scale * term for term in terms(servers, workers, batch)])
        values.append(weight)
    times = tuple(nonnegative(rows, values))
    measured = {
        (servers, workers): speed
        for (servers, workers, speed), weight in zip(points, weights, strict=True)
        if weight >= 1.0
    }
    return SpeedModel(times, batch, measured)
