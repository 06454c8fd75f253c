"""Where 1/G of a job (the expected service per completion) comes from: a file of samples, or learning.

`SampledService` answers from a file of samples, one distribution for all jobs. `LearnedService` answers
from ended and running jobs (predictor.py), by classes as fine as the option `classes` says. Both also say
at which attained service the answer changes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from fractions import Fraction
from itertools import pairwise
from typing import Any, Protocol

from trainmaster.config.options import ContentError, FromFile, choice, option, option_from_file
from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.estimators.service.bins import BINS, GPU_SECOND, NO_END, UPPER, as_service, bin_of
from trainmaster.estimators.service.gittins_of_samples import EmpiricalDistribution, gittins_costs
from trainmaster.estimators.service.predictor import BY_HAZARDS, Observations, ServicePredictor

EXACT_SAMPLES = 64
"""With at most this many different samples the index is computed exactly at each comparison."""
STEP_GROWTH = 1.05
"""Growth of the steps in which the index of more samples is tabulated."""
CLASSES = ("all", "size", "queue", "user")
"""The classes that learned service is kept for: the one chosen, and all before it."""

Samples = FromFile[tuple[int, ...]]
Cost = tuple[int, int | None]
"""(1/G as service, the attained service at which it changes if that is known)."""


class GittinsSource(Protocol):
    """A source of 1/G. What it has learned is an argument, because it is part of the memo."""

    falls: bool
    """Whether 1/G within a quantum falls by all service received until it changes; else it stays."""

    def learn(self, seen: Observations, view: View, now: int) -> Observations:
        """With the jobs that have ended since; all jobs are ranked again where it changed."""
        ...

    def cost(self, seen: Observations, record: JobRecord, attained: int) -> Cost:
        """1/G for the best quantum."""
        ...

    def cost_within(
        self, seen: Observations, record: JobRecord, attained: int, quantum: int | None
    ) -> Cost:
        """1/G for this quantum, or for one without end."""
        ...


def gittins_source(samples: Samples, classes: str = CLASSES[-1]) -> GittinsSource:
    return SampledService(samples.value) if samples.value else LearnedService(classes)


def samples_option() -> Any:
    return option_from_file(
        (),
        parse_samples,
        "a file of total GPU-seconds of past jobs; without it, learned from jobs that end",
    )


def classes_option() -> Any:
    return option(
        CLASSES[-1],
        choice(*CLASSES),
        "how fine the classes of learned service are; user: by user and program too",
    )


# -- samples -----------------------------------------------------------------------------------------


def parse_samples(text: str) -> tuple[int, ...]:
    """One number to a line, under a heading or not."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        cell = line.strip()
        try:
            gpu_s = float(cell)
        except ValueError:
            if not cell or (number == 1 and not cell[0].isdigit() and cell[0] not in "+-."):
                continue
            gpu_s = -1.0
        if not 0 <= gpu_s < 1e12:
            raise ContentError(f"line {number} must be GPU-seconds of at least 0, not {cell!r}")
        found.append(round(gpu_s * GPU_SECOND))
    if not any(found):
        raise ContentError("has no sample above 0: give one number of GPU-seconds to a line")
    return tuple(sorted(found))


class SampledService:
    """One distribution for all jobs."""

    def __init__(self, samples: Iterable[int]) -> None:
        self.samples = EmpiricalDistribution(tuple(samples))
        self.falls = len(self.samples.points) <= EXACT_SAMPLES
        self._steps = [] if self.falls else _fine_steps(self.samples.points)
        self._table: list[int] | None = None

    def learn(self, seen: Observations, view: View, now: int) -> Observations:
        return seen

    def cost(self, seen: Observations, record: JobRecord, attained: int) -> Cost:
        if self.falls:
            inverse = _inverse(self.samples.index(attained))
            return inverse, attained + 1 if inverse < NO_END else None
        if self._table is None:
            pieces = [self.samples.interval(a, b) for a, b in pairwise(self._steps)]
            inverses = gittins_costs(pieces)
            self._table = [*(as_service(inverse / GPU_SECOND) for inverse in inverses), NO_END]
        step = bisect_right(self._steps, attained) - 1
        return self._table[step], self._next(step)

    def cost_within(
        self, seen: Observations, record: JobRecord, attained: int, quantum: int | None
    ) -> Cost:
        if self.falls:
            return self._inverse_within(attained, quantum), self._next_sample(attained, quantum)
        step = bisect_right(self._steps, attained) - 1
        return self._inverse_within(self._steps[step], quantum), self._next(step)

    def _inverse_within(self, attained: int, quantum: int | None) -> int:
        if quantum is None:
            return _inverse(self.samples.index_to_the_end(attained))
        return _inverse(self.samples.index(attained, quantum))

    def _next_sample(self, attained: int, quantum: int | None) -> int | None:
        """The attained service at which a sample is passed, or comes within the quantum."""
        passed = self.samples.next_point(attained)
        if quantum is None or passed is None:
            return passed
        reached = self.samples.next_point(attained + quantum)
        return passed if reached is None else min(passed, reached - quantum)

    def _next(self, step: int) -> int | None:
        return self._steps[step + 1] if step + 1 < len(self._steps) else None


def _inverse(index: Fraction) -> int:
    return min(NO_END, index.denominator // index.numerator) if index else NO_END


def _fine_steps(points: list[int]) -> list[int]:
    """From 0 over the smallest sample to the largest, growing evenly."""
    found, step = [0], points[0] or points[1]
    while step < points[-1]:
        found.append(step)
        step = max(step + 1, round(step * STEP_GROWTH))
    return [*found, points[-1]]


# -- learned ---------------------------------------------------------------------------------------


class LearnedService:
    """By class, from ended and running jobs."""

    falls = False

    def __init__(self, classes: str = CLASSES[-1]) -> None:
        self._predictor = ServicePredictor(BY_HAZARDS, 1 + CLASSES.index(classes))

    def learn(self, seen: Observations, view: View, now: int) -> Observations:
        return self._predictor.learn(seen, view, now)

    def cost(self, seen: Observations, record: JobRecord, attained: int) -> Cost:
        step = bin_of(attained)
        return self._predictor.forecast(seen, record).gittins_cost(step), UPPER[step]

    def cost_within(
        self, seen: Observations, record: JobRecord, attained: int, quantum: int | None
    ) -> Cost:
        forecast = self._predictor.forecast(seen, record)
        if forecast is BY_HAZARDS.unknown:
            return 0, None  # all are unknown: no job is preferred to another
        step = bin_of(attained) & ~1  # doublings are fine enough inside a queue, and half the work
        return forecast.gittins_cost_within(step, quantum), UPPER[min(step + 1, BINS - 1)]
