"""From a traced training step to peak memory on a GPU, with its parts and an interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from trainmaster.estimators.memory.caching_allocator import CachingAllocator
from trainmaster.model.memory_estimate import MemoryEstimate, MemorySource
from trainmaster.model.units import MIB

CONTEXT = 500 * MIB
CONTEXT_LEAST = 250 * MIB
CONTEXT_MOST = 800 * MIB
"""CUDA context and libraries: seen on one H200, not yet on other GPUs, so the interval is wide."""
MARGIN_PERCENT = 10
UNSURE_PERCENT = 25
"""Width where the traced operators are not those that a GPU runs."""


class GpuKind(Enum):
    """GPUs whose matrix library takes the same workspace."""

    HOPPER = "hopper"
    EARLIER = "earlier"


class Library(Enum):
    """Multiplies matrices, in a workspace of each thread that it keeps."""

    CUBLAS = "cublas"
    CUBLASLT = "cublaslt"


WORKSPACE = {
    (Library.CUBLAS, GpuKind.HOPPER): 32 * MIB,
    (Library.CUBLAS, GpuKind.EARLIER): 8_519_680,
    (Library.CUBLASLT, GpuKind.HOPPER): MIB,
    (Library.CUBLASLT, GpuKind.EARLIER): MIB,
}
"""What they take through PyTorch's allocator."""


class Part(Enum):
    """What a block of memory is for."""

    PARAMETERS = "parameters"
    GRADIENTS = "gradients"
    OPTIMIZER = "optimizer state"
    ACTIVATIONS = "activations"
    TEMPORARIES = "temporaries and workspace"
    ROUNDING = "allocator rounding and fragmentation"
    CONTEXT = "CUDA context"


@dataclass(frozen=True, slots=True)
class Storage:
    """A tensor's memory: how much, and what for. Views of it count once."""

    size: int
    part: Part


@dataclass(frozen=True, slots=True)
class TracedSteps:
    """Storages by number, from 1, and the order in which they appear (n) and go (-n)."""

    storages: Mapping[int, Storage]
    events: Sequence[int]
    workspaces: Mapping[int, Library] = field(default_factory=dict)
    """Storages whose size depends on the GPU."""
    is_unsure: bool = False


@dataclass(frozen=True, slots=True)
class TrainingMemory:
    """Peak memory on one GPU and its parts, which add up to what is expected."""

    estimate: MemoryEstimate
    parts: Mapping[Part, int]


def training_memory(steps: TracedSteps, kind: GpuKind) -> TrainingMemory:
    """Replay the trace; the parts are those of the moment when most is allocated."""
    allocator = CachingAllocator()
    sizes = {name: each.size for name, each in steps.storages.items()}
    sizes |= {name: WORKSPACE[each, kind] for name, each in steps.workspaces.items()}
    held = dict.fromkeys(Part, 0)
    at_peak, most = dict(held), 0
    for event in steps.events:
        name = abs(event)
        part = steps.storages[name].part
        if event < 0:
            allocator.free(name)
            held[part] -= sizes[name]
            continue
        allocator.allocate(name, sizes[name])
        held[part] += sizes[name]
        if allocator.allocated > most:
            at_peak, most = dict(held), allocator.allocated
    reserved = allocator.reserved
    at_peak[Part.ROUNDING] = reserved - sum(at_peak.values())
    at_peak[Part.CONTEXT] = CONTEXT
    margin = reserved * (UNSURE_PERCENT if steps.is_unsure else MARGIN_PERCENT) // 100
    interval = MemoryEstimate(
        CONTEXT_LEAST + reserved - margin,
        CONTEXT + reserved,
        CONTEXT_MOST + reserved + margin,
        MemorySource.STATIC,
    )
    return TrainingMemory(interval, at_peak)
