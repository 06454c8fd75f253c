"""What is expected of a job's deadline, and what became of it, in one sentence at the time of reading."""

from __future__ import annotations

from trainmaster.model.deadline_notices import DeadlineNotice, DeadlineOutcome, Decline
from trainmaster.model.units import MINUTE, SECOND
from trainmaster.text.formatting import about, when

DECLINED = {
    Decline.TOO_LARGE: "the job needs more GPUs than there are",
    Decline.NO_ESTIMATE: "it is not known how long the job runs (`max_runtime` would bound it)",
}

DEADLINE_OF_HELD = "Its deadline is judged when the job is no longer held."


def deadline_sentence(notice: DeadlineNotice, now: int) -> str:
    """`Its deadline (in 30 min) was declined: the earliest that can be met is in 2 h. It runs anyway.`"""
    finish = "" if notice.finish_ms is None else when(notice.finish_ms, now)
    if notice.deadline_ms < now:
        return _passed(notice, now)
    which = f"Its deadline ({when(notice.deadline_ms, now)})"
    if notice.what is DeadlineOutcome.SLIPPED:
        return f"{which} is expected to be missed: it should end {finish or 'later'}."
    if notice.what is not DeadlineOutcome.DECLINED:
        is_sooner = notice.finish_ms is not None and notice.finish_ms < notice.deadline_ms - MINUTE
        said = f": it should end {finish} at the latest" if is_sooner else ""
        return f"{which} is expected to be met{said}."
    why = DECLINED.get(notice.why) if notice.why is not None else None
    if why is None and notice.feasible_ms is not None:
        why = f"the earliest that can be met is {when(notice.feasible_ms, now)}"
    return f"{which} was declined{f': {why}' if why else ''}. The job runs anyway."


def _passed(notice: DeadlineNotice, now: int) -> str:
    """Of a job that has not ended."""
    if notice.what is DeadlineOutcome.DECLINED:
        return f"Its deadline, which was declined, passed {when(notice.deadline_ms, now)}."
    finish = notice.finish_ms
    expected = f"; it should end {when(finish, now)}" if finish is not None and finish > now else ""
    return f"Its deadline passed {when(notice.deadline_ms, now)}{expected}."


def expected_end_sentence(finish_ms: int, deadline_ms: int, now: int) -> str:
    """Of a job that runs, whatever was said of its deadline before."""
    verdict = "met" if finish_ms <= deadline_ms else "missed"
    return (
        f"At its present speed it ends {when(finish_ms, now)}: its deadline"
        f" ({when(deadline_ms, now)}) is expected to be {verdict}."
    )


def past_deadline_sentence(deadline_ms: int, finish_ms: int) -> str:
    """Of a job that has ended."""
    if abs(deadline_ms - finish_ms) < SECOND:
        return (
            f"It ended just {'in time for' if finish_ms <= deadline_ms else 'after'} its deadline."
        )
    if finish_ms <= deadline_ms:
        return f"It ended {about(deadline_ms - finish_ms)} before its deadline."
    return f"It ended {about(finish_ms - deadline_ms)} after its deadline."
