"""Which run on a shared GPU uses more memory than it has booked, where its neighbours may not get theirs.

This is how memory is enforced where MPS does not: by what the driver says, before a neighbour fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from trainmaster.core.job_record import JobRecord, with_margin
from trainmaster.model.job import Run
from trainmaster.model.placement import Placement, Sharing
from trainmaster.text.formatting import first_of, size

TOLERANCE_PERCENT = 5
"""How much more than its booking a run may use: allocators round up."""
NAMED = 3


@dataclass(frozen=True, slots=True)
class Tenant:
    """A run on a shared GPU: the memory that it has booked there, and what it uses."""

    run: Run
    booked: int
    """0: not known."""
    used: int
    is_guest: bool = False
    """It is opportunistic: memory that it has booked is no reason to stop a guaranteed run."""
    by_mps: bool = False
    """Whether MPS limits it: what it uses beyond its booking is its CUDA context."""

    @property
    def excess(self) -> int:
        return self.used - self.booked

    @property
    def is_over(self) -> bool:
        return self.booked > 0 and not self.by_mps and exceeds(self.used, self.booked)

    @property
    def unused(self) -> int:
        """Of its booking: it may ask for it at any time."""
        return max(0, -self.excess)


@dataclass(frozen=True, slots=True)
class Overuse:
    """A run that was over its booking on a GPU, and the other runs that were there."""

    gpu: int
    by: Tenant
    beside: frozenset[Run]


def exceeds(used: int, booked: int) -> bool:
    """Whether so much is more than was booked, by more than allocators round up."""
    return (used - booked) * 100 > booked * TOLERANCE_PERCENT


def overuses(gpu: int, tenants: Sequence[Tenant]) -> list[Overuse]:
    """Those on one GPU at one look."""
    runs = frozenset(each.run for each in tenants)
    return [Overuse(gpu, each, runs - {each.run}) for each in tenants if each.is_over]


def who_took(
    run: Run, placement: Placement, needed: int, known: Iterable[Overuse]
) -> Overuse | None:
    """By whom memory was taken that a run had booked; None: by nobody who is known, or it is over itself.

    `needed`: what it had of a GPU and what it could not have besides.
    """
    booked = {piece.gpu: piece.memory for piece in placement.slices}
    owed = {gpu for gpu, memory in booked.items() if not memory or not exceeds(needed, memory)}
    found = [each for each in known if each.gpu in owed and run in each.beside]
    return max(found, key=lambda each: each.by.excess, default=None)


def taking_words(tenant: Tenant) -> str:
    """What a run did to another one, in a sentence."""
    return (
        f"Job {tenant.run.job} used {size(tenant.used)} of the {size(tenant.booked)} it had booked on"
        " the same GPU."
    )


def over_its_share(free: int, tenants: Sequence[Tenant]) -> Tenant | None:
    """The run to stop on a GPU with so much free memory; None where all get what they have booked.

    It is over its booking, opportunistic rather than guaranteed, further than any other, and what is free is
    less than what its neighbours have booked and do not use yet; those of a guaranteed run that count are
    guaranteed.
    """
    over = [tenant for tenant in tenants if tenant.is_over]
    if not over:
        return None
    worst = max(over, key=lambda tenant: (tenant.is_guest, tenant.excess, tenant.run))
    owed = sum(
        tenant.unused
        for tenant in tenants
        if tenant.run != worst.run and (worst.is_guest or not tenant.is_guest)
    )
    return worst if free < owed else None


def overuse_words(tenant: Tenant, tenants: Sequence[Tenant]) -> str:
    """What it did, in words that follow `because it`."""
    others = [each.run.job for each in tenants if each.run != tenant.run]
    whom = f"job {others[0]}" if len(others) == 1 else f"jobs {first_of(others, NAMED)}"
    return (
        f"used {size(tenant.used)} of the {size(tenant.booked)} it had booked on a GPU that it shares"
        f" with {whom}"
    )


def booking_after(used: int, memory: int) -> int:
    """What to book for a run that used so much, on GPUs that have so much."""
    return min(memory, with_margin(used))


def reserved_memory(record: JobRecord) -> int:
    """Bytes that are booked for its run on each GPU that it may share; 0: it shares none."""
    placement = record.placement
    if placement is None or placement.sharing is Sharing.EXCLUSIVE:
        return 0
    return max(piece.memory for piece in placement.slices)


def memory_words(booked: int, by_mps: bool, trouble: str = "") -> str:
    """How memory is enforced; `trouble`: why GPUs cannot be watched."""
    if not booked:
        return "none: no GPU memory is booked"
    if not by_mps and trouble:
        return f"none: {trouble}"
    return f"{size(booked)}, enforced by {'MPS' if by_mps else 'watching'}"
