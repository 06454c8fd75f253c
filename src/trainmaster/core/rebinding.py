"""Gives a run another part of its GPUs, or other CPU slots of its nodes, unnoticed by its processes."""

from __future__ import annotations

from trainmaster.core.state import JobRecord, State, in_node_order_of
from trainmaster.model.actions import Rebind
from trainmaster.model.placement import Placement


def rebind(state: State, record: JobRecord, old: Placement, now: int) -> None:
    """Tell its engine of the placement that it has now instead of the old one."""
    assert record.placement is not None
    record.placement = in_node_order_of(old, record.placement)
    state.outbox.append(Rebind(record.run, record.placement))
    if record.since_ms is not None:
        record.update_service(now)
        record.progress(now, record.speed_ppm)
    state.log.note_job(record)
