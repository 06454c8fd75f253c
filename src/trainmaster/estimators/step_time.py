"""One training step as a timeline: computing, exchange of gradients that partly overlaps it, update.

CoDDL (KAIST): a profile of one GPU and the figures of the links predict the
step on any allocation. Of the computing, a third is the forward pass and two thirds the backward one;
gradients are exchanged as the backward pass produces them, so part of the exchange overlaps with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heapreplace

from trainmaster.estimators.allocation import Allocation, GpuCount
from trainmaster.estimators.interconnect import DEFAULT_LINKS, Links
from trainmaster.model.codec import stored_as
from trainmaster.model.profile import USUAL_FIXED_PART, Profile
from trainmaster.model.units import NOMINAL

BACKWARD = 2 / 3
"""The part of the computing that the backward pass takes: twice the products of the forward one."""


@dataclass(frozen=True, slots=True)
class Scales:
    """Measured over predicted time, for each part of the timeline."""

    compute: float = 1.0
    fixed: float = 1.0
    inside: float = 1.0
    between: float = 1.0


AS_PREDICTED = Scales()


@stored_as("throughput.StepTime")
@dataclass(frozen=True, slots=True)
class StepTime:
    """The parts of one step on one allocation, in nanoseconds."""

    compute_ns: int
    """The busiest GPU with its samples."""
    fixed_ns: int
    """Its time that does not depend on the number of samples, including the parameter update."""
    inside_ns: int
    """Exchange within the nodes."""
    between_ns: int
    """Exchange between them."""
    tail_ppm: int
    """The part of the exchange after the last gradient, which overlaps with nothing."""
    overlap_ppm: int
    """The part of the computing that the rest can overlap with."""

    def parts_ns(self, scales: Scales = AS_PREDICTED) -> tuple[float, float, float, float]:
        """What compute, fixed, inside and between add to the step, without the overlapped part."""
        compute, fixed = self.compute_ns * scales.compute, self.fixed_ns * scales.fixed
        inside, between = self.inside_ns * scales.inside, self.between_ns * scales.between
        tail, cover = self.tail_ppm / NOMINAL, self.overlap_ppm / NOMINAL
        if (inside + between) * (1 - tail) < compute * cover:
            return compute, fixed, inside * tail, between * tail
        return compute * (1 - cover), fixed, inside, between

    def step_ns(self, scales: Scales = AS_PREDICTED) -> float:
        """How long the step takes."""
        return sum(self.parts_ns(scales))


def shares(batch: int, kinds: tuple[GpuCount, ...]) -> tuple[int, ...]:
    """Samples of the busiest GPU of each kind when all end together, as nearly as whole samples allow."""
    speed = sum(kind.speed_ppm * kind.count for kind in kinds)
    base = [batch * kind.speed_ppm // speed for kind in kinds]
    left = batch - sum(each * kind.count for each, kind in zip(base, kinds, strict=True))
    most = list(base)
    next_ends = [
        ((base[i] + 1) / kind.speed_ppm, i, base[i] + 1, kind.count) for i, kind in enumerate(kinds)
    ]
    heapify(next_ends)
    while left > 0:
        _, i, samples, count = next_ends[0]
        most[i] = samples
        left -= count
        heapreplace(next_ends, ((samples + 1) / kinds[i].speed_ppm, i, samples + 1, count))
    return tuple(most)


def timeline(profile: Profile, allocation: Allocation, links: Links = DEFAULT_LINKS) -> StepTime:
    """The step of a profiled job on an allocation."""
    step = profile.step_us * 1e3
    known = step / USUAL_FIXED_PART if profile.fixed_us is None else profile.fixed_us * 1e3
    fixed = min(step, known)
    slowest = min(kind.speed_ppm for kind in allocation.kinds)
    part = _longest_part(profile.batch, allocation)
    is_alone = allocation.count == 1
    update = 0 if is_alone else links.update_ns(profile.sync_bytes)
    return StepTime(
        compute_ns=round((step - fixed) * part),
        fixed_ns=round(fixed * NOMINAL / slowest) + update,
        inside_ns=links.inside_ns(allocation, profile.sync_bytes),
        between_ns=links.between_ns(allocation, profile.sync_bytes),
        tail_ppm=min(NOMINAL, links.bucket_bytes * NOMINAL // max(1, profile.sync_bytes)),
        overlap_ppm=round(BACKWARD * links.overlap_ppm),
    )


def _longest_part(batch: int, allocation: Allocation) -> float:
    """The time of the busiest GPU, as a part of the time that one of nominal speed needs for all."""
    kinds = allocation.kinds
    if not batch:
        return NOMINAL / allocation.speed_ppm
    busiest = zip(shares(batch, kinds), kinds, strict=True)
    return max(samples * NOMINAL / (batch * kind.speed_ppm) for samples, kind in busiest)
