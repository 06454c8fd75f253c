"""One launched run in the simulator, and the truth about it."""

from __future__ import annotations

from enum import IntEnum

from trainmaster.model.job import Run
from trainmaster.model.placement import Placement
from trainmaster.sim.accounting import Account


class Doing(IntEnum):
    """What a simulated run is busy with; the number is also the kind of its next event."""

    STARTING = 0
    TRAINING = 1
    SUSPENDING = 2
    FROZEN = 3
    THAWING = 4
    RESIZING = 5
    STALLED = 6
    """Nothing: a node of its gang has failed, and nobody knows."""


class SimRun:
    """One launched run and the truth about it."""

    __slots__ = (
        "account",
        "alone_ppm",
        "base_work",
        "doing",
        "freezes",
        "gangs",
        "is_on_slots",
        "placement",
        "run",
        "share",
        "since_ms",
        "speed_ppm",
        "ticket",
        "wires",
        "work",
    )

    def __init__(self, run: Run, account: Account, placement: Placement, work: int) -> None:
        self.run = run
        self.account = account
        self.placement = placement
        self.share = placement.total_share
        self.work = work
        """Work done in this attempt's line of checkpoints, up to `since_ms`."""
        self.base_work = work
        """What the checkpoint that it was launched from keeps."""
        self.doing = Doing.STARTING
        self.since_ms = 0
        self.speed_ppm = 0
        self.ticket = 0
        """Number of its next event in the heap; events with another number are stale."""
        self.freezes = False
        self.is_on_slots = False
        """Whether it runs on CPU slots."""
        self.alone_ppm = 0
        """Its speed if nobody were near; like the next two kept by the company it trains in."""
        self.wires: tuple[int, ...] = ()
        """What its gang talks over."""
        self.gangs = 1
        """Gangs on the most crowded of its wires, itself included."""

    def reshape(self, placement: Placement) -> bool:
        """Put it elsewhere; whether its program will notice."""
        before, self.placement = self.placement, placement
        self.share = placement.total_share
        return _holdings(before) != _holdings(placement)

    def saved(self, every: int) -> int:
        """What its last checkpoint keeps, where it writes one after every so much work."""
        return self.base_work + (self.work - self.base_work) // every * every

    def until_saved(self, every: int) -> int:
        """Work up to its next checkpoint."""
        return every - (self.work - self.base_work) % every


def _holdings(placement: Placement) -> tuple[object, ...]:
    """What a program notices of its placement: GPUs, memory and mode, not its role or its share."""
    return (placement.sharing, {(piece.gpu, piece.memory) for piece in placement.slices})
