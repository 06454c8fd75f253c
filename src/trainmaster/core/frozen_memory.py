"""What a frozen run keeps: memory on its GPUs and in host memory, estimated until its engine reports it.

The host memory that runs out first is what the run had on its GPUs. That is what was measured, with a margin,
else what is booked for it, else all memory of the GPU, which may be more than the host has.
"""

from __future__ import annotations

from typing import NamedTuple

from trainmaster.core.occupancy import is_opportunistic
from trainmaster.model.codec import stored_as
from trainmaster.model.job import Demand
from trainmaster.model.placement import Placement, Sharing
from trainmaster.model.topology import SLOT_TYPE, GpuType, Topology
from trainmaster.model.units import MIB, WHOLE, ceil_div

FROZEN_GPU_MEMORY = 4 * MIB
"""What a run frozen by the CUDA driver leaves on each GPU (measured, docs/design/0001)."""


@stored_as("core.KeptMemory")
class KeptMemory(NamedTuple):
    """Memory of a frozen run, per GPU."""

    host: int
    gpu: int
    is_reported: bool = False
    """Whether its engine said so; else it is estimated."""
    is_all_on_gpus: bool = True
    """Whether every rank of it has its own state on a GPU, as far as its engine says."""

    @property
    def is_movable(self) -> bool:
        """Whether the driver can give back all of it on other GPUs.

        A rank that has not used its GPU yet, or that only starts other programs, would go on to use the one
        that it was started with: its environment names that.
        """
        return self.is_all_on_gpus and (self.host > 0 or not self.is_reported)


def estimated(
    topology: Topology,
    demand: Demand,
    placement: Placement,
    measured: int = 0,
    reported: KeptMemory | None = None,
) -> KeptMemory:
    """What a run frozen there would keep; on slots it keeps what it has of the host's memory.

    `measured`: its memory on each GPU with a margin, 0 = unknown. `reported`: what it kept the last time.
    """
    kind = topology.type_of_gpu[placement.slices[0].gpu]
    if kind.name == SLOT_TYPE:
        return KeptMemory(_host_on_slots(kind, demand, placement), 0)
    needed = min(measured, kind.memory)
    if reported is not None:
        return reported._replace(host=max(needed, reported.host))
    booked = demand.nominal.memory or max(piece.memory for piece in placement.slices)
    return KeptMemory(needed or booked or kind.memory, FROZEN_GPU_MEMORY)


def _host_on_slots(kind: GpuType, demand: Demand, placement: Placement) -> int:
    host = kind.memory if demand.host_memory is None else demand.host_memory
    if placement.sharing is Sharing.EXCLUSIVE:
        return host
    if demand.host_memory is None and is_opportunistic(placement):
        return 0
    return host * max(piece.share for piece in placement.slices) // WHOLE


def reported(
    before: KeptMemory,
    placement: Placement,
    host_bytes: int | None,
    gpu_bytes: int | None,
    *,
    is_all_on_gpus: bool,
) -> KeptMemory:
    """What a frozen run keeps by its engine's report, in all; what that does not say is as estimated."""
    if host_bytes is None and gpu_bytes is None:
        return before._replace(is_all_on_gpus=is_all_on_gpus)
    count = len(placement.slices)
    host = before.host if host_bytes is None else ceil_div(host_bytes, count)
    gpu = before.gpu if gpu_bytes is None else ceil_div(gpu_bytes, count)
    return KeptMemory(host, gpu, True, is_all_on_gpus)
