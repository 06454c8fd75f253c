"""The report's part on deadlines: what each policy made of them, and what it had to take back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

from trainmaster.model.deadline_notices import DeadlineNotice, DeadlineOutcome, Decline
from trainmaster.model.result import JobResult
from trainmaster.model.units import to_seconds
from trainmaster.report.series import Contender
from trainmaster.sim.deadlines import Tally, tally
from trainmaster.text import formatting as wording

MOST_SLIPS = 20
"""Slips that are listed for one policy."""

COLUMNS: tuple[tuple[str, str, Callable[[Tally], int]], ...] = (
    ("asked", "Submitted jobs with a deadline, rejected ones left out", lambda t: t.asked),
    ("accepted", "Deadlines that were promised at submission", lambda t: t.accepted),
    ("of these met", "Promised, and kept", lambda t: t.accepted_met),
    ("late, warned", "Promised, missed, and told before", lambda t: t.late - t.late_silently),
    ("late, silent", "Promised, missed, and not told before", lambda t: t.late_silently),
    ("declined", "Not promised: a feasible deadline was named if known", lambda t: t.declined),
    ("of these met", "Not promised, and met all the same", lambda t: t.declined_met),
    ("met in all", "Deadlines that were met, promised or not", lambda t: t.met),
)


def has_deadlines(contenders: Sequence[Contender]) -> bool:
    return any(job.deadline is not None for each in contenders for job in each.result.jobs)


def deadline_table(contenders: Sequence[Contender]) -> str:
    """A row per policy, and what was told of promises that slipped."""
    heads = "".join(
        f'<th scope="col" title="{escape(explained)}">{escape(title)}</th>'
        for title, explained, _ in COLUMNS
    )
    rows = "".join(_row(each) for each in contenders)
    table = (
        f'<div class="scroll"><table class="summary"><thead><tr><th scope="col">policy</th>{heads}'
        f"</tr></thead><tbody>{rows}</tbody></table></div>"
    )
    return table + "".join(_slips(each) for each in contenders)


def _row(contender: Contender) -> str:
    found = tally(contender.result.jobs)
    chip = f'<span class="chip s{contender.slot}"></span>'
    cells = "".join(f"<td>{_cell(found, value)}</td>" for _, _, value in COLUMNS)
    label = escape(contender.label)
    return f'<tr class="series s{contender.slot}"><th scope="row">{chip}{label}</th>{cells}</tr>'


def _cell(found: Tally | None, value: Callable[[Tally], int]) -> str:
    return wording.ABSENT if found is None else wording.count(value(found))


def _slips(contender: Contender) -> str:
    """What was told of accepted deadlines after their acceptance."""
    said = [
        f"<li>{escape(f'{wording.clock(to_seconds(when))}: {worded(notice, job)}')}</li>"
        for job in contender.result.jobs
        if job.deadline is not None
        for when, notice in job.deadline.notices
        if notice.what in (DeadlineOutcome.SLIPPED, DeadlineOutcome.RECOVERED)
    ]
    if not said:
        return ""
    more = len(said) - MOST_SLIPS
    cut = f"<li>and {more:,} more</li>" if more > 0 else ""
    head = f"<h3>What {escape(contender.label)} had to take back</h3>"
    return f"{head}<ul>{''.join(said[:MOST_SLIPS])}{cut}</ul>"


# -- a notice in words -----------------------------------------------------------------------------


def worded(notice: DeadlineNotice, job: JobResult) -> str:
    """What its owner is told, in times after the submission."""
    return WORDINGS[notice.what](notice, job)


def _after(time_ms: int | None, job: JobResult) -> str:
    if time_ms is None:
        return "nobody knows when"
    return f"{wording.duration(to_seconds(time_ms - job.submit_ms))} after its submission"


def _accepted(notice: DeadlineNotice, job: JobResult) -> str:
    return f"{notice.job} is accepted: done {_after(notice.finish_ms, job)} at the latest"


def _declined(notice: DeadlineNotice, job: JobResult) -> str:
    return f"{notice.job} is declined: {DECLINES[notice.why](notice, job)}"


DECLINES: dict[Decline | None, Callable[[DeadlineNotice, JobResult], str]] = {
    Decline.TOO_SOON: lambda notice, job: (
        f"the earliest feasible deadline is {_after(notice.feasible_ms, job)}"
    ),
    Decline.TOO_LARGE: lambda notice, job: "it needs more GPUs than there are now",
    Decline.NO_ESTIMATE: lambda notice, job: "no estimate of how long it takes",
}


def _slipped(notice: DeadlineNotice, job: JobResult) -> str:
    deadline = _after(notice.deadline_ms, job)
    return (
        f"{notice.job} will miss its deadline ({deadline}): now predicted to be done"
        f" {_after(notice.finish_ms, job)} instead of {_after(notice.earlier_ms, job)}"
    )


def _recovered(notice: DeadlineNotice, job: JobResult) -> str:
    return f"{notice.job} will be in time again: done {_after(notice.finish_ms, job)} at the latest"


WORDINGS: dict[DeadlineOutcome, Callable[[DeadlineNotice, JobResult], str]] = {
    DeadlineOutcome.ACCEPTED: _accepted,
    DeadlineOutcome.DECLINED: _declined,
    DeadlineOutcome.SLIPPED: _slipped,
    DeadlineOutcome.RECOVERED: _recovered,
}
