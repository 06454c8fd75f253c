"""The numbers behind the plots as CSV: times in seconds, three decimals, absent = empty."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields

from trainmaster.model.result import JobResult, Result, Stint, Summary
from trainmaster.model.units import SECOND, WHOLE
from trainmaster.report.figures import CAUSES, Drawn, Quantity
from trainmaster.report.policy_run import PolicyRun
from trainmaster.report.step_function import Window
from trainmaster.sim.result_json import DEADLINE_FIELDS, deadline_fields

Cell = str | int | float | None

JOB_COLUMNS = (
    *("job_id", "submit_s", "start_s", "finish_s", "jct_s", "queue_s", "suspended_s", "gpu_s"),
    *("preemptions", "migrations", "status", "cost", "cost_wasted"),
)
QUEUE_COLUMNS = ("policy", "queue", "jobs", "gpu_s", "cost", "cost_wasted")
BIN_COLUMNS = ("policy", "size", "jobs", "avg_jct_s", "p50_jct_s", "p95_jct_s", "avg_queue_s")


def summary_csv(runs: Sequence[PolicyRun]) -> str:
    names = [field.name for field in fields(Summary)]
    rows = [
        [each.label, each.result.cluster, *(getattr(each.result.summary, name) for name in names)]
        for each in runs
    ]
    return _table(["policy", "cluster", *names], rows)


def jobs_csv(result: Result) -> str:
    """The `jobs` of the JSON contract; with what came of deadlines where there were any."""
    if all(job.deadline is None for job in result.jobs):
        return _lines(JOB_COLUMNS, (_job(job) for job in result.jobs))
    rows = (f"{_job(job)},{_deadline(job)}" for job in result.jobs)
    return _lines((*JOB_COLUMNS, *DEADLINE_FIELDS), rows)


def _deadline(job: JobResult) -> str:
    values = deadline_fields(job).values()
    return ",".join(["" if value is None else str(value).lower() for value in values])


def _job(job: JobResult) -> str:
    times = (job.submit_ms, job.start_ms, job.finish_ms, job.jct_ms, job.queue_ms, job.suspended_ms)
    seconds = ",".join(["" if ms is None else f"{ms / SECOND:.3f}" for ms in times])
    held = f"{job.held / (SECOND * WHOLE):.3f}"
    counts = f"{job.preemptions},{job.migrations}"
    costs = f"{_cell(job.cost)},{_cell(job.cost_wasted)}"
    return f"{_quoted(job.job_id)},{seconds},{held},{counts},{job.status.value},{costs}"


def queues_csv(runs: Sequence[PolicyRun]) -> str:
    rows = (
        (each.label, q.queue, q.jobs, q.gpu_s, q.cost, q.cost_wasted)
        for each in runs
        for q in each.result.queues
    )
    return _table(QUEUE_COLUMNS, rows)


def distribution_csv(lines: Sequence[Drawn], value: str) -> str:
    """Every step of a distribution, not only the drawn ones."""
    rows = (
        f"{label},{x:.3f},{part:.6f}"
        for each in lines
        for label in [_quoted(each.run.label)]
        for x, part in zip(each.steps.xs.tolist(), each.steps.ys.tolist(), strict=True)
    )
    return _lines(("policy", value, "part"), rows)


def curve_csv(quantity: Quantity, runs: Sequence[PolicyRun]) -> str:
    """A whole step function per policy, in the trace's own time."""
    rows = (
        f"{label},{time_s:.3f},{level:.6f}"
        for each in runs
        for label, curve in [(_quoted(each.label), quantity.curve(each.result))]
        for time_s, level in zip(curve.times_s, curve.values, strict=True)
    )
    return _lines(("policy", "time_s", quantity.slug), rows)


def sizes_csv(runs: Sequence[PolicyRun]) -> str:
    rows = (
        (each.label, b.label, b.jobs, b.avg_jct_s, b.p50_jct_s, b.p95_jct_s, b.avg_queue_s)
        for each in runs
        for b in each.result.bins
    )
    return _table(BIN_COLUMNS, rows)


def delays_csv(runs: Sequence[PolicyRun]) -> str:
    columns = ["policy", *(f"{cause.replace(' ', '_')}_s" for cause in CAUSES)]
    rows: list[list[Cell]] = [
        [each.label, *(cause(each.result.delays) for cause in CAUSES.values())]
        for each in runs
        if each.result.delays is not None
    ]
    return _table(columns, rows)


def stints_csv(stints: Iterable[Stint], window: Window) -> str:
    """Every stay that touches the busiest hour, with its full times."""
    rows = (
        (s.job_id, _seconds(s.start_ms), _seconds(s.end_ms), " ".join(map(str, s.gpus)))
        for s in stints
        if s.start_ms < window.end_ms and s.end_ms > window.start_ms
    )
    return _table(("job_id", "start_s", "end_s", "gpus"), rows)


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / SECOND


def _table(columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    return _lines(columns, (",".join([_cell(cell) for cell in row]) for row in rows))


def _cell(value: Cell) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    return "" if value is None else _quoted(str(value))


def _lines(columns: Sequence[str], rows: Iterable[str]) -> str:
    """Plain joins instead of `csv.writer`: the curves of a long trace have millions of rows."""
    return "\n".join([",".join(columns), *rows, ""])


def _quoted(text: str) -> str:
    if any(special in text for special in ',"\r\n'):
        return '"' + text.replace('"', '""') + '"'
    return text
