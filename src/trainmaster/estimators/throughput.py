"""Throughput estimation: how fast a job would be on an allocation (CoDDL, KAIST).

Policies hold an `Estimator`, and keep `Corrections` in their memo. The estimate is, in this order: the
measured speed of this very allocation; the declared table of speed-ups; the timeline predicted from one
GPU, corrected by measurements of other allocations; a default curve when nothing is known.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import replace
from functools import cache, partial
from typing import TypeVar

from trainmaster.estimators.allocation import Allocation, EmptyCluster
from trainmaster.estimators.interconnect import DEFAULT_LINKS, Links, links_of
from trainmaster.estimators.profiles import known_profile
from trainmaster.estimators.step_time import Scales, StepTime, timeline
from trainmaster.estimators.throughput_calibration import (
    NOTHING_MEASURED,
    Corrections,
    Measured,
    fit_scales,
    measured_ns,
)
from trainmaster.model.job import Job
from trainmaster.model.placement import Placement
from trainmaster.model.profile import Profile, speedup_at
from trainmaster.model.topology import Topology
from trainmaster.model.units import NOMINAL
from trainmaster.perf.default_parameters import ELASTICITY, LOCALITY

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
SpeedTable = tuple[tuple[int, int], ...]
"""(GPUs, speed in parts per million of nominal)."""
UNKNOWN = Profile()
"""The profile of a job of which nothing is known."""
NEWS = 100
"""A repeated measurement that differs by less than one part in this many is ignored."""
MOST_CACHED = 20_000
"""Timelines and curves kept before the cache is emptied."""
UNIT_NS = 1_000_000_000
"""Step of an unknown model on one GPU; arbitrary, because only ratios count."""


def key_of(job: Job) -> str:
    """The key of measurements that are used together: jobs of one model and one nominal size.

    Speeds are relative to the nominal shape, so speeds of other sizes have another unit.
    """
    return f"{job.model}/{job.demand.nominal.count}" if job.model else f"{job.id}/"


def default_timeline(allocation: Allocation, best_span: str) -> StepTime:
    """An unknown model: the published curve, and the published penalty for a wider span.

    The curve is that of best placements, so only a span wider than it need be costs more.
    """
    compute = UNIT_NS * NOMINAL / allocation.speed_ppm
    near = compute * allocation.count * NOMINAL / ELASTICITY.speedup("", allocation.count)
    widening = LOCALITY.at_span("", best_span) / LOCALITY.at_span("", allocation.span)
    return StepTime(
        compute_ns=round(compute),
        fixed_ns=0,
        inside_ns=round(near - compute),
        between_ns=round(near * max(0.0, widening - 1)),
        tail_ppm=NOMINAL,
        overlap_ppm=0,
    )


class Estimator:
    """Speeds of allocations of one cluster; holds caches only, `forget` drops them."""

    def __init__(self, topology: Topology, links: Links = DEFAULT_LINKS) -> None:
        self.topology = topology
        self.links = links_of(topology, links)
        self._empty = cache(partial(EmptyCluster, topology))
        """By GPU type."""
        self.best = cache(self._best)
        self._timelines: dict[tuple[Profile, Allocation, str | None], StepTime] = {}
        self._scales: dict[str, tuple[Measured, Scales]] = {}
        self._curves: dict[Hashable, tuple[Measured, SpeedTable]] = {}

    def allocation(self, placement: Placement) -> Allocation:
        return Allocation.of(placement, self.topology)

    def _best(self, count: int, gpu_type: str | None = None) -> Allocation:
        """The most consolidated allocation of that many GPUs in the empty cluster."""
        return self._empty(gpu_type).best(count)

    def speed(
        self,
        job: Job,
        profile: Profile,
        allocation: Allocation,
        corrections: Corrections = NOTHING_MEASURED,
    ) -> int:
        """Parts per million of the job's speed in its nominal shape at best placement."""
        measured = corrections.of(key_of(job))
        profile = _completed(profile, job)
        nominal, gpu_type = self._nominal(job), job.demand.gpu_type
        predicted = self._timeline(profile, allocation, gpu_type)
        reference = self._timeline(profile, nominal, gpu_type)
        known = measured_ns(measured, allocation, predicted) if measured else None
        if known is not None:
            return max(1, round(reference.step_ns() * NOMINAL / known))
        scales = self._scales_for(key_of(job), measured)
        if not profile.speedups:
            return max(1, round(reference.step_ns(scales) * NOMINAL / predicted.step_ns(scales)))
        best = self._timeline(profile, self._consolidated(job, allocation.count), gpu_type)
        declared = speedup_at(profile.speedups, allocation.count) * NOMINAL
        declared //= speedup_at(profile.speedups, nominal.count)
        return max(1, round(declared * best.step_ns(scales) / predicted.step_ns(scales)))

    def curve(
        self,
        job: Job,
        profile: Profile,
        counts: Iterable[int],
        corrections: Corrections = NOTHING_MEASURED,
    ) -> SpeedTable:
        """(GPUs, speed at best placement) for the counts that the cluster can hold."""
        counts = tuple(counts)
        demand = job.demand
        measured = corrections.of(key_of(job))
        whose = key_of(job) if measured else job.model
        key = (whose, demand.nominal.count, demand.gpu_type, profile, counts)
        known = self._curves.get(key)
        if known is not None and known[0] == measured:
            return known[1]
        room = self._empty(demand.gpu_type).room
        found = tuple(
            (count, self.speed(job, profile, self.best(count, demand.gpu_type), corrections))
            for count in counts
            if 0 < count <= room
        )
        _keep(self._curves, key, (measured, found))
        return found

    def learned(
        self,
        job: Job,
        profile: Profile,
        allocation: Allocation,
        speed_ppm: int,
        corrections: Corrections,
    ) -> Corrections:
        """The corrections after the job was seen at this speed (of its nominal one) on this allocation."""
        key, nominal, gpu_type = key_of(job), self._nominal(job), job.demand.gpu_type
        profile = _completed(profile, job)
        reference = self._timeline(profile, nominal, gpu_type)
        if not corrections.of(key):
            corrections = corrections.updated(key, nominal, reference, round(reference.step_ns()))
        predicted = self._timeline(profile, allocation, gpu_type)
        step = round(reference.step_ns() * NOMINAL / max(1, speed_ppm))
        known = measured_ns(corrections.of(key), allocation, predicted)
        if known is not None and abs(known - step) * NEWS < step:
            return corrections
        return corrections.updated(key, allocation, predicted, step)

    def _nominal(self, job: Job) -> Allocation:
        """What the job's speed refers to: its nominal shape at best placement on nominal GPUs."""
        return self._consolidated(job, job.demand.nominal.count)

    def _consolidated(self, job: Job, count: int) -> Allocation:
        """The best that the cluster could offer, however small it is, on GPUs of nominal speed."""
        gpu_type = job.demand.gpu_type
        best = self.best(min(count, max(1, self._empty(gpu_type).room)), gpu_type)
        return best.at_nominal_speed()

    def _timeline(self, profile: Profile, allocation: Allocation, gpu_type: str | None) -> StepTime:
        """Of a job that may use these types: how near its best place is depends on them."""
        key = (profile, allocation, gpu_type)
        found = self._timelines.get(key)
        if found is None:
            if profile.is_predictive:
                found = timeline(profile, allocation, self.links)
            else:
                best = self.best(allocation.count, gpu_type)
                found = default_timeline(allocation, best.span)
            _keep(self._timelines, key, found)
        return found

    def _scales_for(self, key: str, measured: Measured) -> Scales:
        known = self._scales.get(key)
        if known is None or known[0] != measured:
            known = (measured, fit_scales(measured))
            _keep(self._scales, key, known)
        return known[1]


def _keep(cache: dict[K, V], key: K, value: V) -> None:
    """Remember, within bounds."""
    if len(cache) >= MOST_CACHED:
        cache.clear()
    cache[key] = value


def _completed(profile: Profile, job: Job) -> Profile:
    """The profile of its whole batch, or, where it predicts nothing, the published one of the job's model.

    Published batches are for one GPU; a job is assumed to use the same on each nominal GPU.
    """
    if profile.is_predictive:
        return profile.on_each_of(job.demand.nominal.count)
    published = known_profile(job.model)
    if published is None:
        return profile
    usual = published.with_batch(published.batch * job.demand.nominal.count)
    return replace(
        usual, sync_bytes=profile.sync_bytes or usual.sync_bytes, speedups=profile.speedups
    )
