"""Jobs whose GPU use nobody knows yet: they have their GPUs for themselves until it has been measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.model.reasons import Reason, Why
from trainmaster.model.topology import CPU_TYPE, SLOT_TYPE

Judge = Callable[[JobRecord], bool]


def with_unmeasured(
    view: View, record: JobRecord, reason: Reason, may_share: Judge, is_measured: Judge
) -> Reason:
    """Name what has to be measured before a job that finds no GPU may share one: itself, or those there.

    `may_share`: whether the policy lets a job share a GPU once it knows what the job uses of it.
    """
    if reason.why is not Why.NOT_ENOUGH_FREE or not may_share(record) or _is_for_cpus(view, record):
        return reason
    if not is_measured(record):
        return replace(reason, is_unmeasured=True)
    holders = [view.jobs[job] for job in reason.held_by]
    waits_for = [each.id for each in holders if may_share(each) and not is_measured(each)]
    return replace(reason, unmeasured=tuple(waits_for))


def _is_for_cpus(view: View, record: JobRecord) -> bool:
    """Whether the devices that it may use have no memory or utilisation to measure."""
    types = view.topology.types
    kinds = {types[kind].name for kind in view.occupancy.kinds_for(record.demand)}
    return kinds <= {CPU_TYPE, SLOT_TYPE}
