"""Alibaba's PAI trace of 2020 (NSDI'22): `pai_task_table.csv`, with `pai_job_table.csv` for users.

The released files have no header row; both kinds are read. All GPU tasks of a job form one gang that
runs from the first task's start to the last one's end. `plan_gpu` is percent of a GPU per instance:
50 is half a GPU, 200 is two whole ones, 150 is rounded up to two. Left out: jobs without GPU tasks and
jobs without an end. Not kept: `plan_cpu` and `plan_mem` (they follow the GPUs), `gpu_type` (what the
job got, not what it asked for), and the roles of tasks.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from sys import intern
from typing import NamedTuple

from trainmaster.model.job import Job
from trainmaster.model.trace import Outcome, Trace, TracedJob, TraceError
from trainmaster.model.units import WHOLE, ceil_div
from trainmaster.traces.csv_reader import TraceBuilder, TraceRow, demand_for, open_table

TASK_COLUMNS = (
    *("job_name", "task_name", "inst_num", "status", "start_time", "end_time"),
    *("plan_cpu", "plan_mem", "plan_gpu", "gpu_type"),
)
JOB_COLUMNS = ("job_name", "inst_id", "user", "status", "start_time", "end_time")
TASK_TABLE = "pai_task_table.csv"
JOB_TABLE = "pai_job_table.csv"

STATUSES = {
    "Terminated": Outcome.SUCCEEDED,
    "Failed": Outcome.FAILED,
    "Running": None,
    "Waiting": None,
}
_PERCENT = 100


@dataclass(slots=True)
class _Gang:
    """The sum of a job's GPU tasks."""

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
    has_failed: bool
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
    gangs: defaultdict[str, _Gang] = defaultdict(_Gang)
    cpu_only: set[str] = set()
    with open_table(path) as table:
        table.accept_header(TASK_COLUMNS)
        for row in table.rows():
            name = row["job_name"]
            if not name:
                raise row.problem("job_name", "the name is missing")
            percent = row.number("plan_gpu") if row["plan_gpu"] else 0.0
            if percent < 0:
                raise row.problem("plan_gpu", f"{row['plan_gpu']} is negative")
            if percent:
                _add_task(row, percent, gangs[name])
            else:
                cpu_only.add(name)
    builder.leave_out("CPUs only", len(cpu_only - gangs.keys()))
    return gangs


def _add_task(row: TraceRow, percent: float, gang: _Gang) -> None:
    status = row.choice("status", STATUSES)
    instances = row.gpus("inst_num") if row["inst_num"] else 1
    if percent < _PERCENT:
        gang.add(instances, max(1, round(percent * WHOLE / _PERCENT)))
    else:
        gang.add(instances * ceil_div(round(percent), _PERCENT), WHOLE)
    gang.has_failed |= status is Outcome.FAILED
    if status is None or not row["start_time"] or not row["end_time"]:
        gang.has_end = False
        return
    start, end = row.milliseconds("start_time"), row.milliseconds("end_time")
    if end < start:
        gang.has_end = False
        return
    gang.start_ms = start if gang.start_ms is None else min(gang.start_ms, start)
    gang.end_ms = max(gang.end_ms, end)


def _submissions(path: Path) -> dict[str, _Submission]:
    with open_table(path) as table:
        table.accept_header(JOB_COLUMNS)
        return {
            row["job_name"]: _Submission(
                intern(row["user"]), row["status"] == "Failed", row.milliseconds("start_time")
            )
            for row in table.rows()
            if row["start_time"]
        }


def _traced(
    name: str, gang: _Gang, submission: _Submission | None, builder: TraceBuilder
) -> TracedJob | None:
    if not gang.has_end or gang.start_ms is None:
        builder.leave_out("no end")
        return None
    user, has_failed, submit = submission or _Submission("", False, gang.start_ms)
    demand = demand_for(gang.pieces, gang.share)
    job = Job(id=name, submit_ms=min(submit, gang.start_ms), demand=demand, user=user)
    outcome = Outcome.FAILED if has_failed or gang.has_failed else Outcome.SUCCEEDED
    return TracedJob(job, gang.end_ms - gang.start_ms, outcome)
