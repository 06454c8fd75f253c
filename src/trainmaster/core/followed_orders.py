"""Follows a stored step: its facts as ever, and then the orders that were given, asking no policy.

What was ordered has been done, whatever the rules of today would say: so a stored order is carried into the
state without a check, and it wins over what a fact would cause today. Starts that were decided and not sent
yet are in no order: such jobs wait, and are planned again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from trainmaster.core.adopted_runs import adopt_runs
from trainmaster.core.holds import end_delays
from trainmaster.core.invariants import rebuilt
from trainmaster.core.lifecycle import ALLOCATED, WAITING, Cause, LifecycleError, Phase
from trainmaster.core.pending_launches import begin_release, released
from trainmaster.core.prerun import end_prerun
from trainmaster.core.quota_gate import rebuild, show_all_over_quota
from trainmaster.core.reducer import REDUCERS, requeue_for_retry, stop
from trainmaster.core.reservations import show_all_kept_out
from trainmaster.core.state import JobRecord, State
from trainmaster.core.suspension import order_suspension, revoke_start
from trainmaster.model import actions as a
from trainmaster.model import events as e
from trainmaster.model.job import Run
from trainmaster.model.placement import Placement
from trainmaster.model.topology import Topology


class Followed(NamedTuple):
    """What of a stored step is not as it was then."""

    unstored: Sequence[a.Order]
    """Orders that its facts cause by the rules of today, and that were not given."""
    lost: Sequence[Run]
    """Runs that were sent to devices that this cluster does not have."""
    misfits: Sequence[str]
    """Facts and orders that the state has no place for."""


def forget_starts(state: State, now: int) -> None:
    """Take back every start that is not sent, and what is reserved: no order tells what becomes of them.

    Nor does one tell which jobs were over a quota, or kept out by a reservation.
    """
    for record in list(state.jobs.values()):
        is_moving = record.is_moving and record.phase is Phase.SUSPENDING
        if record.id in state.pending_launches or (is_moving and record.placement is not None):
            revoke_start(state, record)
    for job in list(state.reservations):
        state.drop_reservation(job)
    show_all_over_quota(state, now)
    show_all_kept_out(state, now)


def follow(
    state: State, now: int, events: Sequence[e.Event], orders: Sequence[a.Order]
) -> Followed:
    """Take in the facts of a step, then what was ordered in it."""
    lost: list[Run] = []
    misfits: list[str] = []
    for event in events:
        try:
            if isinstance(event, e.JobHeld):
                _suspend_as_ordered(state, event.job, orders, now)
            REDUCERS[type(event)](state, event, now)
        except (AssertionError, LifecycleError) as error:
            misfits.append(f"{type(event).__name__}: {error}")
    misfits += _adopt(state, now)
    end_delays(state, now)
    if state.quotas_stale:
        state.quotas_stale = False
        rebuild(state, now)
        show_all_over_quota(state, now)
    caused = set(state.outbox)
    for order in [each for each in orders if each not in caused]:
        record = state.jobs.get(order.run.job)
        try:
            if record is None or not _follow(state, record, order, now):
                misfits.append(f"{type(order).__name__} {order.run}")
            elif record.run == order.run and not has_devices(state.topology, order):
                lost.append(order.run)
        except (AssertionError, LifecycleError) as error:
            misfits.append(f"{type(order).__name__} {order.run}: {error}")
    unstored = [order for order in state.outbox if order in caused and order not in orders]
    state.outbox, state.requests, state.new_policy = [], [], None
    state.log.take_ended_unsuccessfully()
    state.log.end_pass(was_noop=False)
    if state.quotas is not None:
        state.quotas.sync(now)
    return Followed(unstored, lost, misfits)


def _adopt(state: State, now: int) -> Iterator[str]:
    """Put adopted runs where they are; where there is no room is seen by the bookings, made afresh."""
    if state.adopted:
        state.occupancy = rebuilt(state, is_checked=False)
        try:
            adopt_runs(state, now)
        except (AssertionError, LifecycleError) as error:
            yield f"RunAdopted: {error}"


def drop(state: State, record: JobRecord, now: int) -> None:
    """Forget a job that has ended without an order or a fact that says so."""
    _rest(state, record, now)
    if record.id in state.jobs:
        state.end(record, Cause.WITHDRAWN)
    released(state, record.run)
    state.log.take_ended_unsuccessfully()


def _suspend_as_ordered(state: State, job: str, orders: Sequence[a.Order], now: int) -> None:
    """Suspend a run that is to be held as it was suspended then: today's rule might choose otherwise."""
    record = state.jobs.get(job)
    if record is None or record.phase not in ALLOCATED:
        return
    for order in orders:
        if order.run == record.run and isinstance(order, a.Freeze | a.Halt):
            _follow(state, record, order, now)
            record.is_unplanned = True
            return


