"""Which starts of a plan would hold: found out by booking it in a draft, which is then undone."""

from __future__ import annotations

from dataclasses import replace

from trainmaster.core.draft import Draft
from trainmaster.core.lifecycle import ALLOCATED, WAITING
from trainmaster.core.plan_rules import ending_refusal, shape_refusal
from trainmaster.core.state import JobRecord, State, can_rebind
from trainmaster.core.view import View
from trainmaster.model import actions as a
from trainmaster.model.placement import Placement
from trainmaster.model.plan import Plan


def possible_starts(plan: Plan, state: State) -> set[str]:
    """Jobs that the plan can start once all runs have left that it suspends or moves before."""
    draft = Draft(View(state))
    with draft.trial():
        for action in plan.actions:
            record = state.jobs.get(action.job)
            if record is not None:
                _book(draft, state, record, action)
        return set(draft.placed())


def _book(draft: Draft, state: State, record: JobRecord, action: a.Action) -> None:
    if isinstance(action, a.Start | a.Resume | a.Release):
        draft.release(record)
    if isinstance(action, a.Start | a.Resume):
        if not draft.is_placed(record) and _can_start(state, record, action.placement):
            draft.start(record, action.placement)
    elif draft.is_evicted(record):
        return
    elif isinstance(action, a.Suspend) and record.phase in ALLOCATED:
        draft.suspend(record)
    elif isinstance(action, a.Migrate | a.Resize) and _can_move(state, record, action.placement):
        draft.suspend(record)
        if state.occupancy.refusal(action.placement, record.demand) is None:
            draft.occupy(record, action.placement)


def _can_start(state: State, record: JobRecord, placement: Placement) -> bool:
    """Whether it can be placed there now; of a frozen job, whose memory is booked already, on the GPUs."""
    if record.phase not in WAITING or shape_refusal(state, record, placement) is not None:
        return False
    demand = record.demand
    if record.frozen is not None:
        slices = tuple(piece._replace(memory=0) for piece in placement.slices)
        placement = replace(placement, slices=slices)
        demand = replace(demand, cpus=0, host_memory=0)
    is_free = state.occupancy.refusal(placement, demand) is None
    return is_free and not state.loses_work_at(record, placement)


def _can_move(state: State, record: JobRecord, placement: Placement) -> bool:
    """Whether a policy may give its run, or its start, these GPUs instead of its own."""
    if record.placement is None or shape_refusal(state, record, placement) is not None:
        return False
    is_unnoticed = can_rebind(state.topology, record.placement, placement)
    is_free = is_unnoticed or record.id in state.pending_launches
    return is_free or ending_refusal(record) is None
