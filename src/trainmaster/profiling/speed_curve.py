"""Predicted samples per second of a profiled program, by the number of devices and how they lie."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from trainmaster.estimators.allocation import Allocation, EmptyCluster
from trainmaster.estimators.interconnect import Links
from trainmaster.estimators.step_time import StepTime, timeline
from trainmaster.model.profile import Profile
from trainmaster.model.topology import Topology
from trainmaster.model.units import NOMINAL

NS_PER_S = 1_000_000_000
ALL_UP_TO = 16
"""Every number of devices up to here is predicted, and of larger ones those at which something changes."""


@dataclass(frozen=True, slots=True)
class SpeedPoint:
    """One allocation, and what is predicted there."""

    allocation: Allocation
    step: StepTime
    samples_per_s: float
    """Of an unknown batch, that of one device counts as one sample."""
    efficiency_ppm: int
    """Of so many times the speed on one device of nominal speed."""


def predicted(profile: Profile, allocation: Allocation, links: Links) -> SpeedPoint:
    """Of a program that has the batch of its profile on each device."""
    batch, count = max(1, profile.batch), allocation.count
    step = timeline(profile.on_each_of(count), allocation, links)
    rate = batch * count * NS_PER_S / step.step_ns()
    alone = batch * 1e6 / profile.step_us
    return SpeedPoint(allocation, step, rate, round(rate * NOMINAL / (alone * count)))


def speed_curve(
    profile: Profile, topology: Topology, links: Links, gpu_type: str | None = None
) -> tuple[SpeedPoint, ...]:
    """On the best allocation of each number of devices of a type."""
    cluster = EmptyCluster(topology, gpu_type)
    largest = max((node.gpus for node in topology.nodes), default=1)
    return tuple(
        predicted(profile, cluster.best(count), links) for count in _counts(cluster.room, largest)
    )


def setbacks(curve: tuple[SpeedPoint, ...]) -> Iterator[tuple[SpeedPoint, SpeedPoint]]:
    """Where more devices are slower: the fewer, and the more."""
    return (
        (before, after)
        for before, after in pairwise(curve)
        if after.samples_per_s < before.samples_per_s
    )


def _counts(room: int, node: int) -> list[int]:
    """All small numbers, then full nodes and one device more, ever fewer of them, and all there are."""
    found, nodes = set(range(1, min(room, ALL_UP_TO) + 1)), 1
    while nodes * node <= room:
        found |= {nodes * node, nodes * node + 1}
        nodes *= 2
    return sorted(each for each in found | {room} if each <= room)
