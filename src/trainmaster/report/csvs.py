"""The numbers behind the plots as CSV: times in seconds, three decimals, absent = empty."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import fields

from trainmaster.model.result import JobResult, Result, Stint, Summary
from trainmaster.model.units import SECOND, WHOLE
from trainmaster.report.figures import CAUSES, PolicyLine, Quantity
from trainmaster.report.policy_run import PolicyRun
from trainmaster.report.step_function import TimeWindow
from trainmaster.sim.result_json import DEADLINE_FIELDS, deadline_fields

Cell = str | int | float | None

JOB_COLUMNS = (
    *("job_id", "submit_s", "start_s", "finish_s", "jct_s", "queue_s", "suspended_s", "gpu_s"),
    *("preemptions", "migrations", "status", "cost", "cost_wasted"),
)
QUEUE_COLUMNS = ("queue", "jobs", "gpu_s", "cost", "cost_wasted")
BIN_COLUMNS = ("label", "jobs", "avg_jct_s", "p50_jct_s", "p95_jct_s", "avg_queue_s")


def summary_csv(runs: Sequence[PolicyRun]) -> str:
    names = [field.name for field in fields(Summary)]
    rows = ([run.label, run.result.cluster, *_fields(run.result.summary, names)] for run in runs)
    return _table(["policy", "cluster", *names], rows)


def jobs_csv(result: Result) -> str:
    """The `jobs` of the JSON contract; with what came of deadlines where there were any."""
    if all(job.deadline is None for job in result.jobs):
        return _table(JOB_COLUMNS, map(_job, result.jobs))
    rows = ([*_job(job), *_deadline(job)] for job in result.jobs)
    return _table((*JOB_COLUMNS, *DEADLINE_FIELDS), rows)


def _deadline(job: JobResult) -> list[str]:
    return ["" if value is None else str(value).lower() for value in deadline_fields(job).values()]


def _job(job: JobResult) -> list[Cell]:
    times = (job.submit_ms, job.start_ms, job.finish_ms, job.jct_ms, job.queue_ms, job.suspended_ms)
    return [
        job.job_id,
        *(None if ms is None else ms / SECOND for ms in times),
        job.held / (SECOND * WHOLE),
        *(job.preemptions, job.migrations, job.status.value, job.cost, job.cost_wasted),
    ]


def queues_csv(runs: Sequence[PolicyRun]) -> str:
    rows = ([run.label, *_fields(q, QUEUE_COLUMNS)] for run in runs for q in run.result.queues)
    return _table(("policy", *QUEUE_COLUMNS), rows)


def distribution_csv(lines: Sequence[PolicyLine], value: str) -> str:
    """Every step of a distribution, not only the drawn ones."""
    rows = (
        (each.run.label, f"{x:.3f}", f"{part:.6f}")
        for each in lines
        for x, part in zip(each.steps.xs.tolist(), each.steps.ys.tolist(), strict=True)
    )
    return _text(("policy", value, "part"), rows)


def curve_csv(quantity: Quantity, runs: Sequence[PolicyRun]) -> str:
    """A whole step function per policy, in the trace's own time."""
    rows = (
        (run.label, f"{time_s:.3f}", f"{level:.6f}")
        for run in runs
        for curve in [quantity.curve(run.result)]
        for time_s, level in zip(curve.times_s, curve.values, strict=True)
    )
    return _text(("policy", "time_s", quantity.slug), rows)


def sizes_csv(runs: Sequence[PolicyRun]) -> str:
    rows = ([run.label, *_fields(b, BIN_COLUMNS)] for run in runs for b in run.result.bins)
    return _table(("policy", "size", *BIN_COLUMNS[1:]), rows)


def delays_csv(runs: Sequence[PolicyRun]) -> str:
    columns = ["policy", *(f"{cause.replace(' ', '_')}_s" for cause in CAUSES)]
    rows: list[list[Cell]] = [
        [run.label, *(cause(run.result.delays) for cause in CAUSES.values())]
        for run in runs
        if run.result.delays is not None
    ]
    return _table(columns, rows)


def stints_csv(stints: Iterable[Stint], window: TimeWindow) -> str:
    """Every stay that touches the busiest hour, with its full times."""
    rows = (
        (s.job_id, s.start_ms / SECOND, s.end_ms / SECOND, " ".join(map(str, s.gpus)))
        for s in stints
        if s.start_ms < window.end_ms and s.end_ms > window.start_ms
    )
    return _table(("job_id", "start_s", "end_s", "gpus"), rows)


def _fields(value: object, names: Iterable[str]) -> list[Cell]:
    return [getattr(value, name) for name in names]


def _table(columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    return _text(columns, ([_cell(value) for value in row] for row in rows))


def _cell(value: Cell) -> Cell:
    return f"{value:.3f}" if isinstance(value, float) else value


def _text(columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue()
