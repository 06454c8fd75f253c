"""What became of a job's deadline, in one sentence."""

from __future__ import annotations

from trainmaster.model.deadline_notices import DeadlineNotice, DeadlineOutcome, Decline
from trainmaster.text.formatting import when

DECLINED = {
    Decline.TOO_LARGE: "the job needs more GPUs than there are",
    Decline.NO_ESTIMATE: "it is not known how long the job runs",
}


def deadline_sentence(notice: DeadlineNotice, now: int) -> str:
    """`Its deadline (in 30 min) was declined: the earliest that can be met is in 2 h. It runs anyway.`"""
    which = f"Its deadline ({when(notice.deadline_ms, now)})"
    finish = when(notice.finish_ms, now) if notice.finish_ms is not None else ""
    if notice.what is DeadlineOutcome.SLIPPED:
        return f"{which} is expected to be missed: it should end {finish or 'later'}."
    if notice.what is not DeadlineOutcome.DECLINED:
        return f"{which} is expected to be met{f': it should end {finish}' if finish else ''}."
    why = DECLINED.get(notice.why) if notice.why is not None else None
    if why is None and notice.feasible_ms is not None:
        why = f"the earliest that can be met is {when(notice.feasible_ms, now)}"
    return f"{which} was declined{f': {why}' if why else ''}. The job runs anyway."
