"""What a plan asks for (actions) and what an engine is told (orders), both imperative."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from trainmaster.model.job import Run
from trainmaster.model.placement import Placement, Slice
from trainmaster.model.stop_reasons import EndReason


@dataclass(frozen=True, slots=True)
class Start:
    job: str
    placement: Placement


@dataclass(frozen=True, slots=True)
class Resume:
    """Continue after a suspension, in place (thaw) or elsewhere (launch from its checkpoint)."""

    job: str
    placement: Placement


@dataclass(frozen=True, slots=True)
class Suspend:
    job: str


@dataclass(frozen=True, slots=True)
class Migrate:
    job: str
    placement: Placement


@dataclass(frozen=True, slots=True)
class Resize:
    job: str
    placement: Placement


@dataclass(frozen=True, slots=True)
class Stop:
    job: str


class OpenTo(Enum):
    """Which jobs may use reserved GPUs in the meantime."""

    NOBODY = "nobody"
    OPPORTUNISTIC = "opportunistic"
    SHORT = "short"
    """Jobs that are expected to end before the reservation does."""


@dataclass(frozen=True, slots=True)
class Reserve:
    """Hold free GPUs for a waiting job; a new one replaces the job's last."""

    job: str
    slices: tuple[Slice, ...]
    until_ms: int | None = None
    open_to: OpenTo = OpenTo.NOBODY


@dataclass(frozen=True, slots=True)
class Release:
    job: str


Action = Start | Resume | Suspend | Migrate | Resize | Stop | Reserve | Release


@dataclass(frozen=True, slots=True)
class Launch:
    run: Run
    placement: Placement
    work: int
    """Work that its last checkpoint keeps; 0 for a first start."""
    is_prerun: bool = False
    """Only its first iterations, on one device: it leaves nothing behind, and is ended before long."""


@dataclass(frozen=True, slots=True)
class Freeze:
    """Suspend in memory. Only for engines with `can_freeze`; one that cannot be is reported: `NotFrozen`."""

    run: Run
    may_keep: int | None = None
    """Bytes that it may keep on each of its GPUs at most, because a job that comes needs the rest."""


@dataclass(frozen=True, slots=True)
class Thaw:
    """Continue a frozen run: where it was, beside others or not, or on these CPU slots of the same nodes, or
    on these GPUs of the same kind and node where the engine can (`can_move_frozen`)."""

    run: Run
    placement: Placement | None = None


@dataclass(frozen=True, slots=True)
class Rebind:
    """Give a run other CPU slots of its nodes, or another part of the GPUs that it has: its processes do not
    notice, and nothing is reported.
    """

    run: Run
    placement: Placement


@dataclass(frozen=True, slots=True)
class Halt:
    """Save and end; the job continues later as a new attempt."""

    run: Run


@dataclass(frozen=True, slots=True)
class Kill:
    """End for good."""

    run: Run
    end: EndReason | None = None
    """Why, for the run's own record: a store may be older than that, or gone. Filled in when it is sent."""


@dataclass(frozen=True, slots=True)
class Reshape:
    run: Run
    placement: Placement


Order = Launch | Freeze | Thaw | Rebind | Halt | Kill | Reshape
