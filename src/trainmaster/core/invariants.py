"""Invariants that hold after every step: checked in tests, by rebuilding what is kept incrementally."""

from __future__ import annotations

from trainmaster.core.lifecycle import ALLOCATED, WAITING, Phase
from trainmaster.core.occupancy import Occupancy
from trainmaster.core.quotas import Quotas, gpus_held
from trainmaster.core.state import State, kept_memory
from trainmaster.model.actions import OpenTo
from trainmaster.model.reasons import Refused
from trainmaster.model.topology import CPU_TYPE
from trainmaster.model.units import WHOLE

COMPARED = (
    "free_share",
    "free_spare",
    "free_memory",
    "mode",
    "whole",
    "free_cpus",
    "free_host",
    "reserved_gpus",
    "aside",
    "usable",
    "closed",
)


OVER_BOOKED = (Refused.HOST_TAKEN, Refused.MEMORY_TAKEN)


def rebuilt(state: State, *, is_checked: bool = True) -> Occupancy:
    """The occupancy as the records alone say it should be; unchecked, it may be over-booked."""
    fresh = Occupancy(
        state.topology, can_freeze=state.can_freeze, can_move_frozen=state.can_move_frozen
    )
    crowded = crowded_nodes(state)
    for record in state.jobs.values():
        if record.placement is not None:
            why = fresh.refusal(record.placement, record.demand) if is_checked else None
            if why in OVER_BOOKED and not crowded.isdisjoint(record.placement.nodes):
                why = None
            assert why is None, f"job {record.id} is over-booked: {why}"
            fresh.book(record.placement, record.demand)
        placement = record.placement
        thaws = placement is not None and state.can_thaw_at(record, placement)
        if record.frozen is not None and not thaws:
            host, memory, *_ = kept_memory(state.topology, record, record.frozen)
            fresh.book_frozen(record.frozen.gpus(), memory, host)
    for held in state.reservations.values():
        fresh.reserve_gpus(held.slices, open_to_spare=held.open_to is OpenTo.OPPORTUNISTIC)
    for gpu in state.gpus_aside:
        fresh.set_gpu_aside(gpu)
    fresh.forget_nodes(state.forgotten)
    for node in filter(state.is_closed, range(len(state.topology.nodes))):
        fresh.close(node)
    return fresh


def crowded_nodes(state: State) -> set[int]:
    """Nodes whose CPUs and memory may be over-booked by what turned out otherwise than was estimated.

    A run that was to leave could not be frozen, or a frozen one keeps more than it was expected to.
    """
    found: set[int] = set()
    for record in state.jobs.values():
        if record.freeze_refusals and record.placement is not None:
            found.update(record.placement.nodes)
        if record.kept is not None and record.kept.is_reported and record.frozen is not None:
            found.update(record.frozen.nodes)
    return found


def check(state: State) -> None:
    """Raise an AssertionError that names the first broken invariant."""
    now, fresh = state.occupancy, rebuilt(state)
    for name in COMPARED:
        assert getattr(now, name) == getattr(fresh, name), f"occupancy.{name} has drifted"
    assert now.by_free == fresh.by_free, "the index of nodes by free GPUs has drifted"
    assert now.free_gpus == fresh.free_gpus, "the count of free GPUs has drifted"
    assert now.domain_free == fresh.domain_free, "the count of free GPUs by domain has drifted"
    assert now.shared_gpus == fresh.shared_gpus, "the count of shared GPUs has drifted"
    assert now.partial == fresh.partial, "the index of partly used GPUs has drifted"
    for shares in (now.free_share, now.free_spare):
        assert all(0 <= share <= WHOLE for share in shares), "a GPU is over-booked"
    assert not now.undo_log, "a draft has left bookings behind"
    crowded = crowded_nodes(state)
    for node in [each.index for each in state.topology.nodes if each.index not in crowded]:
        assert now.free_cpus[node] >= 0, "CPUs are over-booked"
        assert now.free_host[node] >= 0, "host memory is over-booked"
    for gpu, memory in enumerate(now.free_memory):
        is_crowded = state.topology.node_of_gpu[gpu] in crowded
        assert memory >= 0 or is_crowded, "GPU memory is over-booked"
    for record in state.jobs.values():
        if record.phase in WAITING or record.phase is Phase.HELD:
            assert record.placement is None, f"{record.id} waits and holds GPUs"
            assert record.may_start == (record.phase is not Phase.HELD), f"{record.id} is half held"
        if record.phase in ALLOCATED:
            assert record.placement is not None, f"{record.id} runs on nothing"
            count = len(record.placement.slices)
            shapes = {len(split.parts) for split in record.demand.splits}
            whole = record.demand.min_count <= count <= record.demand.max_count
            assert whole or count in shapes, f"{record.id} has part of its gang"
        assert (record.since_ms is not None) == (record.phase is Phase.RUNNING), record.id
        is_waiting_for_others = record.avoid_until_ms is not None
        assert is_waiting_for_others == (record.id in state.avoiding), (
            f"{record.id} avoids for ever"
        )
        assert is_waiting_for_others == record.demand.must_avoid, f"{record.id} avoids by half"
    waiting = sum(record.phase in WAITING for record in state.jobs.values())
    assert state.waiting == waiting, "the count of waiting jobs has drifted"
    held = {record.id for record in state.jobs.values() if record.phase is Phase.HELD}
    assert set(state.on_hold) == held, "the list of held jobs has drifted"
    assert list(state.visible_jobs()) == [job for job in state.jobs if job not in held], (
        "and of shown ones"
    )
    for node, residents in enumerate(state.residents):
        there = {
            record.seq
            for record in state.jobs.values()
            if record.placement is not None and node in record.placement.nodes
        }
        assert set(residents) == there, f"the residents of node {node} have drifted"
    if state.quotas is not None:
        _check_quotas(state, state.quotas)
    for gpu, runs in state.releasing.items():
        assert runs, f"GPU {gpu} has no run that is releasing it"


def _check_quotas(state: State, quotas: Quotas) -> None:
    """What is counted of each scope is what the records say."""
    for scope in quotas.scopes():
        inside = [record for record in state.jobs.values() if scope in quotas.scopes_of(record)]
        placed = [each.placement for each in inside if each.placement is not None]
        gpus = sum(gpus_held(state.topology, each) for each in placed)
        assert scope.gpus == gpus, f"the GPUs of {scope.key} have drifted"
        assert scope.running == len(placed), f"the runs of {scope.key} have drifted"
        gated = {record.seq for record in inside if record.over_quota == scope.key}
        assert set(scope.gated) == gated, f"the jobs over the quota of {scope.key} have drifted"
        rate = sum(each.rate for each in inside if each.since_ms is not None)
        is_counted = all(each.demand.gpu_type != CPU_TYPE for each in inside)
        assert scope.rate == rate or not is_counted, f"the use of {scope.key} has drifted"
