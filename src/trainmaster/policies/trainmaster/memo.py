"""What `trainmaster` remembers between passes: one frozen value that the controller stores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trainmaster.estimators.service.predictor import Observations
from trainmaster.mechanisms.fair_share.decayed_fair_share import SharesMemo
from trainmaster.mechanisms.speedup_curves import MeasuredSpeeds
from trainmaster.model.codec import stored_as
from trainmaster.model.plan import FrozenMap
from trainmaster.policies.trainmaster.colocation_speeds import NOTHING_MEASURED, ColocationSpeeds
from trainmaster.policies.trainmaster.deadlines.commitments import NO_COMMITMENTS, Commitments
from trainmaster.policies.trainmaster.locality_estimator import NOTHING_SEEN, LocalityObservations
from trainmaster.policies.trainmaster.starvation_guard import NO_GUARANTEED_RUNS, GuaranteedRuns


@stored_as("colocation.Group")
@dataclass(frozen=True, slots=True)
class ColocatedJobs:
    """Jobs that share a GPU, or that one of them has left."""

    jobs: tuple[str, ...]
    """In order of joining."""
    speeds: tuple[int, ...] = ()
    """How fast they were when they were last judged; none: they have not been yet."""

    @property
    def is_evaluated(self) -> bool:
        return bool(self.speeds)


@stored_as("colocation.Memo")
@dataclass(frozen=True, slots=True)
class ColocationMemo:
    """What is remembered from pass to pass."""

    rates: ColocationSpeeds = NOTHING_MEASURED
    crowds: FrozenMap[int, ColocatedJobs] = field(default_factory=FrozenMap)
    """By GPU."""
    due_ms: int | None = None
    """When a group can be judged, or one of its jobs may move."""
    is_held_up: bool = False
    """Whether something waits for a run to start or to leave: somebody to join, or to hold more."""


NOTHING_COLOCATED = ColocationMemo()


@stored_as("resizing.Memo")
@dataclass(frozen=True, slots=True)
class ResizingMemo:
    """What is remembered: measured speeds, and when runs were last resized."""

    measured: MeasuredSpeeds = field(default_factory=MeasuredSpeeds)
    resized_ms: FrozenMap[str, int] = field(default_factory=FrozenMap)
    tried: FrozenMap[str, int] = field(default_factory=FrozenMap)
    """By model and nominal size, or by job: the most GPUs that were seen at work."""
    due_ms: int | None = None
    """When a run that could grow will have rested, if GPUs are idle."""


NOTHING_RESIZED = ResizingMemo()


FORMER = {
    "knowledge": {
        "seen": "service",
        "switch_ms": "switch_ms",
        "debts": "owed",
        "pledges": "deadlines",
    },
    "line": {"packed": "colocation", "breaths": "resizing", "nearness": "locality"},
}
"""In memos of older stores: the value that each field was part of, and what it was called there."""


def upgraded(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """A memo in the form that older stores have, in today's form."""
    found = {name: value for name, value in body.items() if name not in FORMER}
    for part, names in FORMER.items():
        held = body.get(part, {})
        found |= {new: held[old] for old, new in names.items() if old in held}
    return found


@stored_as("trainmaster.Memo", upgraded)
@dataclass(frozen=True, slots=True)
class TrainmasterMemo:
    """What was learned, what was promised, and how runs and queues have fared."""

    service: Observations = field(default_factory=Observations)
    switch_ms: int = 0
    """What a preemption costs, as it was when the tables of service were last made."""
    owed: GuaranteedRuns = NO_GUARANTEED_RUNS
    deadlines: Commitments = NO_COMMITMENTS
    colocation: ColocationMemo = NOTHING_COLOCATED
    resizing: ResizingMemo = NOTHING_RESIZED
    locality: LocalityObservations = NOTHING_SEEN
    shares: SharesMemo = field(default_factory=SharesMemo)
