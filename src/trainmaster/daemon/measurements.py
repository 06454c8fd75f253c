"""What is measured of runs, as facts: part of the GPU kept busy, peak of GPU memory, time of a step.

A measurement becomes a fact when it is noticeable: the first one after a warm-up, or after three steps where
those are counted, then one that differs by a tenth, at most every ten seconds for each job, but at once where
the memory comes near what is reserved; and what was read by then when a run has succeeded. Utilisation and
step time count only while a run has its GPUs for itself; memory is its own whoever is beside it. Policies
read them through the job's record.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from statistics import median
from typing import NamedTuple

from trainmaster.core.lifecycle import Phase
from trainmaster.core.state import JobRecord, State
from trainmaster.estimators.memory.observed_memory import (
    best,
    is_near,
    least_top,
    of_own_run,
)
from trainmaster.model.engine_reports import Progressed
from trainmaster.model.job import Run
from trainmaster.model.memory_estimate import MemoryEstimate
from trainmaster.model.profile import Profile
from trainmaster.model.units import NOMINAL, SECOND

WARM_UP_MS = 10 * SECOND
"""A program that has just started loads data and compiles."""
AGAIN_MS = 10 * SECOND
WINDOW_MS = 10 * SECOND
"""Utilisation is the mean over this time (AntMan, OSDI'20, section 4), ..."""
TRAINING_MS = 4 * SECOND
"""... at first over this part of it, where the run is known to train."""
LEAST_STEPS = 3
"""After so many steps a run trains, and its allocator has what a step needs."""
LEAST_UTIL_PPM = NOMINAL // 50
"""Smaller differences of the utilisation are noise, however small it is."""
STEP_REPORTS = 10
"""The step time is the median of so many reports (Clockwork, OSDI'20, keeps as many)."""
LEAST_STEP_REPORTS = 3


class GpuLook(NamedTuple):
    """What one look at its GPUs says of a run."""

    memory: int
    """Bytes on the GPU where it has most."""
    util_ppm: int | None
    """Over all of them, where that is known."""


@dataclass(slots=True)
class Watched:
    """What was read of one run."""

    run: Run
    since_ms: int
    told_ms: int | None = None
    steps_told_ms: int | None = None
    """When a step time was told last; the other is of what is read of its GPUs."""
    peak: int = 0
    step_before: int = 0
    """The step that its job had reached before this run."""
    trains: bool = False
    """Whether it has made its first steps."""
    busy: deque[tuple[int, int]] = field(default_factory=deque)
    """(when, utilisation) since it has been alone, within the window."""
    steps_us: deque[int] = field(default_factory=lambda: deque(maxlen=STEP_REPORTS))

    def steps_of_run(self, step: int) -> int:
        """Its own steps; those that are counted without the program's help begin again with each run."""
        if step < self.step_before:
            self.step_before = 0
        return step - self.step_before


class Measurements:
    """The runs that are watched, one for each job."""

    def __init__(self) -> None:
        self._watched: dict[str, Watched] = {}

    def forget(self, job: str) -> None:
        self._watched.pop(job, None)

    def peak_of(self, run: Run) -> int:
        """The most GPU memory that was read of a run, on the GPU where it has most; 0: nothing was."""
        watched = self._watched.get(run.job)
        return watched.peak if watched is not None and watched.run == run else 0

    def of_gpu(
        self, record: JobRecord, use: GpuLook, now: int, *, is_alone: bool, step: int | None = None
    ) -> Profile | None:
        """The news after a look at its GPUs; `step` is the last that it has reported, where it does."""
        if record.phase is not Phase.RUNNING:
            return None
        watched = self._of(record, now, step)
        watched.peak = max(watched.peak, use.memory)
        steps = None if step is None else watched.steps_of_run(step)
        if not watched.trains and steps is not None and steps >= LEAST_STEPS:
            watched.trains = True
            watched.busy.clear()  # what it did before was no training
        _note_util(watched, use.util_ppm if is_alone else None, now)
        known = record.profile or Profile()
        is_early = now - watched.since_ms < WARM_UP_MS and not watched.trains
        if is_early or (_is_soon(watched.told_ms, now) and not _is_near(watched.peak, known)):
            return None
        news = Profile(
            gpu_util_ppm=_new_util(watched, known.gpu_util_ppm),
            gpu_memory=watched.peak
            if _differs(watched.peak, known.gpu_memory, upwards=True)
            else 0,
            memory_estimate=_new_estimate(watched.peak, known, steps),
        )
        return self._told(watched, news, now)

    def at_end(self, record: JobRecord) -> Profile | None:
        """What was read of a run that has succeeded, or of a pre-run that has passed."""
        watched = self._watched.get(record.id)
        if watched is None or watched.run != record.run or not watched.peak:
            return None
        known = None if record.profile is None else record.profile.gpu_util_ppm
        busy = [util for _, util in watched.busy]
        util = sum(busy) // len(busy) if known is None and busy else None
        return replace(profile_of_peak(watched.peak), gpu_util_ppm=util)

    def of_steps(
        self, record: JobRecord, report: Progressed, now: int, *, is_alone: bool
    ) -> Profile | None:
        """The news after a report of its progress, on one GPU: of a job of one, or of a pre-run."""
        if record.phase is not Phase.RUNNING or not report.steps_per_s or not is_alone:
            return None
        if not _is_on_one(record):
            return None
        watched = self._of(record, now)
        watched.steps_us.append(max(1, round(1e6 / report.steps_per_s)))
        if len(watched.steps_us) < LEAST_STEP_REPORTS or _is_soon(watched.steps_told_ms, now):
            return None
        step_us = round(median(watched.steps_us))
        known = 0 if record.profile is None else record.profile.step_us
        if not _differs(step_us, known):
            return None
        watched.steps_told_ms = now
        batch = round((report.samples_per_s or 0) / report.steps_per_s)
        return Profile(step_us=step_us, batch=batch, per_gpu=True)

    def _of(self, record: JobRecord, now: int, step: int | None = None) -> Watched:
        watched = self._watched.get(record.id)
        if watched is None or watched.run != record.run:
            watched = self._watched[record.id] = Watched(record.run, now)
            watched.step_before = (step or 0) if record.run.attempt > 1 else 0
        return watched

    def _told(self, watched: Watched, news: Profile, now: int) -> Profile | None:
        if news == Profile():
            return None
        watched.told_ms = now
        return news


def profile_of_peak(peak: int) -> Profile:
    """What is known of a run that has used so many bytes on a GPU."""
    return Profile(gpu_memory=peak, memory_estimate=of_own_run(peak, None))


def with_host_memory(measured: Profile | None, peak: int | None) -> Profile | None:
    """With the host memory of each device that its run has told of at its end."""
    return replace(measured or Profile(), host_memory=peak) if peak else measured


def is_alone(state: State, record: JobRecord) -> bool:
    """Whether no other run is on its GPUs, nor still leaves them."""
    placement = record.placement
    if placement is None:
        return False
    mine = set(placement.gpus())
    if not mine.isdisjoint(state.releasing):
        return False
    others = (each for node in placement.nodes for each in state.residents[node].values())
    return not any(
        each is not record
        and each.placement is not None
        and not mine.isdisjoint(each.placement.gpus())
        for each in others
    )


def _is_on_one(record: JobRecord) -> bool:
    """Whether its steps are those of one whole GPU, with the batch that it has for one.

    An elastic job may have more at the moment; a pre-run of a gang asks for one.
    """
    placement = record.placement
    if record.demand.nominal.count != 1 or not record.is_whole:
        return False
    return placement is not None and len(placement.slices) == 1


def _is_soon(told_ms: int | None, now: int) -> bool:
    return told_ms is not None and now - told_ms < AGAIN_MS


def _note_util(watched: Watched, util_ppm: int | None, now: int) -> None:
    """It counts from when the run is alone on."""
    if util_ppm is None:
        watched.busy.clear()
        return
    watched.busy.append((now, util_ppm))
    while watched.busy[0][0] < now - WINDOW_MS:
        watched.busy.popleft()


def _new_util(watched: Watched, known: int | None) -> int | None:
    """The mean over a whole window, where it is news."""
    busy = watched.busy
    least_ms = TRAINING_MS if watched.trains and known is None else WINDOW_MS * 4 // 5
    if not busy or busy[-1][0] - busy[0][0] < least_ms:
        return None
    mean = sum(util for _, util in busy) // len(busy)
    is_news = known is None or abs(mean - known) >= max(LEAST_UTIL_PPM, known // 10)
    return mean if is_news else None


def _is_near(peak: int, known: Profile) -> bool:
    """Whether it will soon have all that is reserved for it by an estimate."""
    estimate = known.memory_estimate
    return estimate is not None and is_near(peak, estimate.high)


def _new_estimate(peak: int, known: Profile, steps: int | None) -> MemoryEstimate | None:
    """What it is expected to need by now, where that is a tenth more or less, or all of it is used."""
    if not peak:
        return None
    before = known.memory_estimate
    most = max(peak, known.gpu_memory)  # another run with its arguments may have shown more
    own = of_own_run(most, steps)
    earlier = None if before is None or before.is_own else before
    found = best([earlier, own], least_top(most)) or own
    if before is None or _is_near(peak, known) or _differs(found.high, before.high):
        return found if found != before else None
    return None


def _differs(value: int, known: int, *, upwards: bool = False) -> bool:
    """Whether it differs by a tenth; a peak only grows."""
    change = value - known if upwards else abs(value - known)
    return value > 0 and change * 10 >= max(1, known)
