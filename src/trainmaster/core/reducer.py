"""The reducer: one small function per fact, chosen by the fact's type.

Messages of an old attempt, or of a job that has ended, are ignored: the attempt is the fencing token.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from trainmaster.core.gpus_aside import aside_after
from trainmaster.core.holds import delay_retry, hold, hold_if_waiting, release
from trainmaster.core.input_facts import input_blocked, input_failed, input_returned
from trainmaster.core.invariants import rebuilt
from trainmaster.core.last_resort import lift_protection
from trainmaster.core.lifecycle import ALLOCATED, WAITING, Cause, Phase
from trainmaster.core.next_attempt import (
    ask_for_more,
    avoid_devices,
    change_demand,
    limit_size,
)
from trainmaster.core.pending_launches import (
    begin_release,
    launch_after_step,
    released,
    revoke_launch,
)
from trainmaster.core.prerun import end_prerun
from trainmaster.core.refused_freeze import go_on_unfrozen
from trainmaster.core.reservations import reservation_cancelled, reservation_made
from trainmaster.core.state import JobRecord, State
from trainmaster.core.suspension import book_report, revoke_start
from trainmaster.model import events as e
from trainmaster.model.actions import Kill
from trainmaster.model.job import Run
from trainmaster.model.placement import Sharing
from trainmaster.model.profile import Profile
from trainmaster.model.queue import Queue
from trainmaster.model.topology_growth import forgotten, grown
from trainmaster.model.type_speeds import (
    MeasuredRate,
    fastest_type,
    noticeable,
    with_speeds,
)
from trainmaster.model.units import HOUR, NOMINAL

Reducer = Callable[[State, Any, int], None]

MOST_SAMPLES = 64
"""Progress reports kept per job; when there are more, every second one is dropped.

