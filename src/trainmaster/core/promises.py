"""Launches onto GPUs that others still have to leave: held back, kept, or broken.

A plan may start a job on GPUs whose present run it suspends. The entitlement changes hands at once;
the launch waits until the release is a fact. A promise that is not kept in time sets the late nodes
aside and sends the job back to be planned again.
"""

from __future__ import annotations

from trainmaster.core.lifecycle import Cause
from trainmaster.core.state import PROMISE_SLACK, JobRecord, Promise, State
from trainmaster.model.actions import Halt, Launch, Thaw
from trainmaster.model.job import Run
from trainmaster.model.placement import Placement, Slice


def launch(state: State, record: JobRecord, now: int) -> None:
    """Order the launch of a job that has its placement, or promise it."""
    placement = record.placement
    assert placement is not None
    awaiting: set[Run] = set()
    if record.frozen is not None and not resumes_in_place(record, placement):
        state.outbox.append(Halt(record.run))
        begin_release(state, record.run, record.frozen.slices)
        awaiting.add(record.run)
    if state.releasing:
        for piece in placement.slices:
            awaiting |= state.releasing.get(piece.gpu, set())
    if awaiting:
        graces = [state.jobs[run.job].job.grace_ms for run in awaiting if run.job in state.jobs]
        expires = now + max(graces, default=0) + PROMISE_SLACK
        state.promises[record.id] = Promise(record, awaiting, expires)
    else:
        _send(state, record)


def resumes_in_place(record: JobRecord, placement: Placement) -> bool:
    """Whether a frozen run can simply be thawed where it is."""
    frozen = record.frozen
    return frozen is not None and frozen.slices == placement.slices


def _send(state: State, record: JobRecord) -> None:
    placement = record.placement
    assert placement is not None
    if record.frozen is not None:
        state.thaw_residue(record)
        state.outbox.append(Thaw(record.run))
        return
    record.next_attempt()
    state.outbox.append(Launch(record.run, placement, record.work))


def begin_release(state: State, run: Run, slices: tuple[Slice, ...]) -> None:
    """Remember that this run has been told to leave these GPUs."""
    state.leaving[run] = state.leaving.get(run, ()) + slices
    releasing = state.releasing
    for piece in slices:
        there = releasing.get(piece.gpu)
        if there is None:
            releasing[piece.gpu] = {run}
        else:
            there.add(run)


def released(state: State, run: Run) -> None:
    """The run is off the GPUs it was told to leave: keep the promises that waited for it."""
    for piece in state.leaving.pop(run, ()):
        there = state.releasing.get(piece.gpu)
        if there is not None:
            there.discard(run)
            if not there:
                del state.releasing[piece.gpu]
    if state.promises:
        _keep_promises(state, run)
    if state.set_aside:
        _forgive(state, run)


def _keep_promises(state: State, run: Run) -> None:
    for job in [job for job, promise in state.promises.items() if run in promise.awaiting]:
        promise = state.promises[job]
        promise.awaiting.discard(run)
        if not promise.awaiting:
            del state.promises[job]
            _send(state, promise.record)


def _forgive(state: State, run: Run) -> None:
    """A node whose late runs have all left after all is trusted again."""
    for node in [node for node, late in state.set_aside.items() if run in late]:
        state.set_aside[node].discard(run)
        if not state.set_aside[node]:
            del state.set_aside[node]
            state.open_node(node)


def break_late(state: State, now: int) -> None:
    """Set aside the nodes of releases that never came, and plan their claimants again."""
    for job in [job for job, promise in state.promises.items() if promise.expires_ms <= now]:
        promise = state.promises.pop(job)
        record = promise.record
        for gpu, runs in state.releasing.items():
            late = runs & promise.awaiting
            if late:
                node = state.topology.node_of_gpu[gpu]
                state.set_aside.setdefault(node, set()).update(late)
                state.occupancy.close(node)
        revoke(state, record)
        state.needs_pass = True


def revoke(state: State, record: JobRecord) -> None:
    """Take back a start that has not reached the engine: it costs nothing."""
    state.promises.pop(record.id, None)
    state.disentitle(record)
    was_started = record.first_start_ms is not None
    state.move(record, Cause.REVOKED if was_started else Cause.REVOKED_UNSTARTED)
