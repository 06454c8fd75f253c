"""Jobs that share GPUs: on which terms, and what is remembered of them; values only."""

from __future__ import annotations

from dataclasses import dataclass, field

from trainmaster.core.lifecycle import Phase
from trainmaster.core.view import View
from trainmaster.model.codec import stored_as
from trainmaster.model.placement import Sharing
from trainmaster.model.plan import FrozenMap
from trainmaster.policies.trainmaster.colocation_speeds import NOTHING_MEASURED, Rates


@stored_as("colocation.Group")
@dataclass(frozen=True, slots=True)
class Crowd:
    """Jobs that share a GPU, or that one of them has left."""

    jobs: tuple[str, ...]
    """In order of joining."""
    speeds: tuple[int, ...] = ()
    """How fast they were when they were last judged; none: they have not been yet."""

    @property
    def is_judged(self) -> bool:
        return bool(self.speeds)


@stored_as("colocation.Memo")
@dataclass(frozen=True, slots=True)
class Packed:
    """What is remembered from pass to pass."""

    rates: Rates = NOTHING_MEASURED
    crowds: FrozenMap[int, Crowd] = field(default_factory=FrozenMap)
    """By GPU."""
    due_ms: int | None = None
    """When a company can be judged, or one of it may move out."""
    is_held_up: bool = False
    """Whether something waits for a run to start or to leave: somebody to join, or to hold more."""


NOBODY_PACKED = Packed()


def lasting(view: View, crowds: FrozenMap[int, Crowd], sharing: Sharing) -> dict[int, Crowd]:
    """The crowds with those who are still there."""
    found: dict[int, Crowd] = {}
    for gpu, crowd in crowds.items():
        jobs = tuple(job for job in crowd.jobs if _is_on(view, job, gpu, sharing))
        if jobs == crowd.jobs:
            found[gpu] = crowd
        elif jobs:
            found[gpu] = Crowd(jobs)
    return found


def _is_on(view: View, job: str, gpu: int, sharing: Sharing) -> bool:
    record = view.jobs.get(job)
    placement = None if record is None else record.placement
    if placement is None or placement.sharing is not sharing or len(placement.slices) != 1:
        return False
    return placement.slices[0].gpu == gpu


def judged_at(view: View, crowd: Crowd, trial_ms: int) -> int | None:
    """When all of a company will have run together for long enough; None while they do not."""
    if crowd.is_judged or len(crowd.jobs) < 2:
        return None
    latest = 0
    for job in crowd.jobs:
        record = view.jobs.get(job)
        if record is None or record.phase is not Phase.RUNNING or record.run_since_ms is None:
            return None
        latest = max(latest, record.run_since_ms)
    return latest + trial_ms
