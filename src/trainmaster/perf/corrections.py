"""Step 3 of the poster: the estimation corrected by what runs really do.

For each model, the measured steps on other allocations are fitted by scaling the parts of their
predicted timelines: the most probable scales, given that a prediction of each part is off by the
factors of `TRUST` and a measurement by `NOISE`. What has been measured itself is believed as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import exp, log

from trainmaster.perf.allocation import Allocation
from trainmaster.perf.timeline import AS_PREDICTED, Scales, Timeline

TRUST = (0.2, 0.7, 1.0, 1.0)
"""How far compute, fixed, inside and between may be off (standard deviation of the logarithm)."""
NOISE = 0.05
"""The same for a measured step."""
ROUNDS = 12
NUDGE = 1e-4

MOST_KEYS = 256
MOST_MEASURED = 24


@dataclass(frozen=True, slots=True)
class Measurement:
    """What was foretold of a step, and what it took."""

    allocation: Allocation
    predicted: Timeline
    step_ns: int


Measured = tuple[Measurement, ...]


@dataclass(frozen=True)
class Corrections:
    """All measurements that matter, by job or model, the least recently extended first; a value."""

    entries: tuple[tuple[str, Measured], ...] = ()

    @cached_property
    def _by_key(self) -> dict[str, Measured]:
        return dict(self.entries)

    def of(self, key: str) -> Measured:
        return self._by_key.get(key, ())

    def updated(
        self, key: str, allocation: Allocation, predicted: Timeline, step_ns: int
    ) -> Corrections:
        """With one more measurement; a repeated one is averaged with what was known of it."""
        kept = []
        for known in self.of(key):
            if known.allocation == allocation and known.predicted == predicted:
                step_ns = (known.step_ns + step_ns) // 2
            else:
                kept.append(known)
        kept.append(Measurement(allocation, predicted, step_ns))
        entry = (key, tuple(kept[-MOST_MEASURED:]))
        others = tuple(each for each in self.entries if each[0] != key)
        return Corrections((*others, entry)[-MOST_KEYS:])


NOTHING_MEASURED = Corrections()


def measured_ns(measured: Measured, allocation: Allocation, predicted: Timeline) -> int | None:
    """The measured step of this very allocation, if there was one."""
    for known in measured:
        if known.allocation == allocation and known.predicted == predicted:
            return known.step_ns
    return None


def fitted(measured: Measured) -> Scales:
    """The most probable scales of the timeline's parts: damped Gauss-Newton on their logarithms."""
    if not measured:
        return AS_PREDICTED
    logs = [0.0] * len(TRUST)
    damping, misfit = 1e-3, _misfit(measured, logs)
    for _ in range(ROUNDS):
        normal, gradient = _normal_equations(measured, logs)
        for i, row in enumerate(normal):
            row[i] *= 1 + damping
        step = _solved(normal, gradient)
        moved = [old + change for old, change in zip(logs, step, strict=True)]
        found = _misfit(measured, moved)
        if found < misfit:
            logs, misfit, damping = moved, found, damping / 10
        else:
            damping *= 10
    return _scales(logs)


def _scales(logs: list[float]) -> Scales:
    return Scales(*(exp(max(-4.0, min(4.0, each))) for each in logs))


def _residual(known: Measurement, logs: list[float]) -> float:
    return log(known.predicted.step_ns(_scales(logs)) / known.step_ns) / NOISE


def _misfit(measured: Measured, logs: list[float]) -> float:
    prior = sum((each / trust) ** 2 for each, trust in zip(logs, TRUST, strict=True))
    return prior + sum(_residual(known, logs) ** 2 for known in measured)


def _normal_equations(
    measured: Measured, logs: list[float]
) -> tuple[list[list[float]], list[float]]:
    """J'J and -J'r of residuals and prior at these logarithms."""
    size = len(logs)
    normal = [[0.0] * size for _ in range(size)]
    gradient = [0.0] * size
    for i, (each, trust) in enumerate(zip(logs, TRUST, strict=True)):
        normal[i][i] += 1 / trust**2
        gradient[i] -= each / trust**2
    for known in measured:
        here = _residual(known, logs)
        slopes = []
        for i in range(size):
            nudged = [each + NUDGE * (j == i) for j, each in enumerate(logs)]
            slopes.append((_residual(known, nudged) - here) / NUDGE)
        for i in range(size):
            gradient[i] -= slopes[i] * here
            for j in range(size):
                normal[i][j] += slopes[i] * slopes[j]
    return normal, gradient


def _solved(matrix: list[list[float]], right: list[float]) -> list[float]:
    """Gaussian elimination; the matrix is positive definite, so no pivot is zero."""
    size = len(right)
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for i in range(size):
        for k in range(i + 1, size):
            factor = rows[k][i] / rows[i][i]
            rows[k] = [a - factor * b for a, b in zip(rows[k], rows[i], strict=True)]
    solution = [0.0] * size
    for i in reversed(range(size)):
        known = sum(rows[i][j] * solution[j] for j in range(i + 1, size))
        solution[i] = (rows[i][size] - known) / rows[i][i]
    return solution
