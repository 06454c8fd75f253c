"""Throughput estimates corrected by measured step times.

For each model, the measured steps on other allocations are fitted by scaling the parts of their
predicted timelines: the most probable scales, given that a prediction of each part is off by the
factors of `TRUST` and a measurement by `NOISE`. A measured allocation itself uses its measurement.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import exp, log
from typing import TYPE_CHECKING

from trainmaster.estimators.allocation import Allocation
from trainmaster.estimators.step_time import AS_PREDICTED, Scales, StepTime
from trainmaster.model.codec import stored_as

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

TRUST = (0.2, 0.7, 1.0, 1.0)
"""How far compute, fixed, inside and between may be off (standard deviation of the logarithm)."""
NOISE = 0.1
"""The same for a measured step, what no scaling of the parts can explain included."""
ROUNDS = 12
SETTLED = 1e-3
FARTHEST = 4.0
"""No part is off by more than this logarithm: a factor of 55."""

MOST_KEYS = 256
MOST_MEASURED = 24


@stored_as("throughput.Measurement")
@dataclass(frozen=True, slots=True)
class Measurement:
    """A predicted step time, and the measured one."""

    allocation: Allocation
    predicted: StepTime
    step_ns: int


Measured = tuple[Measurement, ...]


@stored_as("throughput.Corrections")
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
        self, key: str, allocation: Allocation, predicted: StepTime, step_ns: int
    ) -> Corrections:
        """With one more measurement; a repeated one is averaged with the earlier one."""
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


def measured_ns(measured: Measured, allocation: Allocation, predicted: StepTime) -> int | None:
    """The measured step of this very allocation, if there was one."""
    for known in measured:
        if known.allocation == allocation and known.predicted == predicted:
            return known.step_ns
    return None


def fit_scales(measured: Measured) -> Scales:
    """The most probable scales of the timeline's parts: damped Gauss-Newton on their logarithms."""
    if not measured:
        return AS_PREDICTED
    import numpy as np  # only where something has been measured: it takes 0.1 s to import

    logs = [0.0] * len(TRUST)
    damping, misfit = 1e-3, _misfit(measured, logs)
    for _ in range(ROUNDS):
        normal, right = _normal_equations(measured, logs)
        normal[np.diag_indices(len(logs))] *= 1 + damping
        changes = np.linalg.solve(normal, right)  # the priors make it positive definite
        moved = [old + change for old, change in zip(logs, changes.tolist(), strict=True)]
        found = _misfit(measured, moved)
        if found >= misfit:
            damping *= 10
            continue
        has_settled = misfit - found < SETTLED * misfit
        logs, misfit, damping = moved, found, damping / 10
        if has_settled:
            break
    return _scales(logs)


def _scales(logs: list[float]) -> Scales:
    return Scales(*(exp(max(-FARTHEST, min(FARTHEST, each))) for each in logs))


def _misfit(measured: Measured, logs: list[float]) -> float:
    """Minus twice the log-probability of these scales."""
    scales = _scales(logs)
    prior = sum((each / trust) ** 2 for each, trust in zip(logs, TRUST, strict=True))
    return prior + sum(
        (log(known.predicted.step_ns(scales) / known.step_ns) / NOISE) ** 2 for known in measured
    )


def _normal_equations(measured: Measured, logs: list[float]) -> tuple[Array, Array]:
    """Matrix and right side of the next Gauss-Newton step.

    A step is the sum of its parts, each in proportion to its scale, so the slope of its logarithm by
    that of a scale is the part's share of the step.
    """
    import numpy as np

    scales, precision = _scales(logs), 1 / np.square(TRUST)
    parts = np.array([known.predicted.parts_ns(scales) for known in measured], float)
    steps = parts.sum(axis=1)
    slopes = parts / (steps[:, None] * NOISE)
    residuals = np.log(steps / [known.step_ns for known in measured]) / NOISE
    normal = np.diag(precision) + slopes.T @ slopes
    return normal, -precision * logs - slopes.T @ residuals
