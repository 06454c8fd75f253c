"""What `trainmaster` remembers between passes: one frozen value that the controller stores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trainmaster.estimators.service.predictor import Observations
from trainmaster.mechanisms.fair_share.decayed_fair_share import SharesMemo
from trainmaster.model.codec import stored_as
from trainmaster.policies.trainmaster.colocation_state import NOBODY_PACKED, Packed
from trainmaster.policies.trainmaster.deadlines.commitments import NO_COMMITMENTS, Commitments
from trainmaster.policies.trainmaster.locality_estimator import NOTHING_SEEN, LocalityObservations
from trainmaster.policies.trainmaster.resizing_state import NOTHING_RESIZED, ResizingMemo
from trainmaster.policies.trainmaster.starvation_guard import NO_OWED_RUNS, OwedRuns

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
class Memo:
    """What was learned, what was promised, and how runs and queues have fared."""

    service: Observations = field(default_factory=Observations)
    switch_ms: int = 0
    """What a preemption costs, as it was when the tables of service were last made."""
    owed: OwedRuns = NO_OWED_RUNS
    deadlines: Commitments = NO_COMMITMENTS
    colocation: Packed = NOBODY_PACKED
    resizing: ResizingMemo = NOTHING_RESIZED
    locality: LocalityObservations = NOTHING_SEEN
    shares: SharesMemo = field(default_factory=SharesMemo)
