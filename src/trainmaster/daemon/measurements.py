"""What is measured of runs, as facts: part of the GPU kept busy, peak of GPU memory, time of a step.

A measurement becomes a fact when it is noticeable: the first one after a warm-up, or after three reports of
steps, then one that differs by a tenth, at most every ten seconds for each job. Utilisation and step time
count only while a run has its GPUs for itself; memory is its own whoever is beside it. Policies read them
through the job's record.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from statistics import median

from trainmaster.core.lifecycle import Phase
from trainmaster.core.state import JobRecord, State
from trainmaster.model.engine_reports import Progressed
from trainmaster.model.job import Run
from trainmaster.model.profile import Profile
from trainmaster.model.units import NOMINAL, SECOND

WARM_UP_MS = 10 * SECOND
"""A program that has just started loads data and compiles."""
AGAIN_MS = 10 * SECOND
WINDOW_MS = 10 * SECOND
"""Utilisation is the mean over this time (AntMan, OSDI'20, section 4)."""
LEAST_UTIL_PPM = NOMINAL // 50
"""Smaller differences of the utilisation are noise, however small it is."""
STEP_REPORTS = 10
"""The step time is the median of so many reports (Clockwork, OSDI'20, keeps as many)."""
LEAST_STEP_REPORTS = 3


@dataclass(slots=True)
class Watched:
    """What was read of one run."""

    run: Run
    since_ms: int
    told_ms: int | None = None
    steps_told_ms: int | None = None
    """When a step time was told last; the other is of what is read of its GPUs."""
    peak: int = 0
    busy: deque[tuple[int, int]] = field(default_factory=deque)
    """(when, utilisation) since it has been alone, within the window."""
    steps_us: deque[int] = field(default_factory=lambda: deque(maxlen=STEP_REPORTS))


class Measurements:
    """The runs that are watched, one for each job."""

    def __init__(self) -> None:
        self._watched: dict[str, Watched] = {}

    def forget(self, job: str) -> None:
        self._watched.pop(job, None)

    def of_gpu(
        self, record: JobRecord, memory: int, util_ppm: int | None, now: int, *, is_alone: bool
    ) -> Profile | None:
        """The news after a look at its GPUs: bytes on the one where it has most, utilisation over all."""
        if record.phase is not Phase.RUNNING:
            return None
        watched = self._of(record, now)
        watched.peak = max(watched.peak, memory)
        _note_util(watched, util_ppm if is_alone else None, now)
        known = record.profile or Profile()
        if now - watched.since_ms < WARM_UP_MS or _is_soon(watched.told_ms, now):
            return None
        news = Profile(
            gpu_util_ppm=_new_util(watched, known.gpu_util_ppm),
            gpu_memory=watched.peak
            if _differs(watched.peak, known.gpu_memory, upwards=True)
            else 0,
        )
        return self._told(watched, news, now)

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

    def _of(self, record: JobRecord, now: int) -> Watched:
        watched = self._watched.get(record.id)
        if watched is None or watched.run != record.run:
            watched = self._watched[record.id] = Watched(record.run, now)
        return watched

    def _told(self, watched: Watched, news: Profile, now: int) -> Profile | None:
        if news == Profile():
            return None
        watched.told_ms = now
        return news


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
    if not busy or busy[-1][0] - busy[0][0] < WINDOW_MS * 4 // 5:
        return None
    mean = sum(util for _, util in busy) // len(busy)
    is_news = known is None or abs(mean - known) >= max(LEAST_UTIL_PPM, known // 10)
    return mean if is_news else None


def _differs(value: int, known: int, *, upwards: bool = False) -> bool:
    """Whether it differs by a tenth; a peak only grows."""
    change = value - known if upwards else abs(value - known)
    return value > 0 and change * 10 >= max(1, known)
