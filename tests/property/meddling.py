"""Owners who change their minds: jobs held, released, changed and suspended, at random moments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random

from trainmaster.core.lifecycle import ALLOCATED
from trainmaster.core.state import State
from trainmaster.model import events as e
from trainmaster.model.actions import Suspend
from trainmaster.model.job import Job

MOST = 30
"""Changes of mind in one run: every job must come to its end."""


@dataclass
class Meddler:
    """Adds facts to a step now and then. The same seed and the same steps give the same facts."""

    seed: int
    may_ask: bool = False
    """Whether owners may ask for other GPUs: the simulator's own books do not follow that."""
    is_over: bool = False
    count: int = 0
    _chance: Random = field(init=False)

    def __post_init__(self) -> None:
        self._chance = Random(self.seed)

    def meddled(self, state: State, events: Sequence[e.Event]) -> list[e.Event]:
        """The facts of a step, some jobs held from the start, and changes of mind."""
        if self.is_over:
            return list(events)
        chance = self._chance
        found = [self._submitted(event) for event in events]
        while self.count < MOST and chance.random() < 0.4:
            self.count += 1
            live = [*state.jobs, *(x.job.id for x in found if isinstance(x, e.JobSubmitted))]
            if live:
                found.append(self._change(state, live))
        return found

    def _change(self, state: State, live: list[str]) -> e.Event:
        chance = self._chance
        kind, job = (
            chance.choice(["hold", "release", "release", "change", "suspend"]),
            chance.choice(live),
        )
        record = state.jobs.get(job)
        if kind == "change" and record is not None:
            return e.JobChanged(self._changed(state, record.job))
        is_going = record is not None and record.phase in ALLOCATED
        if kind == "suspend" and is_going and record.id not in state.pending_launches:
            return e.ActionRequested(Suspend(job))
        if kind == "release":
            return e.JobReleased(chance.choice([*state.on_hold] or live))
        return e.JobHeld(job)

    def _changed(self, state: State, job: Job) -> Job:
        """Another queue, priority or deadline; sometimes what another job asks for."""
        chance = self._chance
        other = chance.choice([*state.jobs.values()]).job
        return replace(
            job,
            queue=chance.choice(["default", "other"]),
            priority=chance.choice([0, 1]),
            deadline_ms=chance.choice([None, None, state.job_time_integral + 50_000]),
            demand=chance.choice([job.demand, other.demand]) if self.may_ask else job.demand,
        )

    def _submitted(self, event: e.Event) -> e.Event:
        if isinstance(event, e.JobSubmitted) and self._chance.random() < 0.2:
            return replace(event, held=True)
        return event
