"""The last resort: ending a run that can be neither frozen nor save, so that a waiting job can have its GPUs.

Whatever a policy plans, such a run is ended only for a job that starts on its GPUs and cannot do with as few,
and that has waited at least as long as the work that was at stake when it began to wait, and at least ten
minutes; every time that it has been ended, twice as long (docs/design/0021-the-last-resort.md). Until then it
is protected: it keeps the best rank of all, so that policies plan around it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from trainmaster.core.freeze_check import PlannedMemory, will_freeze
from trainmaster.core.lifecycle import ALLOCATED, WAITING
from trainmaster.core.possible_starts import possible_starts
from trainmaster.core.state import JobRecord, State
from trainmaster.model import actions as a
from trainmaster.model.plan import Plan
from trainmaster.model.reasons import Refused
from trainmaster.model.units import MINUTE, NOMINAL

LEAST_WAIT_MS = 10 * MINUTE
"""The shortest wait of a job for which such a run may be ended."""
SHORTEST_PROTECTION_MS, LONGEST_PROTECTION_MS = MINUTE, 10 * MINUTE
"""How soon, and at the latest, a policy may ask again for a run that was protected."""


class ProtectedRun(NamedTuple):
    """A run that a plan would take GPUs from, and may not."""

    record: JobRecord
    why: Refused
    waiting: JobRecord | None
    """The job that was to have them."""


def unsaved_ms(record: JobRecord, now: int) -> int:
    """Work since its last checkpoint, as time at nominal speed."""
    return max(0, record.work_at(now) - record.saved_work) // NOMINAL


def needed_wait_ms(record: JobRecord, waiting: JobRecord, now: int) -> int:
    """How long that job must have waited for this run to be ended for it."""
    at_stake = _unsaved_before(record, waiting.waiting_since_ms, now) + record.lost_work // NOMINAL
    return max(LEAST_WAIT_MS, at_stake) << record.endings


def _unsaved_before(record: JobRecord, then: int, now: int) -> int:
    """How much of its unsaved work was done by then.

    What was done since does not count: it grows as fast as the wait, which would never be long enough.
    """
    return min(unsaved_ms(record, now), max(0, then - record.saved_ms))


def may_end(record: JobRecord, waiting: JobRecord, now: int) -> bool:
    """Whether this run may be ended for that job.

    A job that can do with as many GPUs as the run has, or can do with, gets its turn when some run ends. So
    a job is ended only for one whose minimum is larger, and no two can end each other in turns.
    """
    assert record.placement is not None
    if _least_share(waiting) <= max(record.placement.total_share, _least_share(record)):
        return False
    return now - waiting.waiting_since_ms >= needed_wait_ms(record, waiting, now)


def _least_share(record: JobRecord) -> int:
    """Of its admissible shapes, what the smallest takes, in thousandths of a GPU."""
    return min(shape.total_share for shape in record.demand.shapes())


def loses_work_if_suspended(
    state: State, record: JobRecord, now: int, planned: PlannedMemory
) -> bool:
    """Whether suspending it now would end it, and what it has not saved would be lost."""
    if not record.cannot_save or record.phase not in ALLOCATED:
        return False
    if record.id in state.pending_launches or not unsaved_ms(record, now):
        return False
    return not will_freeze(state, record, planned, now)


def runs_to_protect(
    plan: Plan, state: State, now: int, planned: PlannedMemory
) -> Iterator[ProtectedRun]:
    """Runs that this plan suspends, and must not.

    None is ended for a job that cannot start all the same: because another run in its way must not be
    ended, or because of any other mistake in the plan.
    """
    victims = [
        (record, _starting_on(plan, state, record))
        for record in _suspended(plan, state)
        if not record.job.preemptible or loses_work_if_suspended(state, record, now, planned)
    ]
    blocked = {each.id for _, starting in victims for each in starting}
    if blocked:
        blocked -= possible_starts(plan, state)
    for record, starting in victims:
        if _refusal(record, starting, now) is not None:
            blocked.update(each.id for each in starting)
    for record, starting in victims:
        possible = [each for each in starting if each.id not in blocked]
        why = _refusal(record, possible, now)
        if why is not None:
            yield ProtectedRun(record, why, min(starting, key=_by_need, default=None))


def _refusal(record: JobRecord, starting: Sequence[JobRecord], now: int) -> Refused | None:
    """Why this run must not be ended for these jobs."""
    if not record.job.preemptible:
        return Refused.NOT_PREEMPTIBLE
    waiting = min(starting, key=_by_need, default=None)
    if waiting is None or not may_end(record, waiting, now):
        return Refused.WORK_WOULD_BE_LOST
    return None


def _suspended(plan: Plan, state: State) -> Iterator[JobRecord]:
    """Runs that the plan suspends."""
    for action in plan.actions:
        record = state.jobs.get(action.job)
        if type(action) is not a.Suspend or record is None or record.phase not in ALLOCATED:
            continue
        if record.id not in state.pending_launches:
            yield record


def _starting_on(plan: Plan, state: State, victim: JobRecord) -> list[JobRecord]:
    """Waiting jobs that the plan starts on its GPUs."""
    assert victim.placement is not None
    held = set(victim.placement.gpus())
    return [
        state.jobs[each.job]
        for each in plan.actions
        if isinstance(each, a.Start | a.Resume)
        and each.job in state.jobs
        and state.jobs[each.job].phase in WAITING
        and not held.isdisjoint(each.placement.gpus())
    ]


def _by_need(record: JobRecord) -> tuple[int, int, int]:
    """The largest job first, then the one that waits longest."""
    return -_least_share(record), record.waiting_since_ms, record.seq


def protect(state: State, run: ProtectedRun, now: int) -> bool:
    """Keep a run out of reach for a while; False where it was already, or where only another run must be."""
    record, _, waiting = run
    if record.is_protected or (waiting is not None and may_end(record, waiting, now)):
        return False
    until = now + SHORTEST_PROTECTION_MS
    if waiting is not None:
        until = max(until, waiting.waiting_since_ms + needed_wait_ms(record, waiting, now))
    record.protected_until_ms = min(until, now + LONGEST_PROTECTION_MS)
    state.protected[record.id] = record
    return True


def end_protection(state: State, now: int) -> bool:
    """Let policies ask again for runs that were protected long enough; returns whether there were any."""
    over = [
        each
        for each in state.protected.values()
        if each.phase not in ALLOCATED or (each.protected_until_ms or 0) <= now
    ]
    for record in over:
        lift_protection(state, record)
    return bool(over)


def lift_protection(state: State, record: JobRecord) -> None:
    """Let policies ask again for this run: perhaps it can be frozen now."""
    state.protected.pop(record.id, None)
    record.protected_until_ms = None
