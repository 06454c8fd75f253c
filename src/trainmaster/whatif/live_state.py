"""The manager's present state, out of its store: the newest snapshot and the steps since."""

from __future__ import annotations

import json
from dataclasses import dataclass

from trainmaster.core.controller import Controller
from trainmaster.daemon.recording import Present
from trainmaster.daemon.recovery import Replayed, from_snapshot, replay_step
from trainmaster.model.policy_spec import PolicySpec
from trainmaster.store.rows import SnapshotRow, StepRow
from trainmaster.store.store import Store
from trainmaster.whatif.question import QuestionError


@dataclass(frozen=True, slots=True)
class LiveState:
    """One reading of it; every `controller` that is made of it is a fresh one."""

    snapshot: SnapshotRow
    steps: tuple[StepRow, ...]
    controller: Controller
    policy: PolicySpec
    policy_since_ms: int | None
    now_ms: int
    present: Present

    def again(self) -> Controller:
        return _replayed(self.snapshot, self.steps).controller


def read_state(store: Store, now_ms: int) -> LiveState:
    """As it was at that time, or later where the newest snapshot is."""
    snapshot = store.snapshot()
    if snapshot is None:
        raise QuestionError("The manager has not stored its state yet: ask again in a minute.")
    steps = tuple(step for step in store.steps(snapshot.seq) if step.now_ms <= now_ms)
    found = _replayed(snapshot, steps)
    body = json.loads(snapshot.body_json)
    since = found.policy_since_ms or body.get("policy_since_ms")
    now = max(now_ms, found.now_ms)
    present = Present.of(found.controller.state)
    return LiveState(snapshot, steps, found.controller, found.policy, since, now, present)


def _replayed(snapshot: SnapshotRow, steps: tuple[StepRow, ...]) -> Replayed:
    found = from_snapshot(snapshot)
    for step in steps:
        replay_step(found, step)
    if found.trouble:
        raise QuestionError(found.trouble)
    return found
