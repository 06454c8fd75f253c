"""How deadlines were answered and met: for each job, and in one line for all."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from trainmaster.model.deadline_notices import DeadlineOutcome
from trainmaster.model.job import Job
from trainmaster.model.result import DeadlineResult, JobResult, Verdict
from trainmaster.sim.driver import Simulation

VERDICTS = {DeadlineOutcome.ACCEPTED: Verdict.ACCEPTED, DeadlineOutcome.DECLINED: Verdict.DECLINED}


def with_deadlines(results: list[JobResult], simulation: Simulation) -> list[JobResult]:
    """Add the outcome of its deadline to the result of each job that has one."""
    jobs = simulation.scenario.trace.jobs
    if all(traced.job.deadline_ms is None for traced in jobs):
        return results
    return [
        replace(found, deadline=_outcome(traced.job, found.finish_ms, simulation))
        for found, traced in zip(results, jobs, strict=True)
    ]


def _outcome(job: Job, finish_ms: int | None, simulation: Simulation) -> DeadlineResult | None:
    deadline = job.deadline_ms
    if deadline is None:
        return None
    if job.id not in simulation.ledger.accounts:  # rejected, or not submitted by the horizon
        return DeadlineResult(deadline, is_asked=False)
    notices = simulation.ledger.notices[job.id]
    answer = notices[0][1] if notices else None
    is_over = finish_ms is not None or simulation.now > deadline
    slips = [when for when, notice in notices if notice.what is DeadlineOutcome.SLIPPED]
    return DeadlineResult(
        deadline_ms=deadline,
        verdict=Verdict.NONE if answer is None else VERDICTS[answer.what],
        predicted_finish_ms=None if answer is None else answer.finish_ms,
        feasible_ms=None if answer is None else answer.feasible_ms,
        is_met=finish_ms is not None and finish_ms <= deadline if is_over else None,
        warned_ms=slips[0] if slips else None,
        notices=tuple(notices),
    )


@dataclass(frozen=True, slots=True)
class DeadlineCounts:
    """All deadlines of one run."""

    asked: int
    met: int
    accepted: int
    accepted_met: int
    declined: int
    declined_met: int
    late: int
    """Accepted and missed."""
    late_silently: int
    """Accepted and missed, without a warning."""

    @property
    def is_judged(self) -> bool:
        """Whether the policy answers deadlines."""
        return bool(self.accepted or self.declined)


def count_deadlines(jobs: Iterable[JobResult]) -> DeadlineCounts | None:
    """None where no job asked for a deadline."""
    stated = [job.deadline for job in jobs if job.deadline is not None]
    found = [each for each in stated if each.is_asked]
    if not found:
        return None
    accepted = [each for each in found if each.verdict is Verdict.ACCEPTED]
    declined = [each for each in found if each.verdict is Verdict.DECLINED]
    return DeadlineCounts(
        asked=len(found),
        met=_met(found),
        accepted=len(accepted),
        accepted_met=_met(accepted),
        declined=len(declined),
        declined_met=_met(declined),
        late=sum(each.is_late for each in accepted),
        late_silently=sum(each.is_silently_late for each in accepted),
    )


def _met(deadlines: Iterable[DeadlineResult]) -> int:
    return sum(each.is_met is True for each in deadlines)


def in_words(found: DeadlineCounts) -> str:
    """`41 asked, 30 accepted, 30 met; 11 declined; 0 late without warning`."""
    if not found.is_judged:
        return f"{found.asked:,} asked, none judged, {found.met:,} met"
    anyway = f" ({found.declined_met:,} met anyway)" if found.declined_met else ""
    return (
        f"{found.asked:,} asked, {found.accepted:,} accepted, {found.accepted_met:,} met;"
        f" {found.declined:,} declined{anyway}; {found.late_silently:,} late without warning"
    )
