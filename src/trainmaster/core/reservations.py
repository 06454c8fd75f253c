"""Reservations and maintenance: devices that are kept free of jobs in a time that is known before.

A job is not started on devices where it would still run when they are reserved for others: by its time limit
and its estimate, or where neither is known unless it can be suspended then without losing work. So it is
under every policy: such devices are in the job's demand, as those on which it failed are, and a job for which
no others are left is hidden from the policy meanwhile, so that nobody waits behind it.

When the time has come, runs that lose nothing by it are suspended; the others stay, unless the reservation
says that they are ended. A node in maintenance is closed until the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from trainmaster.core.freeze_check import NOTHING_PLANNED
from trainmaster.core.holds import hold_if_waiting, show
from trainmaster.core.last_resort import loses_work_if_suspended
from trainmaster.core.lifecycle import ALLOCATED, WAITING, Phase
from trainmaster.core.next_attempt import change_demand, devices_for
from trainmaster.core.state import JobRecord, State
from trainmaster.core.suspension import is_start_unsent, revoke_start, suspend
from trainmaster.model import events as e
from trainmaster.model.job import Demand
from trainmaster.model.placement import Sharing
from trainmaster.model.reasons import Reason, Why
from trainmaster.model.reservation import Reservation
from trainmaster.model.topology import CPU_TYPE


def reservation_made(state: State, event: e.ReservationMade, now: int) -> None:
    made, nodes = event.reservation, len(state.topology.nodes)
    gpus = tuple(gpu for gpu in made.gpus if 0 <= gpu < state.topology.gpu_count)
    own = tuple(node for node in made.nodes if 0 <= node < nodes)
    state.kept_free[made.number] = replace(made, gpus=gpus, nodes=own)
    state.last_kept_free = max(state.last_kept_free, made.number)
    state.kept_free_stale = True


def reservation_cancelled(state: State, event: e.ReservationCancelled, now: int) -> None:
    if state.kept_free.pop(event.number, None) is not None:
        state.kept_free_stale = True


def keep_free(state: State, now: int) -> None:
    """Begin and end what is due, and keep jobs from devices that they would not leave in time."""
    state.kept_free_stale = False
    begin_and_end(state, now)
    fitting: dict[Demand, int] = {}
    changes = [_judge(state, record, now, fitting) for record in list(state.jobs.values())]
    if any(changes):
        state.log.caches_stale = state.log.needs_pass = True


def begin_and_end(state: State, now: int) -> None:
    """Close nodes and clear devices whose time has come: before a fact of that instant starts a run there."""
    for number in [each.number for each in state.kept_free.values() if each.end_ms <= now]:
        del state.kept_free[number]
    begun = [each for each in state.kept_free.values() if each.is_on(now)]
    _close_nodes(state, {node for each in begun for node in each.nodes})
    for each in begun:
        _clear(state, each, now)


def next_time(state: State, now: int) -> int | None:
    """When the next of them begins or ends."""
    times = (at for each in state.kept_free.values() for at in (each.begin_ms, each.end_ms))
    return min((at for at in times if at > now), default=None)


def _close_nodes(state: State, nodes: set[int]) -> None:
    """These nodes are in maintenance now, and no others."""
    before = set(state.in_maintenance)
    state.in_maintenance = nodes
    for node in sorted(nodes - before):
        state.occupancy.close(node)
        state.log.caches_stale = state.log.needs_pass = True
    for node in sorted(before - nodes):
        state.open_node(node)
        state.log.caches_stale = state.log.needs_pass = True


def _clear(state: State, held: Reservation, now: int) -> None:
    """Suspend what runs on its devices, and is not meant to, as far as no work is lost."""
    gpus = set(held.gpus)
    for job, reserved in list(state.reservations.items()):
        is_others = not _admits(state, held, state.jobs[job])
        if is_others and any(piece.gpu in gpus for piece in reserved.slices):
            state.drop_reservation(job)
    for record in _outsiders(state, held):
        if is_start_unsent(state, record):
            revoke_start(state, record)
        elif record.phase in ALLOCATED and (held.force or _may_suspend(state, record, now)):
            # Maintenance may restart the machine: what can save is not left in its memory.
            saves = held.is_maintenance and not record.cannot_save
            suspend(state, record, now, ends=saves)
            record.preemptions += 1
            record.is_unplanned = True
        else:
            continue
        state.log.needs_pass = True


def _outsiders(state: State, held: Reservation) -> Iterator[JobRecord]:
    """Jobs that have devices of it and that it is not for, in order of submission."""
    gpus, found = set(held.gpus), dict[int, JobRecord]()
    for node in {state.topology.node_of_gpu[gpu] for gpu in gpus}:
        found.update(state.residents[node])
    for _, record in sorted(found.items()):
        placement = record.placement
        is_there = placement is not None and not gpus.isdisjoint(placement.gpus())
        if is_there and not _admits(state, held, record):
            yield record


def left_running(state: State, held: Reservation) -> list[JobRecord]:
    """Runs that are on its devices, though it is not for them: they would lose work."""
    return [each for each in _outsiders(state, held) if each.phase in ALLOCATED]


def _may_suspend(state: State, record: JobRecord, now: int) -> bool:
    is_lossless = not loses_work_if_suspended(state, record, now, NOTHING_PLANNED)
    return record.job.preemptible and is_lossless


def _admits(state: State, held: Reservation, record: JobRecord) -> bool:
    job = record.job
    return held.admits(job.user, (job.queue, *state.queue_line(job.queue)))


# -- who may start where -----------------------------------------------------------------------------------


def known_end(record: JobRecord, now: int) -> int | None:
    """When it ends at the latest if it runs from now on, by its time limit and its estimate; None: neither
    is known."""
    ends: list[int] = []
    limit, shape = record.job.max_runtime_ms, record.demand
    if limit is not None:
        most = max(shape.nominal.total_share, shape.max_count * shape.nominal.share, 1)
        ends.append(now + max(0, limit - record.attained_at(now) // most))
    if record.estimate is not None:
        ends.append(record.finish_at(record.estimate.most or record.estimate.work, now))
    return min(ends, default=None)


def keeps_out(state: State, held: Reservation, record: JobRecord, now: int) -> bool:
    """Whether a job must not be started on its devices now."""
    if _admits(state, held, record):
        return False
    if held.begin_ms <= now:
        return True
    end = known_end(record, now)
    return not _loses_nothing(state, record) if end is None else end > held.begin_ms


def _loses_nothing(state: State, record: JobRecord) -> bool:
    """Whether its run could be suspended without losing work, as far as that is known before it starts."""
    job, demand = record.job, record.demand
    by_mps = demand.mode is Sharing.MPS and demand.gpu_type != CPU_TYPE
    freezes = state.can_freeze and job.stays_in_memory and not record.cannot_freeze and not by_mps
    return job.preemptible and (freezes or not record.cannot_save)


def _judge(state: State, record: JobRecord, now: int, fitting: dict[Demand, int]) -> bool:
    """Note the devices that are kept free of a job now, or that none are left; whether that changed."""
    against = [each for each in state.kept_free.values() if keeps_out(state, each, record, now)]
    found = {gpu for each in against for gpu in each.gpus}
    if record.placement is not None:
        found.difference_update(record.placement.gpus())
    barred = tuple(sorted(found))
    has_changed = barred != record.demand.barred
    if has_changed:
        change_demand(state, record, lambda demand: replace(demand, barred=barred))
    kept_out = None
    is_waiting = record.phase in WAITING or record.phase is Phase.HELD
    if barred and is_waiting and not _has_others(state, record, fitting):
        kept_out = min(against, key=lambda each: (each.begin_ms, each.number)).number
    if kept_out == record.kept_out_by:
        return has_changed
    before, record.kept_out_by = record.kept_out_by, kept_out
    if kept_out is not None:
        hold_if_waiting(state, record)
    elif before is not None:
        show(state, record, now)
    state.log.note_job(record)
    return True


def _has_others(state: State, record: JobRecord, fitting: dict[Demand, int]) -> bool:
    """Whether devices are left on which it could be started, if they were free."""
    demand = record.demand
    if record.frozen is not None and record.cannot_save:  # it can go on only there
        return set(demand.barred).isdisjoint(record.frozen.gpus())
    if demand not in fitting:
        fitting[demand] = devices_for(state.occupancy, demand, frozenset(demand.barred))
    return fitting[demand] >= demand.min_count


def kept_free_reason(state: State, record: JobRecord, now: int) -> Reason | None:
    """Why a job waits while devices that it could use are idle: they are kept free; None: they are not."""
    held = None if record.kept_out_by is None else state.kept_free.get(record.kept_out_by)
    if held is None and record.demand.barred:
        idle = [gpu for gpu in record.demand.barred if state.occupancy.mode[gpu] is None]
        found = [
            each
            for each in state.kept_free.values()
            if not set(idle).isdisjoint(each.gpus) and keeps_out(state, each, record, now)
        ]
        held = min(found, key=lambda each: (each.begin_ms, each.number), default=None)
    if held is None:
        return None
    return Reason(
        Why.MAINTENANCE if held.is_maintenance else Why.RESERVATION,
        record.demand.nominal.total_share,
        since_ms=held.begin_ms if held.begin_ms > now else None,
        until_ms=held.end_ms,
        detail=_places(state, held),
        kept_free=held,
    )


NAMED = 4
"""Nodes and devices that a reason names."""


def _places(state: State, held: Reservation) -> str:
    """What is kept free: nodes in maintenance, or devices."""
    nodes, node_of = state.topology.nodes, state.topology.node_of_gpu
    names = [nodes[node].name for node in held.nodes] or [
        f"{nodes[node_of[gpu]].name}:{gpu - nodes[node_of[gpu]].first_gpu}" for gpu in held.gpus
    ]
    return ", ".join(names[:NAMED]) + (", …" if len(names) > NAMED else "")


def show_all_kept_out(state: State, now: int) -> None:
    """Let policies see all jobs again that reservations kept from them."""
    for record in list(state.jobs.values()):
        if record.kept_out_by is not None:
            record.kept_out_by = None
            show(state, record, now)
            state.log.note_job(record)