So the samples cover the whole life of a job, more densely towards the end.
"""

LONG_RUN = HOUR
"""A run that lasted this long has made progress, whether it said so or not."""


def _current(state: State, run: Run) -> JobRecord | None:
    """The job of a run that is still alive as far as we know; None for late and repeated messages."""
    record = state.jobs.get(run.job)
    if record is None or record.attempt != run.attempt or record.phase is Phase.PENDING:
        return None
    if record.phase in (Phase.SUSPENDED, Phase.HELD) and record.frozen is None:
        return None
    return record


def _end_service(state: State, record: JobRecord, at_ms: int | None, now: int) -> None:
    """It makes no progress from now on; where it is known when it left its GPUs, service counts until then.

    That may be before now, and before or after it was ordered to leave them.
    """
    is_counting = record.since_ms is not None
    began = record.since_ms if is_counting else record.run_since_ms
    then = now if at_ms is None or began is None else min(now, max(at_ms, began))
    late = (then - (now if is_counting else record.attained_ms)) * record.rate
    if is_counting:
        record.update_service(then)
    elif at_ms is None or began is None:
        return
    else:
        record.attained, record.attained_ms = record.attained + late, then
    if late and state.quotas is not None:
        state.quotas.count_late(record, late, now)


def _begin_service(
    state: State, record: JobRecord, speed_ppm: int, at_ms: int | None, now: int
) -> int:
    """It makes progress from now on, or has since then, where that is learned late; when it began."""
    ordered = record.launched_ms or record.job.submit_ms
    then = now if at_ms is None else min(now, max(at_ms, ordered))
    record.progress(then, speed_ppm)
    if then < now and state.quotas is not None:
        state.quotas.count_late(record, (now - then) * record.rate, now)
    return then


def _job_submitted(state: State, event: e.JobSubmitted, now: int) -> None:
    job = event.job
    if job.id in state.jobs:
        return
    record = JobRecord(job, state.submitted, 0, event.estimate, event.oracle)
    record.profile = event.profile
    record.is_held = event.held
    record.cannot_save = state.cannot_save_at_first
    if event.preflight:
        record.begin_with_prerun()
    record.group = state.group_of(record.demand)
    record.attempt, record.run = event.attempts, Run(job.id, event.attempts)
    record.first_start_ms = event.first_start_ms
    state.has_run |= event.first_start_ms is not None
    record.attained, record.preemptions = event.attained, event.preemptions
    record.failures = event.failures
    state.add(record, now)
    if event.gpu_memory or event.memory:
        ask_for_more(state, record, event.gpu_memory, event.memory)
    if event.avoid:
        avoid_devices(state, record, event.avoid, now)
    state.note_profile(record)


def _job_profiled(state: State, event: e.JobProfiled, now: int) -> None:
    record = state.jobs.get(event.job)
    if record is None:
        return
    if event.splits and record.demand_after_prerun is not None:
        record.demand_after_prerun = replace(record.demand_after_prerun, splits=event.splits)
    elif event.splits and record.placement is None:
        record.demand = replace(record.demand, splits=event.splits)
        record.group = state.group_of(record.demand)
    if event.estimate is not None:
        record.estimate = event.estimate
    if event.oracle is not None:
        record.oracle = event.oracle
    if event.profile is not None:
        record.profile = (record.profile or Profile()).updated(event.profile)
        state.note_profile(record)
        lift_protection(state, record)  # what it would keep in host memory is known better now
    warm = record.demand.warm if event.warm is None else tuple(sorted(event.warm))
    if warm != record.demand.warm:
        change_demand(state, record, lambda demand: replace(demand, warm=warm))
    state.log.note_job(record)
    state.log.needs_pass = True


def _job_changed(state: State, event: e.JobChanged, now: int) -> None:
    record = state.jobs.get(event.job.id)
    if record is None:
        return
    old, job = record.job, replace(event.job, submit_ms=record.job.submit_ms)
    if record.placement is not None or record.frozen is not None or record.run in state.leaving:
        job = replace(job, demand=old.demand, role=old.role)
    state.log.note_job(record)
    record.take(job)
    if job.demand != old.demand:
        record.group = state.group_of(record.demand)
        record.avoid_until_ms = None  # the new demand names no device
        state.avoiding.pop(record.id, None)
        state.drop_reservation(record.id)
    state.log.note_job(record)
    state.log.requeued.append(record)
    state.log.caches_stale = state.log.needs_pass = True


def _prerun_waived(state: State, event: e.PrerunWaived, now: int) -> None:
    """Not while it runs: that pre-run goes on."""
    record = state.jobs.get(event.job)
    if record is not None and record.placement is None and record.run not in state.leaving:
        end_prerun(state, record)


def _job_held(state: State, event: e.JobHeld, now: int) -> None:
    record = state.jobs.get(event.job)
    if record is not None:
        hold(state, record, now, may_end=event.may_end, ends=event.ends)


def _action_requested(state: State, event: e.ActionRequested, now: int) -> None:
    state.requests.append(event.action)


def _policy_changed(state: State, event: e.PolicyChanged, now: int) -> None:
    state.new_policy = event


def stop(state: State, record: JobRecord, now: int) -> None:
    """End a job for good: at once where it holds nothing, by order where it runs."""
    if record.phase is Phase.STOPPING:
        return
    if record.phase is Phase.STARTING and record.id in state.pending_launches:
        revoke_launch(state, record)
    is_off = record.phase in WAITING or record.phase is Phase.HELD
    if is_off and record.frozen is None:
        state.end(record, Cause.WITHDRAWN)
        return
    record.update_service(now)
    held = record.frozen or record.placement
    if held is not None and record.run not in state.leaving:
        begin_release(state, record.run, held.slices)
    state.move(record, Cause.STOP_ORDERED)
    state.outbox.append(Kill(record.run))


def _run_adopted(state: State, event: e.RunAdopted, now: int) -> None:
    state.adopted.append(event)


def _run_started(state: State, event: e.RunStarted, now: int) -> None:
    record = _begin(state, event, now)
    if record is not None:
        record.is_without_mps = event.by_mps is False
        record.record_checkpoint(record.work, now)


def _run_resumed(state: State, event: e.RunResumed, now: int) -> None:
    """It continues from its own memory, so there is no new checkpoint."""
    _begin(state, event, now)


def _begin(state: State, event: e.RunStarted | e.RunResumed, now: int) -> JobRecord | None:
    """Start counting progress; returns the job unless it was running already."""
    record = _current(state, event.run)
    if record is None:
        return None
    is_late = record.phase is Phase.SUSPENDING and record.frozen is not None
    is_first = record.first_start_ms is None
    if is_first and (is_late or record.phase is Phase.STARTING):
        record.first_start_ms = now
        state.has_run = True
    if record.phase is not Phase.STARTING:
        return None
    state.move(record, Cause.STARTED)
    _count_launch(state, record, now, is_first=is_first)
    record.is_moving = False
    record.run_since_ms = _begin_service(state, record, event.speed_ppm, event.at_ms, now)
    if is_first:
        record.first_start_ms = record.run_since_ms
    if record.still_since_ms is not None:  # its supervisor says only what changes
        record.still_since_ms = now
        state.log.needs_pass = True
    record.is_speed_assumed = event.is_assumed
    if not event.is_assumed:
        _note_own_speed(state, record)
    if record.speed_ppm != NOMINAL:
        state.note_nodes_of(record)
    if record.demand.is_elastic:
        state.log.needs_pass = True
    return record


def _count_launch(state: State, record: JobRecord, now: int, *, is_first: bool) -> None:
    """Observe how long the launch took, and what a switch costs as far as is known now."""
    times, restart_ms = state.switch_times, None
    if record.launched_ms is not None:
        took = now - record.launched_ms
        times.launches.add(took)
        if not is_first:
            restart_ms = took
            times.restarts.add(took)
    record.switch_ms = times.switch_ms(restart_ms)


def _run_suspended(state: State, event: e.RunSuspended, now: int) -> None:
    record = _current(state, event.run)
    if record is None:
        released(state, event.run)
        return
    _end_service(state, record, event.at_ms, now)
    if record.is_prerun:
        record.prerun_endings += not record.is_held
    elif not event.frozen:
        _note_end(record, event)
    record.work = event.work
    if event.work > record.saved_work and not event.frozen:
        record.record_checkpoint(event.work, now)
    record.run_since_ms = None
    if record.phase in ALLOCATED and record.id not in state.pending_launches:
        _leave_unordered(state, record, event, now)
    if event.frozen:
        book_report(state, record, event)
    if record.phase is Phase.SUSPENDING:
        if record.suspend_ordered_ms is not None and not event.was_killed:
            state.switch_times.suspensions.add(now - record.suspend_ordered_ms)
        state.move(record, Cause.SUSPENDED)
        record.waiting_since_ms = now
        _after_suspension(state, record, event, now)
        if record.suspend_ordered_ms != now or record.is_unplanned:
            state.log.needs_pass = True
    elif record.phase is Phase.STOPPING:
        if event.frozen:  # its processes are stopped, but not ended yet
            return
        state.end(record, Cause.SUSPENDED)
    elif record.frozen is not None and not event.frozen:
        state.forget_frozen(record)
        state.log.needs_pass |= record.placement is None
    released(state, event.run)


def _run_not_frozen(state: State, event: e.RunNotFrozen, now: int) -> None:
    record = _current(state, event.run)
    if record is not None and record.phase is Phase.SUSPENDING and record.frozen is not None:
        go_on_unfrozen(state, record, now, is_final=event.is_final)


def _run_paced(state: State, event: e.RunPaced, now: int) -> None:
    """Its supervisor decides by itself; policies may suspend a run that makes no step any more."""
    record = _current(state, event.run)
    if record is None:
        return
    is_still = event.percent == 0
    if is_still and record.still_since_ms is None:
        record.still_since_ms = now
        state.log.needs_pass = True
    elif not is_still:
        record.still_since_ms = None


def _nothing_changes(
    state: State,
    event: e.RunHung
    | e.RunWentOn
    | e.RunStraggled
    | e.RunIdle
    | e.RunResizeTimed
    | e.RunReplicaLost,
    now: int,
) -> None:
    """Its supervisor ends a hung one where that is wanted, and reports that as its end."""


def _leave_unordered(state: State, record: JobRecord, event: e.RunSuspended, now: int) -> None:
    """It was suspended by the order of a store that is gone."""
    record.work, record.suspend_ordered_ms = event.work, None
    if record.first_start_ms is None:
        record.first_start_ms = now
        state.has_run = True
    placement = state.deallocate(record)
    if event.frozen:
        state.freeze(record, placement)
    state.move(record, Cause.SUSPEND_ORDERED)


def _note_end(record: JobRecord, event: e.RunSuspended) -> None:
    """Its run was ended to make room: what that cost, or that it saves."""
    if event.work < record.work:
        record.lost_work += record.work - event.work
        record.endings += 1
    elif event.work > record.saved_work and event.shows_saving:
        record.cannot_save = False


def _after_suspension(state: State, record: JobRecord, event: e.RunSuspended, now: int) -> None:
    """Forget a freeze that became a halt, and launch a migrating job at its target."""
    if record.frozen is not None and not event.frozen:
        state.forget_frozen(record)
    if record.is_moving and record.placement is not None:
        state.move(record, Cause.START_ORDERED)
        released(state, event.run)
        launch_after_step(state, record, now)
    hold_if_waiting(state, record)


def _run_resized(state: State, event: e.RunResized, now: int) -> None:
    record = _current(state, event.run)
    if record is None or record.phase is not Phase.RESIZING:
        return
    state.move(record, Cause.RESIZED)
    record.work = event.work
    _begin_service(state, record, event.speed_ppm, event.at_ms, now)
    record.is_speed_assumed = event.is_assumed
    released(state, event.run)
    state.log.needs_pass = True


def _run_speed_changed(state: State, event: e.RunSpeedChanged, now: int) -> None:
    record = _current(state, event.run)
    if record is None or record.since_ms is None:
        return
    record.update_service(now)
    record.work = event.work
    record.progress(now, event.speed_ppm)
    _note_own_speed(state, record)
    if record.is_speed_assumed:  # policies learn from it before the run may end
        record.is_speed_assumed = False
        state.log.needs_pass = True
    state.log.note_job(record)
    state.note_nodes_of(record)


def _note_own_speed(state: State, record: JobRecord) -> None:
    """Its own speed on devices of a type, where types differ: better than that of the type."""
    placement, topology = record.placement, state.topology
    if topology.is_uniform or placement is None or placement.sharing is not Sharing.EXCLUSIVE:
        return
    kinds = {topology.type_of_gpu[gpu].name for gpu in placement.gpus()}
    if len(kinds) == 1 and len(placement.slices) == record.demand.nominal.count:
        own = dict(record.own_speeds) | {kinds.pop(): record.speed_ppm}
        record.own_speeds = tuple(own.items())


def _run_saved(state: State, event: e.RunSaved, now: int) -> None:
    record = _current(state, event.run)
    if record is not None and not record.is_prerun:
        record.record_checkpoint(event.work, now)
        record.cannot_save = False
        state.log.note_job(record)
        state.note_nodes_of(record)


def _run_can_save(state: State, event: e.RunCanSave, now: int) -> None:
    record = _current(state, event.run)
    if record is not None:
        record.cannot_save = False
        state.log.note_job(record)


def _run_size_limited(state: State, event: e.RunSizeLimited, now: int) -> None:
    record = _current(state, event.run)
    if record is not None:
        record.most_gpus = event.most_gpus
        limit_size(state, record)


def _run_progressed(state: State, event: e.RunProgressed, now: int) -> None:
    record = _current(state, event.run)
    if record is not None:
        samples = (*record.samples, event.sample)
        record.samples = samples if len(samples) <= MOST_SAMPLES else samples[::2]


def _run_succeeded(state: State, event: e.RunSucceeded, now: int) -> None:
    _end_run(state, event, Cause.SUCCEEDED, now)


def _run_stopped(state: State, event: e.RunStopped, now: int) -> None:
    _end_run(state, event, Cause.STOPPED, now)


def _end_run(state: State, event: e.RunSucceeded | e.RunStopped, cause: Cause, now: int) -> None:
    record = _current(state, event.run)
    if record is not None:
        _end_service(state, record, event.at_ms, now)
        state.end(record, cause)
    if state.leaving:
        released(state, event.run)


def _run_failed(state: State, event: e.RunFailed, now: int) -> None:
    record = _current(state, event.run)
    if record is None:
        released(state, event.run)
        return
    _end_service(state, record, event.at_ms, now)
    record.failures += event.is_counted
    record.losses = 0
    if event.retryable and (record.failures <= record.job.retries or not event.is_counted):
        requeue_for_retry(state, record, event.work, now, event.retry_in_ms)
        if record.is_live:
            ask_for_more(state, record, event.gpu_memory, event.memory)
            avoid_devices(state, record, event.avoid, now + event.retry_in_ms)
    else:
        state.end(record, Cause.FAILED_FOR_GOOD)
    released(state, event.run)


def _run_lost(state: State, event: e.RunLost, now: int) -> None:
    record = _current(state, event.run)
    if record is not None:
        _end_service(state, record, event.at_ms, now)
        record.losses = losses_after(record, now)
        if event.retryable:
            requeue_for_retry(state, record, event.work, now, event.retry_in_ms)
            if record.is_live and event.avoid:
                avoid_devices(state, record, event.avoid, now + event.retry_in_ms)
        else:
            state.end(record, Cause.FAILED_FOR_GOOD)
    released(state, event.run)


def _run_passed(state: State, event: e.RunPassed, now: int) -> None:
    """Neither a failure nor a preemption: it waits for all its devices."""
    record = _current(state, event.run)
    if record is not None:
        _end_service(state, record, event.at_ms, now)
        requeue(state, record, 0 if record.is_prerun else record.saved_work, now, Cause.PASSED)
        if record.is_live:
            record.losses = 0
            end_prerun(state, record)
            hold_if_waiting(state, record)
    released(state, event.run)


def losses_after(record: JobRecord, now: int) -> int:
    """How often a job was lost in a row, when its run is lost now; a long run begins a new row."""
    since = record.run_since_ms
    was_long = since is not None and now - since >= LONG_RUN
    return 1 if was_long else record.losses + 1


def requeue_for_retry(
    state: State, record: JobRecord, work: int, now: int, retry_in_ms: int = 0
) -> None:
    """Retry a job whose run failed or was lost: requeue it with the work of its last checkpoint."""
    requeue(state, record, work, now, Cause.RETRIED)
    if not record.is_live:
        return
    if retry_in_ms:
        delay_retry(state, record, now + retry_in_ms)
    else:
        hold_if_waiting(state, record)


def requeue(state: State, record: JobRecord, work: int, now: int, cause: Cause) -> None:
    """Let a job whose run is over wait again with this work; one that was being stopped has ended."""
    record.update_service(now)
    state.release_gpus(record)
    record.work = record.saved_work = work
    record.is_moving = False
    record.run_since_ms = None
    record.waiting_since_ms = now
    if record.phase is Phase.STOPPING:
        state.end(record, cause)
        return
    state.move(record, cause)
    limit_size(state, record)
    state.log.needs_pass = True


def _nodes_added(state: State, event: e.NodesAdded, now: int) -> None:
    after = grown(state.topology, event.nodes)
    types, speeds = state.topology.speed_by_type, state.type_speeds.by_type()
    new = {name: speed for name, speed in speeds.items() if name not in types}
    state.change_topology(with_speeds(after, new))
    known = state.topology.node_by_name
    state.away -= {known[found.name].index for found in event.nodes}
    state.occupancy = rebuilt(state, is_checked=False)


def _node_forgotten(state: State, event: e.NodeForgotten, now: int) -> None:
    """What is said of it and its devices goes with it."""
    node = state.topology.nodes[event.node]
    _node_left(state, e.NodeLeft(event.node), now)
    state.forgotten.add(event.node)
    state.draining.discard(event.node)
    state.rates.pop(node.name, None)
    for gpu in range(node.first_gpu, node.first_gpu + node.gpus):
        state.gpus_aside.pop(gpu, None)
    state.change_topology(forgotten(state.topology, event.node))
    state.occupancy = rebuilt(state, is_checked=False)


def _node_measured(state: State, event: e.NodeMeasured, now: int) -> None:
    """The fastest type is the nominal one, until jobs have run: their work is counted by what it was then."""
    node = state.topology.nodes[event.node]
    state.rates[node.name] = MeasuredRate(node.type.name, event.rate)
    if not state.nominal_type or not state.has_run:
        state.nominal_type = fastest_type(state.rates.values())
    _apply_speeds(state)


def _speeds_stated(state: State, event: e.SpeedsStated, now: int) -> None:
    before, state.stated_speeds = state.stated_speeds, dict(event.speeds)
    _apply_speeds(state, dict.fromkeys(before, NOMINAL))


def _apply_speeds(state: State, otherwise: Mapping[str, int] = MappingProxyType({})) -> None:
    """Let the types count as fast as is known now, where that differs noticeably."""
    speeds = {**otherwise, **state.type_speeds.by_type()}
    if noticeable(state.topology, speeds, state.stated_speeds):
        state.change_topology(with_speeds(state.topology, speeds))
        state.occupancy = rebuilt(state, is_checked=False)


def _node_joined(state: State, event: e.NodeJoined, now: int) -> None:
    state.away.discard(event.node)
    state.open_node(event.node)


def _node_left(state: State, event: e.NodeLeft, now: int) -> None:
    state.away.add(event.node)
    state.occupancy.close(event.node)
    _drop_reservations_on(state, event.node)
    for record in list(state.jobs.values()):
        is_coming = record.id in state.pending_launches or record.is_moving
        if is_coming and record.placement is not None and event.node in record.placement.nodes:
            revoke_start(state, record)
    state.log.needs_pass = True


def _node_draining(state: State, event: e.NodeDraining, now: int) -> None:
    state.draining.add(event.node)
    state.occupancy.close(event.node)
    _drop_reservations_on(state, event.node)
    state.log.needs_pass = True


def _drop_reservations_on(state: State, node: int, gpu: int | None = None) -> None:
    """Of any GPU of a node, or of this one."""
    for job, held in list(state.reservations.items()):
        if any(piece.node == node and gpu in (None, piece.gpu) for piece in held.slices):
            state.drop_reservation(job)


def _node_undrained(state: State, event: e.NodeUndrained, now: int) -> None:
    state.draining.discard(event.node)
    state.open_node(event.node)


def _gpu_set_aside(state: State, event: e.GpuSetAside, now: int) -> None:
    aside = aside_after(state.gpus_aside.get(event.gpu), event, now)
    assert aside is not None
    state.gpus_aside[event.gpu] = aside
    _drop_reservations_on(state, event.node, event.gpu)
    state.occupancy.set_gpu_aside(event.gpu)
    if state.is_all_aside(event.node):
        state.occupancy.close(event.node)
    for record in list(state.jobs.values()):
        is_moving = record.is_moving and record.phase is Phase.SUSPENDING
        is_coming = record.id in state.pending_launches or is_moving
        if is_coming and record.placement is not None and event.gpu in record.placement.gpus():
            revoke_start(state, record)
    state.log.caches_stale = state.log.needs_pass = True


def _gpu_returned(state: State, event: e.GpuReturned, now: int) -> None:
    aside = aside_after(state.gpus_aside.get(event.gpu), event, now)
    if aside is not None:  # another cause is left
        state.gpus_aside[event.gpu] = aside
        return
    state.gpus_aside.pop(event.gpu, None)
    state.occupancy.return_gpu(event.gpu)
    state.open_node(event.node)
    state.log.note_nodes((event.node,))
    state.log.caches_stale = state.log.needs_pass = True


def _device_failed(state: State, event: e.DeviceFailed, now: int) -> None:
    state.device_failures = state.device_failures.failed(event.failure)


def _device_worked(state: State, event: e.DeviceWorked, now: int) -> None:
    state.device_failures = state.device_failures.worked(event.program, event.devices)


def _queue_defined(state: State, event: e.QueueDefined, now: int) -> None:
    """One that would lie inside itself is a queue of its own: policies climb to the root."""
    queue = event.queue
    state.queues[queue.name] = replace(queue, parent=None) if _lies_inside(state, queue) else queue
    state.quotas_stale = state.log.needs_pass = True


def _lies_inside(state: State, queue: Queue) -> bool:
    """Whether a queue is among its own ancestors."""
    parent = queue.parent
    while parent is not None and parent != queue.name:
        above = state.queues.get(parent)
        parent = None if above is None else above.parent
    return parent is not None


def _queue_removed(state: State, event: e.QueueRemoved, now: int) -> None:
    state.queues.pop(event.name, None)
    state.quotas_stale = state.log.needs_pass = True


def _user_limited(state: State, event: e.UserLimited, now: int) -> None:
    limits = event.limits
    state.user_limits.pop(limits.user, None)
    if not limits.is_empty:
        state.user_limits[limits.user] = limits
    state.quotas_stale = state.log.needs_pass = True


def _prices_changed(state: State, event: e.PricesChanged, now: int) -> None:
    state.prices = event.prices


def _of_live_job(change: Callable[[State, JobRecord, int], None]) -> Reducer:
    """What happens to the job that an event names, if it lives."""

    def reduce(state: State, event: Any, now: int) -> None:
        record = state.jobs.get(event.job)
        if record is not None:
            change(state, record, now)

    return reduce


def _of_known_node(reducer: Reducer) -> Reducer:
    """Ignore events of nodes that this cluster does not have, or not any more."""

    def reduce(state: State, event: Any, now: int) -> None:
        if event.node < len(state.topology.nodes) and event.node not in state.forgotten:
            reducer(state, event, now)

    return reduce


def _of_known_gpu(reducer: Reducer) -> Reducer:
    """Ignore events of devices that this cluster does not have, or not any more."""

    def reduce(state: State, event: Any, now: int) -> None:
        nodes = state.topology.node_of_gpu
        is_there = event.gpu < len(nodes) and nodes[event.gpu] == event.node
        if is_there and event.node not in state.forgotten:
            reducer(state, event, now)

    return reduce


REDUCERS: dict[type, Reducer] = {
    e.JobSubmitted: _job_submitted,
    e.JobProfiled: _job_profiled,
    e.JobWithdrawn: _of_live_job(stop),
    e.JobHeld: _job_held,
    e.JobReleased: _of_live_job(release),
    e.PrerunWaived: _prerun_waived,
    e.JobChanged: _job_changed,
    e.ActionRequested: _action_requested,
    e.PolicyChanged: _policy_changed,
    e.RunAdopted: _run_adopted,
    e.RunStarted: _run_started,
    e.RunSuspended: _run_suspended,
    e.RunNotFrozen: _run_not_frozen,
    e.RunPaced: _run_paced,
    e.RunHung: _nothing_changes,
    e.RunWentOn: _nothing_changes,
    e.RunStraggled: _nothing_changes,
    e.RunResizeTimed: _nothing_changes,
    e.RunReplicaLost: _nothing_changes,
    e.RunIdle: _nothing_changes,
    e.RunResumed: _run_resumed,
    e.RunResized: _run_resized,
    e.RunSpeedChanged: _run_speed_changed,
    e.RunSaved: _run_saved,
    e.RunCanSave: _run_can_save,
    e.RunSizeLimited: _run_size_limited,
    e.RunProgressed: _run_progressed,
    e.RunSucceeded: _run_succeeded,
    e.RunFailed: _run_failed,
    e.RunLost: _run_lost,
    e.RunPassed: _run_passed,
    e.RunStopped: _run_stopped,
    e.NodesAdded: _nodes_added,
    e.NodeForgotten: _of_known_node(_node_forgotten),
    e.NodeMeasured: _of_known_node(_node_measured),
    e.SpeedsStated: _speeds_stated,
    e.NodeJoined: _of_known_node(_node_joined),
    e.NodeLeft: _of_known_node(_node_left),
    e.NodeDraining: _of_known_node(_node_draining),
    e.NodeUndrained: _of_known_node(_node_undrained),
    e.GpuSetAside: _of_known_gpu(_gpu_set_aside),
    e.GpuReturned: _of_known_gpu(_gpu_returned),
    e.DeviceFailed: _device_failed,
    e.DeviceWorked: _device_worked,
    e.InputFailed: input_failed,
    e.InputBlocked: input_blocked,
    e.InputReturned: input_returned,
    e.QueueDefined: _queue_defined,
    e.QueueRemoved: _queue_removed,
    e.UserLimited: _user_limited,
    e.PricesChanged: _prices_changed,
    e.ReservationMade: reservation_made,
    e.ReservationCancelled: reservation_cancelled,
}
