"""What jobs on one GPU do to each other: three laws, measured pairs, and opportunistic guests.

`linear`: k jobs take a + b k times as long each (Big Brain's GPUs); `utilisation`: max(1, sum of SM use,
sum of bandwidth use) times as long; `h200` is what this project
measured on an H200 with and without MPS (docs/perf.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from trainmaster.model.job import Job
from trainmaster.model.placement import Placement, Role, Sharing
from trainmaster.model.units import NOMINAL, WHOLE
from trainmaster.perf.interpolation import Table, between
from trainmaster.perf.model_zoo import table_name


class Guest(NamedTuple):
    """A job on the GPU in question."""

    model: str
    role: Role
    busy_ppm: int
    """Part of the GPU that it keeps busy."""


class Law(Enum):
    """How jobs on one GPU slow each other down."""

    LINEAR = "linear"
    H200 = "h200"
    UTILISATION = "utilisation"


@dataclass(frozen=True, slots=True)
class MeasuredInterference:
    """Times as long as alone, in parts per million, by the number of jobs on the GPU."""

    small: Table
    """Jobs that leave most of the GPU idle."""
    filling: Table
    """Jobs that fill it."""


@dataclass(frozen=True, slots=True)
class SharedGpu:
    """The law that holds on shared GPUs, with its numbers."""

    law: Law = Law.UTILISATION
    constant_ppm: int = 0
    """a of the linear law."""
    per_job_ppm: int = NOMINAL
    """b of the linear law."""
    tables: Mapping[Sharing, MeasuredInterference] = field(default_factory=dict)
    """Of the h200 law, by way of sharing."""
    small_util_ppm: int = NOMINAL // 4
    """Up to here a job is small; at 1 it fills the GPU; between the two it is in between."""
    bandwidth: Mapping[str, int] = field(default_factory=dict)
    """Of the utilisation law: part of the memory bandwidth that a model uses when alone."""
    pairs: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """Speed left of the first model beside the second, where somebody measured the pair."""
    tolerance_ppm: int = 0
    """The most that opportunistic guests may cost a guaranteed job."""
    floor_ppm: int = 1
    """The least that opportunistic guests are left with together."""

    def left(self, mine: Guest, beside: Sequence[Guest], sharing: Sharing) -> int:
        """Speed of a job on a GPU that it shares with others, in parts per million of alone."""
        hosts = [each for each in beside if each.role is Role.GUARANTEED]
        if mine.role is Role.OPPORTUNISTIC:
            return (
                self._as_guest(hosts, len(beside) - len(hosts))
                if hosts
                else self._among(mine, beside, sharing)
            )
        among = self._among(mine, hosts, sharing)
        if len(hosts) == len(beside):
            return among
        used = sum(each.busy_ppm for each in (mine, *hosts))
        lost = min(self.tolerance_ppm, max(0, used + self.floor_ppm - NOMINAL))
        return among * (NOMINAL - lost) // NOMINAL

    def _as_guest(self, hosts: Sequence[Guest], other_guests: int) -> int:
        """What the guaranteed jobs leave idle, in equal parts for all guests."""
        idle = NOMINAL - sum(host.busy_ppm for host in hosts)
        return max(self.floor_ppm, idle) // (1 + other_guests)

    def _among(self, mine: Guest, others: Sequence[Guest], sharing: Sharing) -> int:
        """Among equals."""
        if not others:
            return NOMINAL
        if len(others) == 1:
            pair = (table_name(mine.model), table_name(others[0].model))
            measured = self.pairs.get(pair)
            if measured is not None:
                return measured
        longer = self._times_as_long((mine, *others), sharing)
        return NOMINAL * NOMINAL // max(NOMINAL, longer)

    def _times_as_long(self, guests: Sequence[Guest], sharing: Sharing) -> int:
        count = len(guests)
        if self.law is Law.LINEAR:
            return self.constant_ppm + self.per_job_ppm * count
        if self.law is Law.UTILISATION:
            bandwidth = sum(self.bandwidth.get(table_name(guest.model), 0) for guest in guests)
            return max(sum(guest.busy_ppm for guest in guests), bandwidth)
        measured = self.tables[sharing]
        small, filling = _crowded(measured.small, count), _crowded(measured.filling, count)
        mean = sum(guest.busy_ppm for guest in guests) // count
        above = min(NOMINAL, max(0, mean - self.small_util_ppm))
        return small + (filling - small) * above // max(1, NOMINAL - self.small_util_ppm)


def _crowded(table: Table, count: int) -> int:
    """Beyond the largest measured number of jobs the GPU is full: each gets its part of it."""
    most = max(table)
    return table[most] * count // most if count > most else between(table, count)


def guest_on(gpu: int, job: Job, placement: Placement) -> Guest | None:
    """What a job is to others on a GPU: it keeps busy what was measured, else its share of it."""
    for piece in placement.slices:
        if piece.gpu == gpu:
            measured = job.gpu_util_ppm
            busy = piece.share * NOMINAL // WHOLE if measured is None else measured
            return Guest(job.model, placement.role, busy)
    return None
