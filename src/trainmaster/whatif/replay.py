"""Replays a recorded event log: the same events must give the same orders."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from trainmaster.daemon.recovery import Replayed, from_snapshot, replay_step
from trainmaster.model import codec
from trainmaster.model.actions import Order
from trainmaster.store.rows import SnapshotRow, StepRow


class LogError(ValueError):
    """A log that cannot be replayed: one sentence."""


@dataclass(frozen=True, slots=True)
class ReplayedStep:
    """One step: the stored orders, and those of the replay."""

    seq: int
    now_ms: int
    kept: tuple[Order, ...]
    given: tuple[Order, ...]

    @property
    def is_same(self) -> bool:
        return self.kept == self.given


def replay(lines: Iterable[str]) -> Iterator[ReplayedStep]:
    """Every step of a log as `trainmaster record --format events` writes it."""
    found: Replayed | None = None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            said = json.loads(line)
        except ValueError:
            raise LogError(f"line {number} of the log is not JSON.") from None
        if "snapshot" in said:
            row = SnapshotRow(said["seq"], said["now_ms"], json.dumps(said["snapshot"]))
            found = from_snapshot(row)
            _refuse_other_policy(found)
            continue
        if found is None:
            raise LogError("the log does not begin with a snapshot.")
        events, orders = json.dumps(said["events"]), json.dumps(said["orders"])
        given = replay_step(found, StepRow(said["seq"], said["now_ms"], events, orders))
        _refuse_other_policy(found)
        kept = codec.loads(orders)
        assert isinstance(kept, tuple)
        yield ReplayedStep(said["seq"], said["now_ms"], kept, tuple(given))


def _refuse_other_policy(found: Replayed) -> None:
    if found.trouble:
        raise LogError(f"the log cannot be replayed: {found.trouble}")
