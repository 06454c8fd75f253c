"""What may be done to a job in its state, by its owner or an operator; the API has the last word."""

from __future__ import annotations

from enum import StrEnum

from trainmaster.daemon.job_rows import JobRow
from trainmaster.model.job_state import JobState


class Action(StrEnum):
    RESUME = "resume"
    SUSPEND = "suspend"
    SAVE = "save"
    MOVE = "move"
    CHANGE = "change"
    CANCEL = "cancel"


HELD = "Held"
"""Why a job waits that was submitted so, or suspended before its start."""


def allowed_actions(job: JobRow, *, may_change: bool) -> tuple[Action, ...]:
    """In the order in which they are offered."""
    if not may_change or job.has_ended:
        return ()
    if job.transition == "stopping":
        return (Action.CANCEL,)
    is_held = job.suspended_by in ("user", "idle") or (
        job.reason is not None and job.reason.code == HELD
    )
    found = [Action.RESUME if is_held else Action.SUSPEND]
    if job.state == JobState.RUNNING:
        found += [Action.SAVE, Action.MOVE]
    return (*found, Action.CHANGE, Action.CANCEL)
