"""The report's part on deadlines: how each policy answered and met them, and which promises slipped."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from trainmaster.model.deadline_notices import DeadlineNotice, DeadlineOutcome
from trainmaster.model.result import JobResult
from trainmaster.model.units import to_seconds
from trainmaster.report.policy_run import PolicyRun
from trainmaster.report.rendering import Column, Row, Table
from trainmaster.sim.deadlines import DeadlineCounts, count_deadlines
from trainmaster.text import formatting as wording

MOST_SLIPS = 20
"""Slips that are listed for one policy."""

COLUMNS: tuple[tuple[str, str, Callable[[DeadlineCounts], int]], ...] = (
    ("asked", "Submitted jobs with a deadline, rejected ones left out", lambda t: t.asked),
    ("accepted", "Deadlines that were promised at submission", lambda t: t.accepted),
    ("of these met", "Promised, and kept", lambda t: t.accepted_met),
    ("late, warned", "Promised, missed, and told before", lambda t: t.late - t.late_silently),
    ("late, silent", "Promised, missed, and not told before", lambda t: t.late_silently),
    ("declined", "Not promised: a feasible deadline was named if known", lambda t: t.declined),
    ("of these met", "Declined, but met anyway", lambda t: t.declined_met),
    ("met in all", "Deadlines that were met, promised or not", lambda t: t.met),
)


def deadline_table(runs: Sequence[PolicyRun]) -> Table | None:
    """A row per policy; nothing without deadlines."""
    if all(job.deadline is None for run in runs for job in run.result.jobs):
        return None
    columns = [Column(title, hint=hint) for title, hint, _ in COLUMNS]
    return Table(["policy", *columns], [_row(run) for run in runs])


def _row(run: PolicyRun) -> Row:
    found = count_deadlines(run.result.jobs)
    counts = (wording.ABSENT if found is None else wording.count(of(found)) for _, _, of in COLUMNS)
    return Row((run.label, *counts), slot=run.slot)


def slips_by_policy(runs: Sequence[PolicyRun]) -> list[tuple[PolicyRun, list[str]]]:
    """Notices about slipped promises, for each policy that had any."""
    found = ((run, list(_slips(run))) for run in runs)
    return [(run, slips) for run, slips in found if slips]


def _slips(run: PolicyRun) -> Iterator[str]:
    """Notices about accepted deadlines after their acceptance; a long list is cut and says so."""
    said = [
        f"{wording.clock(to_seconds(when))}: {worded(notice, job)}"
        for job in run.result.jobs
        if job.deadline is not None
        for when, notice in job.deadline.notices
        if notice.what in WORDINGS
    ]
    yield from said[:MOST_SLIPS]
    if len(said) > MOST_SLIPS:
        yield f"and {len(said) - MOST_SLIPS:,} more"


# -- a notice in words -------------------------------------------------------------------------------


def _after(time_ms: int | None, job: JobResult) -> str:
    if time_ms is None:
        return "at an unknown time"
    return f"{wording.duration(to_seconds(time_ms - job.submit_ms))} after its submission"


WORDINGS: dict[DeadlineOutcome, Callable[[DeadlineNotice, JobResult], str]] = {
    DeadlineOutcome.SLIPPED: lambda notice, job: (
        f"will miss its deadline ({_after(notice.deadline_ms, job)}): now predicted to be done"
        f" {_after(notice.finish_ms, job)} instead of {_after(notice.earlier_ms, job)}"
    ),
    DeadlineOutcome.RECOVERED: lambda notice, job: (
        f"will be in time again: done {_after(notice.finish_ms, job)} at the latest"
    ),
}


def worded(notice: DeadlineNotice, job: JobResult) -> str:
    """The notice to the job's owner, with times since the submission."""
    return f"{notice.job} {WORDINGS[notice.what](notice, job)}"
