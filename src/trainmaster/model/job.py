"""What a user wants: a job, its admissible shapes, and what is known of how long it will take."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple

from trainmaster.model.placement import Role, Sharing
from trainmaster.model.topology import CPU_TYPE
from trainmaster.model.units import SECOND, WHOLE, ceil_div

ANY_GPU = "any"
"""In a list of types: every GPU, whatever its type."""


def allows_type(gpu_type: str | None, kind: str) -> bool:
    """Whether a demand for `gpu_type` (one, several with `|` between, or none) will do with `kind`."""
    if not gpu_type:
        return kind != CPU_TYPE
    if gpu_type == kind:
        return True
    named = [each.strip() for each in gpu_type.split("|")]
    return kind in named or (ANY_GPU in named and kind != CPU_TYPE)


class Part(NamedTuple):
    """One piece of a split model: what its GPU must hold."""

    share: int
    memory: int


@dataclass(frozen=True, slots=True)
class Shape:
    """One admissible form of a job: `count` equal pieces, or the unequal `parts` of a split."""

    count: int
    share: int = WHOLE
    memory: int = 0
    """Bytes of GPU memory per piece; 0 = unstated: in proportion to the share."""
    parts: tuple[Part, ...] = ()
    speed_ppm: int | None = None
    """Speed relative to the nominal shape, where known; otherwise `perf` says."""

    @property
    def is_whole(self) -> bool:
        return self.share == WHOLE and not self.parts

    @property
    def total_share(self) -> int:
        if self.parts:
            return sum(part.share for part in self.parts)
        return self.count * self.share


@dataclass(frozen=True, slots=True)
class Demand:
    """A set of admissible shapes, the nominal one first, and what each node must add."""

    nominal: Shape
    min_count: int
    max_count: int
    splits: tuple[Shape, ...] = ()
    gpu_type: str | None = None
    """The type it needs, or several with `|` between that will all do; `any` is every GPU type, `cpu`
    a CPU slot. None = any GPU, no CPU slot."""
    cpus: int | None = None
    """Thousandths of a core per GPU; None = in proportion to the GPUs of the node."""
    host_memory: int | None = None
    """Bytes of host memory per GPU; None = in proportion."""
    sharing: Sharing | None = None
    """None = exclusive for whole GPUs, MPS for fractions."""
    avoid: tuple[int, ...] = ()
    """GPUs on which it failed, in order of their index: others are better."""
    must_avoid: bool = False
    """Whether it waits for others even while these are free."""
    barred: tuple[int, ...] = ()
    """GPUs that are kept free of it, in order of their index: for maintenance, or for others."""
    warm: tuple[int, ...] = ()
    """Nodes that have its files already: of nodes that are as good otherwise, these go first."""

    @property
    def is_elastic(self) -> bool:
        return self.min_count < self.max_count

    def for_whole_gpu(self, amount: int) -> int:
        """What `cpus` or `host_memory` is where each piece of the job is to have so much."""
        return ceil_div(amount * WHOLE, self.nominal.share)

    def for_piece(self, amount: int) -> int:
        """What each piece of the job has of an amount for a whole GPU."""
        return amount * self.nominal.share // WHOLE

    @property
    def mode(self) -> Sharing:
        if self.sharing is not None:
            return self.sharing
        return Sharing.EXCLUSIVE if self.nominal.is_whole else Sharing.MPS

    @property
    def states_gpu_memory(self) -> bool:
        """Whether it says how much memory of a GPU it needs: so much, or that of a part of a GPU."""
        return self.nominal.memory > 0 or not self.nominal.is_whole

    def allows(self, kind: str) -> bool:
        """Whether it may run on devices of this type: on CPU slots only if it says so."""
        return allows_type(self.gpu_type, kind)

    def forbids(self, gpu: int) -> bool:
        """Whether it waits rather than use this GPU."""
        return gpu in self.barred or (self.must_avoid and gpu in self.avoid)

    @property
    def forbidden(self) -> tuple[int, ...]:
        """The GPUs that it rather waits than use."""
        return (*self.barred, *self.avoid) if self.must_avoid else self.barred

    @property
    def can_prerun(self) -> bool:
        """Whether one of its devices alone is less than it asks for, and the same program can use it."""
        return self.max_count > 1 and self.nominal.is_whole

    def on_one_device(self) -> Demand:
        """What a pre-run asks for: one of its devices."""
        nominal = Shape(count=1, share=self.nominal.share, memory=self.nominal.memory)
        return replace(self, nominal=nominal, min_count=1, max_count=1, splits=())

    def sized(self, count: int) -> Shape:
        """The elastic shape of that many GPUs."""
        if count == self.nominal.count:
            return self.nominal
        return Shape(count=count, share=self.nominal.share, memory=self.nominal.memory)

    def shapes(self) -> Iterator[Shape]:
        """Every admissible shape: nominal, then larger to smaller, then splits."""
        yield self.nominal
        for count in range(self.max_count, self.min_count - 1, -1):
            if count != self.nominal.count:
                yield self.sized(count)
        yield from self.splits


def gpus(count: int, *, minimum: int | None = None, maximum: int | None = None) -> Demand:
    """Demand for whole GPUs, elastic between the bounds where they are given."""
    return Demand(
        nominal=Shape(count=count),
        min_count=count if minimum is None else minimum,
        max_count=count if maximum is None else maximum,
    )


class Source(Enum):
    """What an estimate of a job's work, or of its run time, is made from."""

    STEPS = "steps"
    """Declared steps that are left, each as long as those before."""
    TRACE = "trace"
    PROFILE = "profile"
    """The step time and the steps of earlier runs of the same program."""
    LOSS = "loss"
    """The fitted loss curve, until it has converged."""
    RUNS = "runs"
    """Earlier successful runs of the same user, program and arguments."""
    PROGRAM = "program"
    """Earlier successful runs of the same program with other arguments."""
    FIT = "steps"  # noqa: PIE796 - older stores have these three names
    DECLARED = "steps"  # noqa: PIE796
    HISTORY = "steps"  # noqa: PIE796


@dataclass(frozen=True, slots=True)
class Estimate:
    """The estimated total work of a job, and where the estimate comes from."""

    work: int
    """ms x parts per million of nominal speed."""
    source: Source
    most: int = 0
    """The upper bound of the work, where it is known to be uncertain; 0: as much as `work`."""


@dataclass(frozen=True, slots=True)
class Oracle:
    """What only the simulator knows: the work this job truly needs until it ends for good."""

    work: int


@dataclass(frozen=True, slots=True)
class Job:
    """A submitted training program."""

    id: str
    submit_ms: int
    demand: Demand
    queue: str = "default"
    user: str = ""
    app: str = ""
    model: str = ""
    role: Role = Role.GUARANTEED
    priority: int = 0
    gpu_util_ppm: int | None = None
    """Part of a GPU's cycles it keeps busy when alone, where known."""
    retries: int = 2
    grace_ms: int = 30 * SECOND
    deadline_ms: int | None = None
    iterations: int | None = None
    preemptible: bool = True
    """Whether a policy may suspend, move or resize it once it runs."""
    stays_in_memory: bool = True
    """Whether it may be suspended where it is, by stopping its processes."""
    max_runtime_ms: int | None = None
    """It is ended when it has run for so long, all attempts together; None: it has no limit."""


class Run(NamedTuple):
    """One launch of a job: the fencing token that every event and order carries."""

    job: str
    attempt: int
