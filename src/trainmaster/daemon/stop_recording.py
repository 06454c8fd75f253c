"""Records with each job who suspended it, for which jobs, and why it ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from trainmaster.core.state import State
from trainmaster.daemon.job_events import job_of
from trainmaster.daemon.live_job import Hold, LiveJob
from trainmaster.daemon.report_events import LoggedEvent
from trainmaster.model import actions as a
from trainmaster.model import events as e
from trainmaster.model.stop_reasons import EndReason, Suspender, Suspension
from trainmaster.text.formatting import listing

BACK_ON_OR_LOST = (e.RunAdopted, e.RunStarted, e.RunResumed, e.RunFailed, e.RunLost)
"""After these a job is not suspended any more, unless their cause says so."""

STOOD_STILL = "made no step any more beside a guaranteed job"
NOT_HELD_BACK = "could not be held back beside a guaranteed job"

IN_MAINTENANCE = "ran on a node that is in maintenance now"
IS_RESERVED = "ran on devices that are reserved for others now"
ON_DRAINED = "ran on {nodes}, which takes nothing more (drained)"


def record_stop_reasons(
    events: Sequence[LoggedEvent],
    orders: Iterable[a.Order],
    jobs: Mapping[str, LiveJob],
    state: State,
) -> None:
    """Record what a step did to its jobs; the state is the one after it."""
    asked_for = set()
    for logged in events:
        if isinstance(logged.event, e.ActionRequested):
            asked_for.add(logged.event.action.job)
        live = jobs.get(job_of(logged.event) or "")
        if live is not None:
            _record_event(live, logged)
    for order in orders:
        live = jobs.get(order.run.job)
        if live is None or not isinstance(order, a.Freeze | a.Halt):
            continue
        if live.history.suspension is None:  # else it is off its GPUs already
            by = Suspender.USER if live.id in asked_for else Suspender.POLICY
            room_for = tuple(job for job in state.awaited.get(order.run, ()) if job != live.id)
            is_still = live.record is not None and live.record.still_since_ms is not None
            stood = STOOD_STILL if live.history.is_pace_heeded else NOT_HELD_BACK
            why = stood if is_still and by == Suspender.POLICY and not room_for else ""
            why = why or (
                "" if room_for or by == Suspender.USER else _in_the_way(order, live, state)
            )
            suspension = Suspension(by, jobs=room_for, detail=why)
            live.history = replace(live.history, suspension=suspension)


def _in_the_way(order: a.Freeze | a.Halt, live: LiveJob, state: State) -> str:
    """What devices are kept free for that it was on; empty: for nothing."""
    left = {piece.gpu for piece in state.leaving.get(order.run, ())}
    ordered = None if live.record is None else live.record.suspend_ordered_ms
    for held in state.kept_free.values():
        if ordered is not None and held.is_on(ordered) and not left.isdisjoint(held.gpus):
            return IN_MAINTENANCE if held.is_maintenance else IS_RESERVED
    is_on = {piece.node for piece in state.leaving.get(order.run, ())}
    drained = [state.topology.nodes[node].name for node in sorted(is_on & state.draining)]
    return ON_DRAINED.format(nodes=listing(drained)) if drained else ""


def _record_event(live: LiveJob, logged: LoggedEvent) -> None:
    history, cause = live.history, logged.cause
    if isinstance(cause, Suspension):
        live.history = replace(history, suspension=cause)
    elif isinstance(logged.event, e.RunNotFrozen) and live.goes_on:
        live.holds.discard(Hold.OWNER)
        live.history = history = replace(history, suspension=None)
    elif isinstance(logged.event, BACK_ON_OR_LOST):
        live.history = history = replace(history, suspension=None)
    if isinstance(cause, EndReason) and (history.end is None or not history.end.is_withdrawal):
        live.history = replace(history, end=cause)
