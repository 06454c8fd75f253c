"""Reports of progress in a simulation: a loss curve for each job that converges where its work ends.

A trace says how long a job runs, not how its loss falls. So each job gets a curve of Optimus' form,
1 / (b0 k + b1) + b2 with k in epochs, drawn from its id and the seed, such that the convergence rule of
`estimators.convergence` holds for the first time at the end of the job's true work. Its steps are the trace's
`iterations`, or one per second of service; between 20 and 40 epochs make up the whole (a job of fewer
steps has an epoch per step, and ends before the rule can hold).

Reported losses and speeds carry the error of `--estimates`: none with `exact`, up to F either way with
`noisy:F`, and 2 % with `none`: estimates may be unknown, but these are measurements.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random

from trainmaster.estimators.convergence import LossCurve, curve_converging_at
from trainmaster.model import events as e
from trainmaster.model.job import Run
from trainmaster.model.progress import Sample
from trainmaster.model.trace import TracedJob
from trainmaster.model.units import NOMINAL, SECOND

EPOCHS = (20, 40)
STARTS = (0.5, 2.0)
"""Range of the part of the loss that training removes, 1/b1."""
FLOOR = 0.1
"""The loss that remains, b2, is at most this fraction of the loss that training removes."""
MEASURING_ERROR = 0.02
"""Relative error of a report where estimates are unknown."""

RunProgress = tuple[Run, TracedJob, int, int, int]
"""(run, its job, work done, GPUs, speed)."""


@dataclass(frozen=True, slots=True)
class Training:
    """Steps, epochs and loss curve of one job's training."""

    steps: int
    epoch_steps: int
    loss: LossCurve
    work: int
    """Work that all its steps take."""

    def step_at(self, work: int) -> int:
        return self.steps * work // self.work


def training_of(traced: TracedJob, seed: int) -> Training:
    """The same for the same job and seed."""
    random = Random(f"loss/{seed}/{traced.job.id}")
    steps = traced.job.iterations or max(EPOCHS[1], traced.service_ms // SECOND)
    epoch_steps = max(1, steps // random.randint(*EPOCHS))
    b1 = 1 / random.uniform(*STARTS)
    b2 = FLOOR * random.random() / b1
    loss = curve_converging_at(steps / epoch_steps, b1, b2)
    return Training(steps, epoch_steps, loss, max(1, traced.service_ms * NOMINAL))


class ProgressReports:
    """Progress reports of elastic runs, at every multiple of an interval."""

    def __init__(self, every_ms: int, error: float, seed: int) -> None:
        self.every_ms = every_ms
        self.error = error
        self._seed = seed
        self._trainings: dict[str, Training] = {}
        self.reported_ms = -1
        """When reports were last taken."""

    def next_time(self, now: int) -> int:
        """The next multiple at which no run has reported yet."""
        if now % self.every_ms == 0 and self.reported_ms < now:
            return now
        return (now // self.every_ms + 1) * self.every_ms

    def facts_at(self, now: int, runs: Iterable[RunProgress]) -> list[e.Event]:
        """One report per run where one is due."""
        if now % self.every_ms or self.reported_ms == now:
            return []
        self.reported_ms = now
        return [
            e.RunProgressed(run, self._sample(traced, work, gpus, speed, now))
            for run, traced, work, gpus, speed in runs
        ]

    def _sample(self, traced: TracedJob, work: int, gpus: int, speed: int, now: int) -> Sample:
        name = traced.job.id
        training = self._trainings.get(name)
        if training is None:
            training = self._trainings[name] = training_of(traced, self._seed)
        step = training.step_at(work)
        loss, measured = training.loss.at(step / training.epoch_steps), float(speed)
        if self.error:
            random = Random(f"progress/{self._seed}/{name}/{now}")
            loss *= 1 + self.error * (2 * random.random() - 1)
            measured *= 1 + self.error * (2 * random.random() - 1)
        return Sample(
            step=step,
            loss_ppm=round(loss * NOMINAL),
            gpus=gpus,
            speed_ppm=max(1, round(measured)),
            epoch_steps=training.epoch_steps,
            work=work,
        )
