"""Adopted runs: they go on by orders of a store that is gone, and the state follows what exists.

First every such job is taken off the devices that this store has it on, then each is put where its run is.
Another job that is to be started there gives way. Only where there is no room is a run suspended.
"""

from __future__ import annotations

from dataclasses import replace

from trainmaster.core.holds import hold_if_waiting
from trainmaster.core.lifecycle import WAITING, Cause, Phase
from trainmaster.core.pending_launches import released
from trainmaster.core.prerun import end_prerun
from trainmaster.core.state import JobRecord, State, is_on_slots
from trainmaster.core.suspension import order_suspension, suspend
from trainmaster.model.actions import Rebind
from trainmaster.model.events import RunAdopted
from trainmaster.model.placement import Placement


def adopt_runs(state: State, now: int) -> None:
    """Once all facts of the step are in, and before anything is decided."""
    adopted, state.adopted = state.adopted, []
    found = [(state.jobs.get(event.run.job), event) for event in adopted]
    ours = [
        (record, event)
        for record, event in found
        if record is not None
        and record.phase is not Phase.STOPPING
        and record.attempt <= event.run.attempt
        and state.topology.has_devices(event.placement.slices)
    ]
    for record, _ in ours:
        _take_off(state, record, now)
    kept = {record.id for record, _ in ours}
    for record, event in ours:
        _settle(state, record, event, now, kept)
    state.log.caches_stale = state.log.needs_pass = True


def _take_off(state: State, record: JobRecord, now: int) -> None:
    """Forget where it is, and what was ordered for it."""
    record.update_service(now)
    state.release_gpus(record)
    state.drop_reservation(record.id)
    released(state, record.run)
    record.is_moving = False
    record.retry_at_ms = record.suspend_ordered_ms = record.launched_ms = None
    record.over_quota = record.kept_out_by = None
    state.delayed.pop(record.id, None)
    if record.phase not in WAITING and record.phase is not Phase.HELD:
        state.move(record, Cause.RETRIED)


def _settle(state: State, record: JobRecord, event: RunAdopted, now: int, kept: set[str]) -> None:
    """Put it where its run is."""
    if not event.is_prerun:
        end_prerun(state, record)
    record.take_run(event.run)
    if record.first_start_ms is None:
        record.first_start_ms = now
        state.has_run = True
    if record.phase is Phase.HELD:
        state.move(record, Cause.RELEASED)
        record.job_time_before += state.job_time_integral
    state.move(record, Cause.START_ORDERED)
    if event.frozen:
        state.freeze(record, event.placement)
        state.move(record, Cause.SUSPEND_ORDERED)
        state.move(record, Cause.SUSPENDED)
        record.waiting_since_ms = now
        hold_if_waiting(state, record)
    elif _is_placed(state, record, event.placement, now, kept):
        state.move(record, Cause.STARTED)
        record.run_since_ms = now
        record.progress(now, event.speed_ppm)
        record.is_speed_assumed = event.is_assumed
        if record.is_held:
            suspend(state, record, now)
            record.is_unplanned = True
    else:
        freezes = state.can_freeze and record.job.stays_in_memory
        on_slots = is_on_slots(state.topology, event.placement)
        order_suspension(state, record, event.placement, now, freeze=freezes and on_slots)


def _is_placed(
    state: State, record: JobRecord, placement: Placement, now: int, kept: set[str]
) -> bool:
    """Give it its devices, or on slots, which are only numbers, others of its nodes.

    Where they are taken, starts that are not sent give way first, and runs only where nothing else helps.
    """
    others = _in_the_way(state, placement, kept)
    unsent = [each for each in others if each.id in state.pending_launches]
    runs = [each for each in others if each.id not in state.pending_launches]
    return (
        _fits(state, record, placement)
        or _fits_without(state, record, placement, unsent, now)
        or _fits_on_other_slots(state, record, placement)
        or _fits_without(state, record, placement, runs, now)
    )


def _fits(state: State, record: JobRecord, placement: Placement) -> bool:
    """Give it its devices if they are free; on a drained node too: what runs there goes on."""
    if state.occupancy.refusal(placement, record.demand, is_there=True) is not None:
        return False
    state.restore(record, placement)
    return True


def _fits_without(
    state: State, record: JobRecord, placement: Placement, others: list[JobRecord], now: int
) -> bool:
    """Suspend others, one by one, until it has its devices."""
    for other in others:
        suspend(state, other, now)
        if _fits(state, record, placement):
            return True
    return False


def _fits_on_other_slots(state: State, record: JobRecord, placement: Placement) -> bool:
    others = _other_slots(state, placement) if is_on_slots(state.topology, placement) else None
    if others is None or not _fits(state, record, others):
        return False
    state.outbox.append(Rebind(record.run, others))
    return True


def _in_the_way(state: State, placement: Placement, kept: set[str]) -> list[JobRecord]:
    """Jobs that this store has there, or is about to start there."""
    wanted = set(placement.gpus())
    there = {
        record.id: record
        for node in placement.nodes
        for record in state.residents[node].values()
        if record.id not in kept and record.phase in (Phase.STARTING, Phase.RUNNING, Phase.RESIZING)
    }
    return [
        record
        for record in there.values()
        if record.placement is not None and wanted & set(record.placement.gpus())
    ]


def _other_slots(state: State, placement: Placement) -> Placement | None:
    """Free slots of the same nodes, as many on each; None where a node does not have them."""
    free, slices = state.occupancy.free_share, []
    for index in placement.nodes:
        node = state.topology.nodes[index]
        pieces = [piece for piece in placement.slices if piece.node == index]
        share = max(piece.share for piece in pieces)
        slots = range(node.first_gpu, node.first_gpu + node.gpus)
        fitting = [slot for slot in slots if free[slot] >= share]
        if len(fitting) < len(pieces):
            return None
        slices += [piece._replace(gpu=slot) for piece, slot in zip(pieces, fitting, strict=False)]
    return replace(placement, slices=tuple(slices))
