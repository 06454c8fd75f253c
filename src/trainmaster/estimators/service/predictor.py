"""The service predictor: how much more service a job will take, by its class and its siblings.

Classes are nested, and each is shrunk to the one around it: all jobs; jobs of its size; of its queue and
size; of its user and program, where known. A policy that asks for siblings learns most from them. They
are the jobs submitted just before and after it by the same source (core/submission_siblings.py), and
the runs of one sweep mostly take similar time.

Observations are a value, part of the memo. The tables of the classes are rebuilt after some more jobs
have ended, and then all jobs are ranked again; when a job ends, its siblings are. Policies differ in their
`LearningMethod`: hazards that fade (gittins_by_hazard.py; gittins, tiresias-g) or probabilities by bin
that do not (gittins_by_bin.py; trainmaster), and how soon tables are rebuilt.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Protocol, TypeVar

from trainmaster.core.lifecycle import ENDED
from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.estimators.service import gittins_by_bin, gittins_by_hazard
from trainmaster.estimators.service.bins import bin_of
from trainmaster.estimators.service.gittins_by_bin import BinProbabilityForecast, Sibling, nearness
from trainmaster.estimators.service.gittins_by_hazard import HazardForecast
from trainmaster.model.codec import stored_as
from trainmaster.model.plan import FrozenMap
from trainmaster.model.program_name import program_of
from trainmaster.model.units import MINUTE, WHOLE

RENEW_MS = 30 * MINUTE
"""New tables after this time, if anything has ended since the last ones."""
SIZES_GPUS = (1, 2, 4, 8)
BOUND = 0.95
"""A job's service is bounded by this quantile of similar jobs ..."""
BOUND_JOBS = 30
"""... once this many of them have ended."""

Class = tuple[Hashable, ...]
Observed = tuple[tuple[Class, ...], int]
"""A job: its classes, and the service that it had attained, as its histogram counts it."""

F = TypeVar("F", BinProbabilityForecast, HazardForecast)


class Histogram(Protocol[F]):
    """What is counted of a class of jobs."""

    @staticmethod
    def observed(service: int) -> int: ...
    @property
    def jobs(self) -> int: ...
    def with_ended(self, observed: Iterable[int]) -> Histogram[F]: ...
    def with_going(self, observed: Iterable[int]) -> Histogram[F]: ...
    def forecast(self, wider: F, weight: float) -> F: ...


@dataclass(frozen=True, slots=True)
class LearningMethod(Generic[F]):
    """How service is learned: the statistic, and how quickly news is taken in."""

    empty: Histogram[F]
    unknown: F
    """The forecast before anything is known."""
    weights: tuple[float, ...]
    """Weight of the wider class, for each class: all jobs, of its size, of its queue, of its program."""
    renew_ends: int
    """Tables are rebuilt after this many ends ..."""
    renew_part: float
    """... plus this fraction of the ends that the last tables were made of."""
    program_of: Callable[[str], str]
    """What makes two names of programs the same class."""
    fade: Callable[[Mapping[Class, Any], int], dict[Class, Any]] | None = None
    """Histograms with less weight after some more jobs have ended; None: they never fade."""


BY_BINS: LearningMethod[BinProbabilityForecast] = LearningMethod(
    gittins_by_bin.BinProbabilityHistogram(),
    gittins_by_bin.UNKNOWN,
    (2.0, 3.0, 5.0, 5.0),
    50,
    0.0,
    program_of,
)
BY_HAZARDS: LearningMethod[HazardForecast] = LearningMethod(
    gittins_by_hazard.HazardHistogram(),
    gittins_by_hazard.UNKNOWN,
    (2.0, 3.0, 20.0, 20.0),
    100,
    1 / 32,
    str,
    gittins_by_hazard.fade,
)


