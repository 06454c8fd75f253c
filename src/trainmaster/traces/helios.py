"""SenseTime's Helios `cluster_log.csv` (SC'21): one row per Slurm job of a cluster.

`duration` is the run time in seconds, `vc` becomes the queue, time 0 is midnight before the first
submission. CPU-only jobs are left out. Not kept: `cpu_num` and `node_num` (CPUs follow the GPUs),
`start_time`, `end_time` and `queue`, which are the old scheduler's doing.
"""

from __future__ import annotations

from pathlib import Path
from sys import intern
from typing import NamedTuple

from trainmaster.model.job import Job
from trainmaster.model.trace import Outcome, Trace, TracedJob
from trainmaster.traces.csv_reader import (
    Table,
    TraceBuilder,
    demand_for,
    midnight_before,
    open_table,
)

REQUIRED = ("job_id", "user", "vc", "gpu_num", "state", "submit_time", "duration")

_STATES = {
    "COMPLETED": Outcome.SUCCEEDED,
    "CANCELLED": Outcome.CANCELLED,
    "FAILED": Outcome.FAILED,
    "TIMEOUT": Outcome.FAILED,
    "NODE_FAIL": Outcome.FAILED,
}
_WITHOUT_END = ("SUSPENDED", "RUNNING", "PENDING")


class _Row(NamedTuple):
    id: str
    submit_ms: int
    service_ms: int
    gpus: int
    queue: str
    user: str
    outcome: Outcome


def read(path: Path) -> Trace:
    """The trace in a Helios cluster log."""
    builder = TraceBuilder(path)
    rows: list[_Row] = []
    with open_table(path) as table:
        table.read_header(REQUIRED)
        places = tuple(map(table.position, REQUIRED))
        for row in table.rows():
            kept = _row(table, [row[place].strip() for place in places], builder)
            if kept is not None:
                rows.append(kept)
    origin = midnight_before(min((row.submit_ms for row in rows), default=0))
    for kept in rows:
        job = Job(
            id=kept.id,
            submit_ms=kept.submit_ms - origin,
            demand=demand_for(kept.gpus),
            queue=kept.queue,
            user=kept.user,
        )
        builder.jobs.append(TracedJob(job, kept.service_ms, kept.outcome))
    return builder.trace()


def _row(table: Table, cells: list[str], builder: TraceBuilder) -> _Row | None:
    job_id, user, vc, gpu_num, state, submit_time, duration = cells
    if not job_id:
        raise table.problem("job_id", "the id is missing")
    builder.claim(job_id, table.line)
    gpus = table.gpus(gpu_num, "gpu_num", least=0)
    if gpus == 0:
        builder.leave_out("CPUs only")
        return None
    if state in _WITHOUT_END:
        builder.leave_out("not ended")
        return None
    outcome = _STATES.get(state)
    if outcome is None:
        raise table.problem("state", f"{state!r} is none of {', '.join(_STATES)}")
    return _Row(
        id=job_id,
        submit_ms=table.moment(submit_time, "submit_time"),
        service_ms=table.milliseconds(duration, "duration"),
        gpus=gpus,
        queue=intern(vc or "default"),
        user=intern(user),
        outcome=outcome,
    )