def _follow(state: State, record: JobRecord, order: a.Order, now: int) -> bool:
    """Carry an order into the state; False where it has no place there."""
    if not has_devices(state.topology, order):
        return _lose(state, record, order.run, now)
    return FOLLOWERS[type(order)](state, record, order, now)


def has_devices(topology: Topology, order: a.Order) -> bool:
    """Whether this cluster has the devices that an order names."""
    placement: Placement | None = getattr(order, "placement", None)
    return placement is None or topology.has_devices(placement.slices)


def _lose(state: State, record: JobRecord, run: Run, now: int) -> bool:
    """Its run is where this cluster has no device: the job waits, and that attempt is over."""
    _rest(state, record, now)
    record.take_run(run)
    return True


def _rest(state: State, record: JobRecord, now: int) -> None:
    """Let it hold nothing and wait, whatever it did before."""
    if record.phase is Phase.HELD:
        record.is_held, record.retry_at_ms, record.over_quota = False, None, None
        record.kept_out_by = None
        record.job_time_before += state.job_time_integral
        state.move(record, Cause.RELEASED_UNSTARTED)
    elif record.phase not in WAITING:
        requeue_for_retry(state, record, record.saved_work, now)
    if record.frozen is not None:
        state.forget_frozen(record)


def _launch(state: State, record: JobRecord, order: a.Launch, now: int) -> bool:
    _rest(state, record, now)
    if record.phase not in WAITING:
        return False
    if not order.is_prerun:
        end_prerun(state, record)
    record.take_run(order.run)
    record.work = order.work
    _start(state, record, order.placement, now)
    return True


def _thaw(state: State, record: JobRecord, order: a.Thaw, now: int) -> bool:
    if record.frozen is None or record.phase not in WAITING or record.run != order.run:
        return False
    _start(state, record, order.placement or record.frozen, now)
    record.frozen = None
    return True


def _start(state: State, record: JobRecord, placement: Placement, now: int) -> None:
    state.restore(record, placement)
    state.move(record, Cause.START_ORDERED)
    record.launched_ms = now


def _freeze(state: State, record: JobRecord, order: a.Freeze, now: int) -> bool:
    return _suspend(state, record, order.run, now, freeze=True, may_keep=order.may_keep)


def _halt(state: State, record: JobRecord, order: a.Halt, now: int) -> bool:
    """Of a frozen run: it makes room for others, or is to go on elsewhere."""
    if record.frozen is None or record.run != order.run:
        return _suspend(state, record, order.run, now, freeze=False)
    if record.run not in state.leaving:
        begin_release(state, record.run, record.frozen.slices)
    return True


def _suspend(
    state: State,
    record: JobRecord,
    run: Run,
    now: int,
    *,
    freeze: bool,
    may_keep: int | None = None,
) -> bool:
    if record.phase not in ALLOCATED or record.run != run:
        return False
    placement = state.deallocate(record)
    order_suspension(state, record, placement, now, freeze=freeze, may_keep=may_keep)
    return True


def _kill(state: State, record: JobRecord, order: a.Kill, now: int) -> bool:
    stop(state, record, now)
    return True


def _rebind(state: State, record: JobRecord, order: a.Rebind, now: int) -> bool:
    if record.placement is None or record.run != order.run:
        return False
    _place(state, record, order.placement, now)
    if record.phase is Phase.RUNNING:
        record.progress(now, record.speed_ppm)
    return True


def _reshape(state: State, record: JobRecord, order: a.Reshape, now: int) -> bool:
    if record.phase is not Phase.RUNNING or record.run != order.run:
        return False
    kept = set(order.placement.gpus())
    old = _place(state, record, order.placement, now)
    left = tuple(piece for piece in old.slices if piece.gpu not in kept)
    if left:
        begin_release(state, record.run, left)
    state.move(record, Cause.RESIZE_ORDERED)
    return True


def _place(state: State, record: JobRecord, placement: Placement, now: int) -> Placement:
    """Exchange its devices; returns those that it had."""
    record.update_service(now)
    old = state.deallocate(record)
    state.restore(record, placement)
    return old


FOLLOWERS: dict[type, Callable[[State, JobRecord, Any, int], bool]] = {
    a.Launch: _launch,
    a.Thaw: _thaw,
    a.Freeze: _freeze,
    a.Halt: _halt,
    a.Kill: _kill,
    a.Rebind: _rebind,
    a.Reshape: _reshape,
}
