"""Alibaba's PAI trace of 2020 (NSDI'22): `pai_task_table.csv`, with `pai_job_table.csv` for users.

The released files have no header row; both kinds are read. All GPU tasks of a job form one gang that
runs from the first task's start to the last one's end. `plan_gpu` is percent of a GPU per instance:
50 is half a GPU, 200 is two whole ones, 150 is rounded up to two. Left out: jobs without GPU tasks and
jobs without an end. Not kept: `plan_cpu` and `plan_mem` (they follow the GPUs), `gpu_type` (what the
job got, not what it asked for), and the roles of tasks.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from sys import intern
from typing import NamedTuple

from trainmaster.model.job import Job
from trainmaster.model.trace import Outcome, Trace, TracedJob, TraceError
from trainmaster.model.units import WHOLE, ceil_div
from trainmaster.traces.csv_reader import Table, TraceBuilder, demand_for, open_table

TASK_COLUMNS = (
    *("job_name", "task_name", "inst_num", "status", "start_time", "end_time"),
    *("plan_cpu", "plan_mem", "plan_gpu", "gpu_type"),
)
JOB_COLUMNS = ("job_name", "inst_id", "user", "status", "start_time", "end_time")
TASK_TABLE = "pai_task_table.csv"
JOB_TABLE = "pai_job_table.csv"

STATUSES = ("Terminated", "Failed", "Running", "Waiting")
_PERCENT = 100


@dataclass(slots=True)
class _Gang:
    """What the GPU tasks of one job add up to."""

    start_ms: int | None = None
    end_ms: int = 0
    pieces: int = 0
    share: int = 0
    is_mixed: bool = False
    has_failed: bool = False
    has_end: bool = True

    def add(self, pieces: int, share: int) -> None:
        self.is_mixed = self.is_mixed or self.share not in (0, share)
        self.pieces += pieces
        self.share = max(self.share, share)


class _Submission(NamedTuple):
    user: str
    status: str
    submit_ms: int


def read(path: Path) -> Trace:
    """The trace in a folder of PAI tables, or in a task table with the job table beside it if any."""
    tasks = path / TASK_TABLE if path.is_dir() else path
    if path.is_dir() and not tasks.exists():
        raise TraceError(f"{path} holds no {TASK_TABLE}.")
    builder = TraceBuilder(tasks)
    gangs = _gangs(tasks, builder)
    job_table = tasks.with_name(JOB_TABLE)
    submissions = _submissions(job_table) if job_table.exists() else {}
    for name, gang in gangs.items():
        traced = _traced(name, gang, submissions.get(name), builder)
        if traced is not None:
            builder.jobs.append(traced)
    mixed = sum(gang.is_mixed for gang in gangs.values())
    if mixed:
        builder.note(
            f"{tasks.name}: {mixed} jobs have GPU tasks of different sizes;"
            " each of their pieces is given the largest share."
        )
    if not submissions:
        builder.note(
            f"{tasks.name}: without {JOB_TABLE} users are unknown and a job's submission"
            " is the start of its first task."
        )
    return builder.trace()


def _gangs(path: Path, builder: TraceBuilder) -> dict[str, _Gang]:
    gangs: dict[str, _Gang] = {}
    cpu_only: set[str] = set()
    with open_table(path) as table:
        table.accept_header(TASK_COLUMNS)
        for row in table.rows():
            name = row[0].strip()
            if not name:
                raise table.problem("job_name", "the name is missing")
            percent = table.number(row[8], "plan_gpu") if row[8].strip() else 0.0
            if percent < 0:
                raise table.problem("plan_gpu", f"{row[8]} is negative")
            if percent == 0:
                cpu_only.add(name)
                continue
            gang = gangs.get(name)
            if gang is None:
                gang = gangs[name] = _Gang()
            _add_task(table, row, percent, gang)
    builder.leave_out("CPUs only", len(cpu_only - gangs.keys()))
    return gangs


def _add_task(table: Table, row: list[str], percent: float, gang: _Gang) -> None:
    _, _, inst_num, status, start_time, end_time, *_ = (cell.strip() for cell in row)
    if status not in STATUSES:
        raise table.problem("status", f"{status!r} is none of {', '.join(STATUSES)}")
    instances = table.gpus(inst_num, "inst_num") if inst_num else 1
    if percent < _PERCENT:
        gang.add(instances, max(1, round(percent * WHOLE / _PERCENT)))
    else:
        gang.add(instances * ceil_div(round(percent), _PERCENT), WHOLE)
    gang.has_failed = gang.has_failed or status == "Failed"
    if status in ("Running", "Waiting") or not start_time or not end_time:
        gang.has_end = False
        return
    start = table.milliseconds(start_time, "start_time")
    end = table.milliseconds(end_time, "end_time")
    if end < start:
        gang.has_end = False
        return
    gang.start_ms = start if gang.start_ms is None else min(gang.start_ms, start)
    gang.end_ms = max(gang.end_ms, end)


def _submissions(path: Path) -> dict[str, _Submission]:
    found: dict[str, _Submission] = {}
    with open_table(path) as table:
        table.accept_header(JOB_COLUMNS)
        for row in table.rows():
            name, _, user, status, start_time, _ = (cell.strip() for cell in row)
            if start_time:
                submit = table.milliseconds(start_time, "start_time")
                found[name] = _Submission(intern(user), intern(status), submit)
    return found


def _traced(
    name: str, gang: _Gang, submission: _Submission | None, builder: TraceBuilder
) -> TracedJob | None:
    if not gang.has_end or gang.start_ms is None:
        builder.leave_out("no end")
        return None
    failed = gang.has_failed
    submit = gang.start_ms
    if submission is not None:
        failed = failed or submission.status == "Failed"
        submit = min(submit, submission.submit_ms)
    job = Job(
        id=name,
        submit_ms=submit,
        demand=demand_for(gang.pieces, gang.share),
        user=submission.user if submission else "",
    )
    outcome = Outcome.FAILED if failed else Outcome.SUCCEEDED
    return TracedJob(job, gang.end_ms - gang.start_ms, outcome)
