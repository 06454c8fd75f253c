"""Launches onto GPUs that other runs still have to leave: held back, then sent, or expired.

A plan may start a job on GPUs whose current run it suspends. The GPUs are allocated to the job at once;
its launch waits until the release is reported. Where that does not come in time, the nodes are set aside
and the job is planned again.
"""

from __future__ import annotations

from trainmaster.core.lifecycle import Cause, Phase
from trainmaster.core.state import LAUNCH_SLACK, JobRecord, PendingLaunch, State
from trainmaster.model.actions import Halt, Launch, Thaw
from trainmaster.model.job import Run
from trainmaster.model.placement import Slice
from trainmaster.model.units import GIB, SECOND, ceil_div

FREEZE_MS_PER_GIB = 5 * SECOND
"""The longest that it takes to move a GiB from a GPU to the host: ten times what was measured."""


def launch(state: State, record: JobRecord, now: int) -> None:
    """Order the launch of a placed job, or hold it back while other runs have yet to leave."""
    is_free = record.frozen is None and not state.releasing
    awaiting = set() if is_free else _in_the_way(state, record)
    if awaiting:
        _hold_back(state, record, awaiting, now)
    else:
        _send(state, record, now)


def launch_after_step(state: State, record: JobRecord, now: int) -> None:
    """The same from inside the reducer: nothing is launched before all facts of the step are in."""
    _hold_back(state, record, _in_the_way(state, record), now)


def _in_the_way(state: State, record: JobRecord) -> set[Run]:
    """Runs that must leave first; a frozen run of the job itself that cannot go on there is halted."""
    placement = record.placement
    assert placement is not None
    awaiting: set[Run] = set()
    if record.frozen is not None and not state.can_thaw_at(record, placement):
        if record.run not in state.leaving:
            state.outbox.append(Halt(record.run))
            begin_release(state, record.run, record.frozen.slices)
        awaiting.add(record.run)
    if state.releasing:
        for piece in placement.slices:
            awaiting |= state.releasing.get(piece.gpu, set())
    return awaiting


def _hold_back(state: State, record: JobRecord, awaiting: set[Run], now: int) -> None:
    times = [_time_to_leave(state.jobs[run.job]) for run in awaiting if run.job in state.jobs]
    expires = now + max(times, default=0) + LAUNCH_SLACK
    state.pending_launches[record.id] = PendingLaunch(record, awaiting, expires)
    for run in awaiting:
        state.awaited.setdefault(run, []).append(record.id)


def _time_to_leave(record: JobRecord) -> int:
    """How long its run may take to leave its GPUs: its grace period, or until its memory is moved."""
    at, kept = record.frozen, record.kept
    if record.phase is not Phase.SUSPENDING or at is None or kept is None or not kept.gpu:
        return record.job.grace_ms
    moved = kept.host * len(at.slices)
    return max(record.job.grace_ms, ceil_div(moved * FREEZE_MS_PER_GIB, GIB))


def extend_launches(state: State, record: JobRecord, now: int) -> None:
    """Give a run that leaves in another way than was ordered first its whole grace period again."""
    for job in state.awaited.get(record.run, ()):
        pending = state.pending_launches.get(job)
        if pending is not None and record.run in pending.awaiting:
            expires = now + record.job.grace_ms + LAUNCH_SLACK
            pending.expires_ms = max(pending.expires_ms, expires)


def _send(state: State, record: JobRecord, now: int) -> None:
    placement = record.placement
    assert placement is not None
    record.launched_ms = now
    if record.frozen is not None:
        is_elsewhere = record.frozen.slices != placement.slices
        record.frozen = None
        state.outbox.append(Thaw(record.run, placement if is_elsewhere else None))
        return
    record.next_attempt()
    work = 0 if record.is_prerun else record.work
    state.outbox.append(Launch(record.run, placement, work, record.is_prerun))


def begin_release(state: State, run: Run, slices: tuple[Slice, ...]) -> None:
    """Record that this run has been ordered to leave these GPUs."""
    state.leaving[run] = state.leaving.get(run, ()) + slices
    releasing = state.releasing
    for piece in slices:
        there = releasing.get(piece.gpu)
        if there is None:
            releasing[piece.gpu] = {run}
        else:
            there.add(run)


def released(state: State, run: Run) -> None:
    """Record that the run has left its GPUs: no launch waits for it any more."""
    for piece in state.leaving.pop(run, ()):
        there = state.releasing.get(piece.gpu)
        if there is not None:
            there.discard(run)
            if not there:
                del state.releasing[piece.gpu]
    for job in state.awaited.pop(run, ()):
        pending = state.pending_launches.get(job)
        if pending is not None:
            pending.awaiting.discard(run)
    if state.set_aside:
        _reopen_nodes(state, run)


def send_ready_launches(state: State, now: int) -> None:
    """Once all facts of the step are in, launch the jobs whose GPUs have been released."""
    for job in [job for job, each in state.pending_launches.items() if not each.awaiting]:
        _send(state, state.pending_launches.pop(job).record, now)


def _reopen_nodes(state: State, run: Run) -> None:
    """Offer a node again when its late runs have all left after all."""
    for node in [node for node, late in state.set_aside.items() if run in late]:
        state.set_aside[node].discard(run)
        if not state.set_aside[node]:
            del state.set_aside[node]
            state.open_node(node)


def expire_late_launches(state: State, now: int) -> None:
    """Set aside the nodes of releases that never came, and plan the waiting jobs again."""
    for job in [job for job, each in state.pending_launches.items() if each.expires_ms <= now]:
        expired = state.pending_launches.pop(job)
        for gpu, runs in state.releasing.items():
            late = runs & expired.awaiting
            if late:
                node = state.topology.node_of_gpu[gpu]
                state.set_aside.setdefault(node, set()).update(late)
                state.occupancy.close(node)
        revoke_launch(state, expired.record)
        state.log.needs_pass = True


def revoke_launch(state: State, record: JobRecord) -> None:
    """Undo a start that has not reached the engine: it costs nothing."""
    state.pending_launches.pop(record.id, None)
    state.deallocate(record)
    record.is_moving = False
    state.move(record, Cause.REVOKED if record.was_started else Cause.REVOKED_UNSTARTED)
