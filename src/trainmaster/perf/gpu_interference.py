"""GPU interference: how jobs on one GPU slow each other down, by three laws or measured pairs.

`linear`: k jobs take a + b k times as long each (Big Brain's GPUs); `utilisation`: max(1, sum of SM use,
sum of bandwidth use) times as long; `h200` is the same with what company cost on an H200, with and
without MPS (docs/perf.md).
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


class GpuOccupant(NamedTuple):
    """A job on the GPU in question."""

    model: str
    role: Role
    busy_ppm: int
    """Part of the GPU that it keeps busy."""


class SharingLaw(Enum):
    """How jobs on one GPU slow each other down."""

    LINEAR = "linear"
    H200 = "h200"
    UTILISATION = "utilisation"


@dataclass(frozen=True, slots=True)
class SharedGpu:
    """The law that holds on shared GPUs, with its numbers."""

    law: SharingLaw = SharingLaw.UTILISATION
    constant_ppm: int = 0
    """a of the linear law."""
    per_job_ppm: int = NOMINAL
    """b of the linear law."""
    costs: Mapping[Sharing, Table] = field(default_factory=dict)
    """GPU time that a job takes in company over what it takes alone, by its utilisation; else 1."""
    contention_ppm: int = 0
    """Part of the other jobs' GPU time that a job waits for even where there is time for all."""
    bandwidth: Mapping[str, int] = field(default_factory=dict)
    """Part of the memory bandwidth that a model uses when alone."""
    pairs: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """Remaining speed of the first model beside the second, where the pair was measured."""
    tolerance_ppm: int = 0
    """The most that opportunistic jobs may cost a guaranteed one."""
    floor_ppm: int = 1
    """The least speed that opportunistic jobs keep together."""

    def remaining_speed(
        self, mine: GpuOccupant, beside: Sequence[GpuOccupant], sharing: Sharing
    ) -> int:
        """Speed of a job on a GPU that it shares with others, in parts per million of alone."""
        guaranteed = [each for each in beside if each.role is Role.GUARANTEED]
        used = sum(each.busy_ppm for each in guaranteed)
        if mine.role is Role.OPPORTUNISTIC and guaranteed:
            # What the guaranteed jobs leave idle, in equal parts for the opportunistic ones.
            return max(self.floor_ppm, NOMINAL - used) // (1 + len(beside) - len(guaranteed))
        if mine.role is Role.OPPORTUNISTIC or len(guaranteed) == len(beside):
            return self._among(mine, beside, sharing)
        lost = min(self.tolerance_ppm, max(0, mine.busy_ppm + used + self.floor_ppm - NOMINAL))
        return self._among(mine, guaranteed, sharing) * (NOMINAL - lost) // NOMINAL

    def _among(self, mine: GpuOccupant, others: Sequence[GpuOccupant], sharing: Sharing) -> int:
        """Among jobs of the same role."""
        if not others:
            return NOMINAL
        if len(others) == 1:
            pair = (table_name(mine.model), table_name(others[0].model))
            measured = self.pairs.get(pair)
            if measured is not None:
                return measured
        longer = self._times_as_long((mine, *others), sharing)
        return NOMINAL * NOMINAL // max(NOMINAL, longer)

    def _times_as_long(self, jobs: Sequence[GpuOccupant], sharing: Sharing) -> int:
        """Of the first of these jobs."""
        if self.law is SharingLaw.LINEAR:
            return self.constant_ppm + self.per_job_ppm * len(jobs)
        cost = self.costs.get(sharing, {NOMINAL: NOMINAL})
        needs = [job.busy_ppm * between(cost, job.busy_ppm) // NOMINAL for job in jobs]
        waits = sum(needs[1:]) * self.contention_ppm // NOMINAL
        bandwidth = sum(self.bandwidth.get(table_name(job.model), 0) for job in jobs)
        return max(sum(needs), NOMINAL + waits, bandwidth)


def occupant_on(gpu: int, job: Job, placement: Placement) -> GpuOccupant | None:
    """A job as others on the GPU see it: busy as measured, else by its share."""
    for piece in placement.slices:
        if piece.gpu == gpu:
            measured = job.gpu_util_ppm
            busy = piece.share * NOMINAL // WHOLE if measured is None else measured
            return GpuOccupant(job.model, placement.role, busy)
    return None
