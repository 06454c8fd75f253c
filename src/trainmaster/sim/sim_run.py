"""One launched run in the simulator, and the truth about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from trainmaster.model.job import Run
from trainmaster.model.placement import Placement
from trainmaster.sim.accounting import Account


class Activity(IntEnum):
    """What a simulated run is doing; the number is also the kind of its next event."""

    STARTING = 0
    TRAINING = 1
    SUSPENDING = 2
    FROZEN = 3
    THAWING = 4
    RESIZING = 5
    STALLED = 6
    """No progress: a node of its gang has failed, undetected so far."""
    PRERUN = 7
    """The first minute of the program on one device: no progress either."""


@dataclass(slots=True, eq=False)
class SimRun:
    """One launched run and the truth about it."""

    run: Run
    account: Account
    placement: Placement
    work: int
    """Work done in this attempt's line of checkpoints, up to `since_ms`."""
    share: int = 0
    base_work: int = 0
    """Work saved in the checkpoint that it was launched from."""
    activity: Activity = Activity.STARTING
    since_ms: int = 0
    speed_ppm: int = 0
    ticket: int = 0
    """Number of its next event in the heap; events with another number are stale."""
    freezes: bool = False
    refuses: bool = False
    """Whether the freeze that was ordered will fail."""
    is_prerun: bool = False
    is_on_slots: bool = False
    """Whether it runs on CPU slots."""
    alone_ppm: int = 0
    """Its speed without neighbours. This and the next two are kept by the interference tracker."""
    wires: tuple[int, ...] = ()
    """The links that its gang communicates over."""
    gangs: int = 1
    """Gangs on the most crowded of its links, itself included."""

    def __post_init__(self) -> None:
        self.share, self.base_work = self.placement.total_share, self.work

    def reshape(self, placement: Placement) -> bool:
        """Move it; returns whether its program will notice."""
        before, self.placement = self.placement, placement
        self.share = placement.total_share
        return _holdings(before) != _holdings(placement)

    def saved(self, every: int) -> int:
        """Work saved in its last checkpoint, if it writes one after every `every` of work."""
        return self.base_work + (self.work - self.base_work) // every * every

    def until_saved(self, every: int) -> int:
        """Work up to its next checkpoint."""
        return every - (self.work - self.base_work) % every


def _holdings(placement: Placement) -> tuple[object, ...]:
    """The part of a placement that the program notices: GPUs, memory and mode, not role or share."""
    return (placement.sharing, {(piece.gpu, piece.memory) for piece in placement.slices})
