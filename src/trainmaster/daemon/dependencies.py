"""Dependencies: jobs are held until other jobs have ended, or until their array has a free place."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum

from trainmaster.daemon.live_job import Hold, LiveJob
from trainmaster.daemon.report_events import LoggedEvent
from trainmaster.model import events as e
from trainmaster.model.job_state import ENDED_STATES, JobState
from trainmaster.model.reasons import Prerequisite, Reason, Why
from trainmaster.model.stop_reasons import EndCode, EndReason, Suspender
from trainmaster.model.submission import Dependency, When
from trainmaster.text.stop_messages import end_sentence

StateOf = Callable[[str], str | None]
"""The state of any job, live or ended; None if it does not exist."""
Running = Callable[[str], tuple[str, ...]]
"""The jobs of an array that have a place."""


class DependencyState(Enum):
    MET = "met"
    OPEN = "open"
    NEVER = "never"


MET_BY: dict[When, frozenset[str]] = {
    When.OK: frozenset({JobState.SUCCEEDED}),
    When.ANY: frozenset(ENDED_STATES),
    When.FAIL: frozenset(ENDED_STATES) - {JobState.SUCCEEDED},
}


def outlook(wanted: Dependency, state: str | None) -> DependencyState:
    """Whether a dependency on a job in this state is met, open or impossible; None: there is no such job."""
    if state in MET_BY[wanted.when]:
        return DependencyState.MET
    is_open = state is not None and state not in ENDED_STATES
    return DependencyState.OPEN if is_open else DependencyState.NEVER


class Dependencies:
    """Which jobs are held for which. Rebuilt from the live jobs after a restart."""

    def __init__(self, jobs: dict[str, LiveJob]) -> None:
        self._jobs = jobs
        self._dependents: dict[str, list[str]] = {}
        self._waiting: dict[str, deque[str]] = {}
        """By array: its elements that wait for a place."""
        self.free_places: dict[str, int] = {}
        """By array: how many places are free; absent = as many as there are elements."""
        self._limits: dict[str, int] = {}
        self.waits_for_prerun: list[LiveJob] = []
        """Jobs that nothing but the pre-run of another job holds any more: to be looked at."""

    # -- new jobs ------------------------------------------------------------------------------------

    def register(self, new_jobs: Iterable[LiveJob]) -> None:
        """Register new jobs, or those of before a restart."""
        for live in new_jobs:
            for wanted in live.stored.depends_on:
                self._dependents.setdefault(wanted.job, []).append(live.id)
            array = live.stored.array
            if live.array is None or array is None or array.limit is None:
                continue
            self.free_places.setdefault(live.array, array.limit)
            self._limits[live.array] = array.limit
            if Hold.ARRAY in live.holds:
                self._waiting.setdefault(live.array, deque()).append(live.id)
            else:
                self.free_places[live.array] -= 1

    # -- ended jobs ----------------------------------------------------------------------------------

    def dependents_of(self, ended: LiveJob) -> list[LiveJob]:
        """Jobs that are held until this one has ended."""
        found = [self._jobs.get(id) for id in self._dependents.pop(ended.id, ())]
        return [live for live in found if live is not None and Hold.DEPENDENCY in live.holds]

    def release_next(self, ended: LiveJob) -> Iterator[LoggedEvent]:
        """Release the next element of its array."""
        array = ended.array
        if array is None or array not in self.free_places:
            return
        if Hold.ARRAY not in ended.holds:
            self.free_places[array] += 1
        yield from self._fill_places(array)
        if array not in self._waiting and self.free_places[array] >= self._limits[array]:
            del self.free_places[array], self._limits[array]

    def release_free_places(self) -> Iterator[LoggedEvent]:
        """After a restart: places that were free and not yet given."""
        for array in list(self._waiting):
            yield from self._fill_places(array)

    def resolve(self, live: LiveJob, state_of: StateOf) -> Iterator[LoggedEvent]:
        """Release a job whose dependencies are met, withdraw one whose dependencies can never be met."""
        for wanted in live.stored.depends_on:
            found = outlook(wanted, state_of(wanted.job))
            if found is DependencyState.NEVER:
                state = state_of(wanted.job) or "unknown"
                end = EndReason(EndCode.DEPENDENCY, job=wanted.job, job_state=state)
                detail = {"end": end.code, "why": end_sentence(end)}
                yield LoggedEvent(e.JobWithdrawn(live.id), detail, end)
                return
            if found is DependencyState.OPEN:
                return
        yield from self.remove_hold(live, Hold.DEPENDENCY)

    def _fill_places(self, array: str) -> Iterator[LoggedEvent]:
        line = self._waiting.get(array)
        while line and self.free_places[array] > 0:
            live = self._jobs.get(line.popleft())
            if live is not None and not live.has_ended and Hold.ARRAY in live.holds:
                self.free_places[array] -= 1
                yield from self.remove_hold(live, Hold.ARRAY)
        if not line:
            self._waiting.pop(array, None)

    def remove_hold(self, live: LiveJob, hold: Hold, user: str = "") -> Iterator[LoggedEvent]:
        """Remove one hold; without any other the job is free to start."""
        if hold not in live.holds:
            return
        live.holds.discard(hold)
        if live.holds == {Hold.PRERUN}:
            self.waits_for_prerun.append(live)
        if not live.holds:
            by = {"by": user} if user else {}
            yield LoggedEvent(e.JobReleased(live.id), {"hold": hold.value, **by})


def hold_reason(live: LiveJob, jobs: Mapping[str, LiveJob], running: Running) -> Reason | None:
    """Why a job is held; None where it is not. `running` says which jobs of an array have a place."""
    need, suspension = live.job.demand.nominal.total_share, live.history.suspension
    if Hold.OWNER in live.holds:
        by = "" if suspension is None else suspension.user
        if suspension is not None and suspension.by == Suspender.IDLE:
            return Reason(Why.SUSPENDED_IDLE, need)
        return Reason(Why.SUSPENDED_BY_USER if live.has_started else Why.HELD, need, by=by)
    if Hold.MEMORY in live.holds:
        return Reason(Why.OVER_GPU_MEMORY, need)
    if live.holds == {Hold.PRERUN}:
        return Reason(Why.PRERUN, need)
    if Hold.DEPENDENCY in live.holds:
        left = tuple(each.job for each in live.stored.depends_on if each.job in jobs)
        return Reason(Why.DEPENDENCY, need, held_by=left, after=tuple(prerequisites(live, jobs)))
    if Hold.ARRAY in live.holds and live.array is not None and live.stored.array is not None:
        limit = live.stored.array.limit or 0
        return Reason(Why.ARRAY_LIMIT, need, held_by=running(live.array), limit=limit)
    return None


def prerequisites(live: LiveJob, jobs: Mapping[str, LiveJob]) -> Iterator[Prerequisite]:
    """What it depends on, arrays as one; what of it is not live has ended as it must."""
    groups: dict[tuple[str, When], list[str]] = {}
    for wanted in live.stored.depends_on:
        job = wanted.job.partition("_")[0] if wanted.covers_array else wanted.job
        groups.setdefault((job, wanted.when), []).append(wanted.job)
    for (job, when), ids in groups.items():
        left = [jobs[id] for id in ids if id in jobs]
        total = len(ids) if ids != [job] else 0
        if left:
            yield Prerequisite(job, left[0].name, when.value, total, len(left))
