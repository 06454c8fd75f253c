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
    """Jobs that share a GPU, or the ones that stayed after another left."""

    jobs: tuple[str, ...]
    """In order of joining."""
    speeds: tuple[int, ...] = ()
    """Their speeds when they were last evaluated; empty: not evaluated yet."""

    @property
    def is_evaluated(self) -> bool:
        return bool(self.speeds)


@stored_as("colocation.Memo")
@dataclass(frozen=True, slots=True)
class ColocationMemo:
    """What colocation remembers between passes."""

    rates: ColocationSpeeds = NOTHING_MEASURED
    crowds: FrozenMap[int, ColocatedJobs] = field(default_factory=FrozenMap)
    """By GPU."""
    due_ms: int | None = None
    """When a group can be evaluated, or one of its jobs may move."""
    is_held_up: bool = False
    """Whether a job that could join or get a larger share waits for a run to start or to leave."""


NOTHING_COLOCATED = ColocationMemo()


@stored_as("resizing.Memo")
@dataclass(frozen=True, slots=True)
class ResizingMemo:
    """What resizing remembers: measured speeds, and when runs were last resized."""

    measured: MeasuredSpeeds = field(default_factory=MeasuredSpeeds)
    resized_ms: FrozenMap[str, int] = field(default_factory=FrozenMap)
    tried: FrozenMap[str, int] = field(default_factory=FrozenMap)
    """By model and nominal size, or by job: the largest number of GPUs observed."""
    due_ms: int | None = None
    """If GPUs are idle: when the next run may grow."""


NOTHING_RESIZED = ResizingMemo()


FORMER = {
    "knowledge": {
        "seen": "service",
        "switch_ms": "handover_ms",
        "debts": "owed",
        "pledges": "deadlines",
    },
    "line": {"packed": "colocation", "breaths": "resizing", "nearness": "locality"},
}
"""In memos of older stores: which value each field was part of, and its former name."""


def upgraded(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Converts a memo of an older store to the current form."""
    found = {name: value for name, value in body.items() if name not in FORMER}
    if "switch_ms" in found:
        found["handover_ms"] = found.pop("switch_ms")
    for part, names in FORMER.items():
        held = body.get(part, {})
        found |= {new: held[old] for old, new in names.items() if old in held}
    return found


@stored_as("trainmaster.Memo", upgraded)
@dataclass(frozen=True, slots=True)
class TrainmasterMemo:
    """What was learned, what was promised, and the past usage of queues."""

    service: Observations = field(default_factory=Observations)
    handover_ms: int = 0
    """`View.handover_ms` when the service tables were last built."""
    owed: GuaranteedRuns = NO_GUARANTEED_RUNS
    deadlines: Commitments = NO_COMMITMENTS
    colocation: ColocationMemo = NOTHING_COLOCATED
    resizing: ResizingMemo = NOTHING_RESIZED
    locality: LocalityObservations = NOTHING_SEEN
    shares: SharesMemo = field(default_factory=SharesMemo)
