"""From a traced training step to peak memory on a GPU, with its parts and an interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from trainmaster.estimators.memory.caching_allocator import CachingAllocator
from trainmaster.model.memory_estimate import MemoryEstimate, MemorySource
from trainmaster.model.units import MIB


class GpuKind(Enum):
    """GPUs whose matrix library takes the same workspace."""

    HOPPER = "hopper"
    EARLIER = "earlier"


@dataclass(frozen=True, slots=True)
class Context:
    """What CUDA and its libraries take beside PyTorch's allocator: kernels are loaded as they are used."""

    low: int
    expected: int
    high: int

    @classmethod
    def known(cls, size: int) -> Context:
        """One that was measured on the GPU in question."""
        return cls(size, size, size)


CONTEXT = {
    GpuKind.HOPPER: Context(600 * MIB, 750 * MIB, 850 * MIB),
    GpuKind.EARLIER: Context(250 * MIB, 500 * MIB, 800 * MIB),
}
"""742 to 758 MiB on an H200. Earlier ones were not measured, so that interval is wide."""


class Doubt(Enum):
    """What a program has that is known less well."""

    CONVOLUTION = "convolution"
    RECURRENT = "recurrent"
    COMPILED = "compiled"
    SHARDED = "sharded"


MARGIN_PERCENT = 5
MARGINS_PERCENT = {
    Doubt.CONVOLUTION: 15,
    Doubt.RECURRENT: 25,
    Doubt.COMPILED: 20,
    Doubt.SHARDED: 25,
}
"""The interval to both sides, of what the allocator reserves: the widest of these counts.

cuDNN's workspaces are not documented, and decide how much memory is lost to fragments: 16 % in a recurrent
language model. The compiler chooses which activations it computes again. What ranks gather while they compute
is not counted.
"""


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
class Sharding:
    """Which parts data-parallel ranks divide among themselves (ZeRO, SC'20, section 5)."""

    stage: int = 0
    ranks: int = 1

    def bytes_of(self, part: Part, size: int) -> int:
        """What each rank holds of it."""
        return -(-size // self.ranks) if part in SHARDED[self.stage] else size


SHARDED = (
    frozenset[Part](),
    frozenset({Part.OPTIMIZER}),
    frozenset({Part.OPTIMIZER, Part.GRADIENTS}),
    frozenset({Part.OPTIMIZER, Part.GRADIENTS, Part.PARAMETERS}),
)
"""By stage."""


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
    doubts: frozenset[Doubt] = frozenset()
    sure: int | None = None
    """How many of the events are expected; those after it may happen too, and count for the top alone."""


@dataclass(frozen=True, slots=True)
class TrainingMemory:
    """Peak memory on one GPU and its parts, which add up to what is expected."""

    estimate: MemoryEstimate
    parts: Mapping[Part, int]
    allocated: int
    """What tensors take at most, as `torch.cuda.max_memory_allocated` says it."""


def training_memory(
    steps: TracedSteps,
    kind: GpuKind,
    context: Context | None = None,
    sharding: Sharding = Sharding(),
) -> TrainingMemory:
    """Replay the trace; the parts are those of the moment when most is allocated."""
    allocator = CachingAllocator()
    sizes = {name: sharding.bytes_of(each.part, each.size) for name, each in steps.storages.items()}
    sizes |= {name: WORKSPACE[each, kind] for name, each in steps.workspaces.items()}
    held = dict.fromkeys(Part, 0)
    at_peak, most, reserved = dict(held), 0, 0
    sure = len(steps.events) if steps.sure is None else steps.sure
    for count, event in enumerate(steps.events, 1):
        name = abs(event)
        part = steps.storages[name].part
        if event < 0:
            allocator.free(name)
            held[part] -= sizes[name]
        else:
            allocator.allocate(name, sizes[name])
            held[part] += sizes[name]
            if count <= sure and allocator.allocated > most:
                at_peak, most = dict(held), allocator.allocated
        if count <= sure:
            reserved = allocator.reserved
    beside = context or CONTEXT[kind]
    at_peak[Part.ROUNDING] = reserved - sum(at_peak.values())
    at_peak[Part.CONTEXT] = beside.expected
    doubts = steps.doubts | ({Doubt.SHARDED} if sharding.stage else frozenset())
    percent = max((MARGINS_PERCENT[each] for each in doubts), default=MARGIN_PERCENT)
    interval = MemoryEstimate(
        beside.low + reserved * (100 - percent) // 100,
        beside.expected + reserved,
        beside.high + allocator.reserved * (100 + percent) // 100,
        MemorySource.STATIC,
    )
    return TrainingMemory(interval, at_peak, most)