@stored_as("service.Observations")
@dataclass(frozen=True, slots=True)
class Observations:
    """All observations, and the tables made of them."""

    past: FrozenMap[Class, Any] = field(default_factory=FrozenMap)
    """Histograms of jobs that ended, by class, up to when the tables were made."""
    known: FrozenMap[Class, Any] = field(default_factory=FrozenMap)
    """The same with the jobs that ran at that time: the tables."""
    going: FrozenMap[int, int] = field(default_factory=FrozenMap)
    """Those jobs by their number: the bins that they were in. Only where siblings are asked for."""
    made_ms: int | None = None
    """When the tables were made; at first, when the first job came."""
    fresh: tuple[Observed, ...] = ()
    """Jobs that have ended since."""
    ends: int = 0
    """How many ended jobs the tables are made of, the faded ones in part."""


class ServicePredictor(Generic[F]):
    """Forecasts of jobs. Everything held here is a cache of the observations and of the view."""

    def __init__(
        self,
        learning: LearningMethod[F],
        classes: int | None = None,
        *,
        asks_siblings: bool = False,
    ) -> None:
        """`classes`: how many of a job's classes are asked, from the widest; None: all."""
        self._learning: LearningMethod[F] = learning
        self._classes = classes
        self._asks_siblings = asks_siblings
        self._known: FrozenMap[Class, Histogram[F]] = FrozenMap()
        self._by_classes: dict[tuple[Class, ...], F] = {}
        self._by_source: dict[Hashable, F] = {}
        self._by_job: dict[int, F] = {}
        self._nearby: dict[int, tuple[int, list[tuple[JobRecord, float]]]] = {}
        """By job: how many siblings it had, and which of them count."""

    # -- learning ----------------------------------------------------------------------------------

    def learn(self, seen: Observations, view: View, now: int) -> Observations:
        """With the jobs that have ended since; jobs whose forecast changed are ranked again."""
        if seen.made_ms is None:
            seen = replace(seen, made_ms=now)
        if view.ended:
            served = [record for record in view.ended if record.attained]
            ended = tuple([self._observed(record, record.attained) for record in served])
            seen = replace(seen, fresh=seen.fresh + ended)
            for record in view.ended:
                self._by_job.pop(record.seq, None)
                self._nearby.pop(record.seq, None)
            if self._is_stale(seen, now):
                seen = self._renewed(seen, view, now)
                view.invalidate_ranks()
            elif self._asks_siblings:
                self._rerank_siblings(view)
        return seen

    def _observed(self, record: JobRecord, attained: int) -> Observed:
        return self.classes_of(record), self._learning.empty.observed(attained)

    def classes_of(self, record: JobRecord) -> tuple[Class, ...]:
        """All jobs; jobs of its size; of its queue; of its user and program, if known."""
        job = record.job
        size = bisect_right(SIZES_GPUS, (record.demand.nominal.total_share - 1) // WHOLE)
        wide: tuple[Class, ...] = ((), (size,), (job.queue, size))
        if not (job.user or job.app):
            return wide
        return (*wide, (job.queue, size, job.user, self._learning.program_of(job.app)))

    def _is_stale(self, seen: Observations, now: int) -> bool:
        """Whether enough has been observed since the tables were made to make new ones."""
        fresh = len(seen.fresh)
        if not fresh or fresh < self._learning.renew_part * seen.ends:
            return False
        return fresh >= self._learning.renew_ends or now - (seen.made_ms or 0) >= RENEW_MS

    def _renewed(self, seen: Observations, view: View, now: int) -> Observations:
        fade = self._learning.fade
        past = dict(seen.past) if fade is None else fade(seen.past, len(seen.fresh))
        empty = self._learning.empty
        for each, observed in _by_class(seen.fresh).items():
            past[each] = past.get(each, empty).with_ended(observed)
        started = [record for record in view.jobs.values() if record.first_start_ms is not None]
        observed_now = [self._observed(record, record.attained_at(now)) for record in started]
        known = dict(past)
        for each, observed in _by_class(observed_now).items():
            known[each] = known.get(each, empty).with_going(observed)
        going = FrozenMap[int, int]()
        if self._asks_siblings:
            pairs = zip(started, observed_now, strict=True)
            going = FrozenMap({record.seq: observed for record, (_, observed) in pairs})
        ends = past[()].jobs if past else 0
        return Observations(FrozenMap(past), FrozenMap(known), going, now, ends=ends)

    def _rerank_siblings(self, view: View) -> None:
        for ended in view.ended:
            for record in ended.siblings:
                if record.is_live:
                    self._by_job.pop(record.seq, None)
                    view.invalidate_rank(record)

    # -- answering ---------------------------------------------------------------------------------

    def forecast(self, seen: Observations, record: JobRecord) -> F:
        """How much more service this job will take, according to the observations."""
        if seen.known is not self._known:
            self._known = seen.known
            self._by_classes.clear()
            self._by_source.clear()
            self._by_job.clear()
        if not (self._asks_siblings and record.siblings):
            return self._of_class(record)
        found = self._by_job.get(record.seq)
        if found is None:
            found = self._by_job[record.seq] = self._among_siblings(seen, record)
        return found

    def _among_siblings(self, seen: Observations, record: JobRecord) -> F:
        """With siblings that have ended, or had left a bin behind when the tables were made."""
        found = list[Sibling]()
        for each, counts in self._near(record):
            if each.phase in ENDED:
                if each.attained:
                    found.append((counts, bin_of(each.attained), True))
            else:
                last = seen.going.get(each.seq, 0)
                if last:
                    found.append((counts, last, False))
        by_class = self._of_class(record)
        if not found or isinstance(by_class, HazardForecast):
            return by_class
        return by_class.among(found)

    def _near(self, record: JobRecord) -> list[tuple[JobRecord, float]]:
        """Siblings that count, and how much."""
        known = self._nearby.get(record.seq)
        if known is not None and known[0] == len(record.siblings):
            return known[1]
        submitted, siblings = record.job.submit_ms, record.siblings
        elders = sum([each.seq < record.seq for each in siblings])
        found = []
        for place, each in enumerate(siblings):
            distance = elders - place if place < elders else place - elders + 1
            counts = nearness(distance, abs(each.job.submit_ms - submitted))
            if counts:
                found.append((each, counts))
        self._nearby[record.seq] = (len(siblings), found)
        return found

    def _of_class(self, record: JobRecord) -> F:
        job = record.job
        key = (record.group, job.queue, job.user, job.app)
        found = self._by_source.get(key)
        if found is None:
            classes = self.classes_of(record)[: self._classes]
            found = self._by_source[key] = self._of_classes(classes)
        return found

    def _of_classes(self, classes: tuple[Class, ...]) -> F:
        """Of a job of these classes and of no narrower one."""
        if not classes:
            return self._learning.unknown
        found = self._by_classes.get(classes)
        if found is None:
            found = self._of_classes(classes[:-1])
            counts = self._known.get(classes[-1])
            if counts is not None:
                found = counts.forecast(found, self._learning.weights[len(classes) - 1])
            self._by_classes[classes] = found
        return found

    def narrowest(self, seen: Observations, record: JobRecord) -> Any:
        """The histogram of the narrowest class that is asked; None where nothing is known of it."""
        return seen.known.get((self.classes_of(record)[: self._classes] or ((),))[-1])


def service_bound(
    predictor: ServicePredictor[BinProbabilityForecast], seen: Observations, record: JobRecord
) -> int | None:
    """Service that few jobs of its kind exceed; None where too little is known of its kind."""
    counts = predictor.narrowest(seen, record)
    if counts is None or sum(counts.ended) < BOUND_JOBS:
        return None
    return predictor.forecast(seen, record).quantile(bin_of(record.attained), BOUND)


def _by_class(observed: Iterable[Observed]) -> dict[Class, list[int]]:
    found: dict[Class, list[int]] = {}
    for classes, value in observed:
        for each in classes:
            found.setdefault(each, []).append(value)
    return found
