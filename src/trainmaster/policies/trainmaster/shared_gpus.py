"""Which jobs are on which shared GPU during a pass, and where one more single-GPU job may join.

A shared GPU is one whose jobs were launched in sharing mode, or share it by turns: single-GPU jobs whose
memory is known. Alone, such a job holds the whole GPU; n together hold 1/n each. When a job joins or leaves,
only shares change; no run is relaunched. A job that was launched alone shares by turns once its memory was
measured.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from trainmaster.core.draft import Draft
from trainmaster.core.lifecycle import Phase
from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.mechanisms.gpu_occupants import remaining_jobs
from trainmaster.mechanisms.measured_memory import rebook_measured
from trainmaster.model.placement import Placement, Role, Sharing, Slice
from trainmaster.model.units import WHOLE

KEPT_FREE = 20
"""A twentieth of a shared GPU's memory stays free, because jobs may need more than stated."""


def can_share(record: JobRecord) -> bool:
    """Whether this job may share and its memory is known."""
    return record.gpu_memory > 0 and may_share(record)


def may_share(record: JobRecord) -> bool:
    """Whether this is a rigid, guaranteed single-GPU job with no sharing mode of its own."""
    demand, shape = record.demand, record.demand.nominal
    is_single = shape.count == demand.min_count == demand.max_count == 1 and shape.is_whole
    return is_single and demand.sharing is None and record.job.role is Role.GUARANTEED


def shared_gpu(placement: Placement | None, sharing: Sharing) -> int | None:
    """The GPU of a job that was launched in this sharing mode, or shares by turns; None for all others."""
    if placement is None or placement.sharing not in (sharing, Sharing.TIME):
        return None
    if len(placement.slices) != 1:
        return None
    return placement.slices[0].gpu


@dataclass(slots=True)
class SharedGpus:
    """All shared GPUs in the current draft."""

    view: View
    draft: Draft
    sharing: Sharing
    is_exempt: Callable[[JobRecord], bool]
    _before: dict[int, list[JobRecord]] | None = field(default=None, init=False)
    """By GPU: the jobs on it before this pass; computed on first use."""

    def _jobs_before_pass(self) -> dict[int, list[JobRecord]]:
        if self._before is None:
            found: dict[int, list[JobRecord]] = {}
            for node in range(len(self.view.topology.nodes)):
                for record in self.view.residents(node):
                    gpu = self.gpu_of(record.placement)
                    if gpu is not None:
                        found.setdefault(gpu, []).append(record)
            self._before = found
        return self._before

    def gpu_of(self, placement: Placement | None) -> int | None:
        return shared_gpu(placement, self.sharing)

    def all(self) -> dict[int, list[JobRecord]]:
        """Every shared GPU with the jobs that will be on it, in order of submission."""
        draft, jobs = self.draft, self.view.jobs
        found: dict[int, list[JobRecord]] = {}
        for gpu, tenants in self._jobs_before_pass().items():
            staying = [each for each in tenants if not draft.is_touched(each)]
            if staying:
                found[gpu] = staying
        for job in draft.placed():
            new = self.gpu_of(draft.placement_of(jobs[job]))
            if new is not None:
                found.setdefault(new, []).append(jobs[job])
        for tenants in found.values():
            tenants.sort(key=lambda each: each.seq)
        return found

    def on(self, gpu: int) -> list[JobRecord]:
        """The jobs that will be on this GPU, in order of submission."""
        draft = self.draft
        found = [
            record
            for record, placement in remaining_jobs(draft, gpu)
            if self.gpu_of(placement) == gpu and not draft.is_placed(record)
        ]
        placed = [self.view.jobs[job] for job in draft.placed()]
        found += [each for each in placed if self.gpu_of(draft.placement_of(each)) == gpu]
        return sorted(found, key=lambda each: each.seq)

    def is_open(self, gpu: int, tenants: list[JobRecord], most: int) -> bool:
        """Whether one more job may join: all jobs there may share, and their shares can be reduced now."""
        space, count = self.draft.space, len(tenants)
        if not 0 < count < most or not space.is_offered(gpu):
            return False
        share = WHOLE // (count + 1)
        return all(
            can_share(record) and not self.is_exempt(record) and self._can_hold(record, gpu, share)
            for record in tenants
        )

    def _can_hold(self, record: JobRecord, gpu: int, share: int) -> bool:
        """Whether the job has this share or can be resized to it now, with no job still leaving the GPU."""
        placement = self.draft.placement_of(record)
        assert placement is not None
        if self.draft.is_placed(record) or placement.slices[0].share == share:
            return True
        return record.phase is Phase.RUNNING and self.is_fully_released(gpu)

    def is_fully_released(self, gpu: int) -> bool:
        """Whether no job is still leaving this GPU, now or in the draft."""
        if gpu in self.view.releasing:
            return False
        draft = self.draft
        return not any(
            draft.is_evicted(record) and self.gpu_of(record.placement) == gpu
            for record in self.view.residents(draft.space.node_of[gpu])
        )

    def has_memory(self, gpu: int, record: JobRecord) -> bool:
        """Whether the job's memory fits on the GPU, with a margin."""
        space = self.draft.space
        kind = space.topology.type_of_gpu[gpu]
        return space.free_memory[gpu] - record.memory_on(kind) >= kind.memory // KEPT_FREE

    def make_room(self, gpu: int, tenants: list[JobRecord], record: JobRecord) -> Placement | None:
        """Reduce the shares of the jobs there so that this one can join; None, unchanged, if it cannot."""
        draft, share = self.draft, WHOLE // (len(tenants) + 1)
        mark = draft.checkpoint()
        for each in tenants:
            self.set_share(each, gpu, share)
        placement = self.slice_of(record, gpu, share)
        if draft.affords(share) and draft.space.refusal(placement, record.demand) is None:
            return placement
        draft.roll_back(mark)
        return None

    def set_share(self, record: JobRecord, gpu: int, share: int) -> None:
        """Resize a job to this share of its GPU."""
        draft, placement = self.draft, self.slice_of(record, gpu, share)
        if draft.placement_of(record) == placement:
            return
        if draft.is_placed(record):
            draft.replace(record, placement)
        else:
            draft.resize(record, placement)

    def slice_of(self, record: JobRecord, gpu: int, share: int = WHOLE) -> Placement:
        """A placement of the job on this share of a GPU, in sharing mode."""
        space = self.draft.space
        memory = record.memory_on(space.topology.type_of_gpu[gpu])
        piece = Slice(space.node_of[gpu], gpu, share, memory)
        return Placement((piece,), space.topology.span_of_gpus([gpu]), self.mode_of(gpu))

    def mode_of(self, gpu: int) -> Sharing:
        """How a GPU is shared: as it is now, and by turns with a run that was launched alone."""
        mode = self.draft.space.mode[gpu]
        return self.sharing if mode is None or mode is Sharing.MPS else Sharing.TIME

    def open_measured(self) -> None:
        """Let jobs share that were launched alone, once their memory is known."""
        for record in self.view.measured_runs():
            if can_share(record) and not self.is_exempt(record):
                rebook_measured(self.draft, record)
