"""SenseTime's Helios `cluster_log.csv` (SC'21): one row per Slurm job of a cluster.

`duration` is the run time in seconds, `vc` becomes the queue, time 0 is midnight before the first
submission. CPU-only jobs are left out. Not kept: `cpu_num` and `node_num` (CPUs follow the GPUs),
`start_time`, `end_time` and `queue`, which are the old scheduler's doing.
"""

from __future__ import annotations

from pathlib import Path
from sys import intern

from trainmaster.model.job import Job
from trainmaster.model.trace import Outcome, Trace, TracedJob
from trainmaster.traces.csv_reader import TraceBuilder, TraceRow, demand_for, open_table

REQUIRED = ("job_id", "user", "vc", "gpu_num", "state", "submit_time", "duration")

_STATES = {
    "COMPLETED": Outcome.SUCCEEDED,
    "CANCELLED": Outcome.CANCELLED,
    "FAILED": Outcome.FAILED,
    "TIMEOUT": Outcome.FAILED,
    "NODE_FAIL": Outcome.FAILED,
}
_WITHOUT_END = ("SUSPENDED", "RUNNING", "PENDING")


def read(path: Path) -> Trace:
    """The trace in a Helios cluster log."""
    builder = TraceBuilder(path)
    with open_table(path) as table:
        table.read_header(REQUIRED)
        for row in table.rows():
            _add(builder, row)
    return builder.trace(is_dated=True)


def _add(builder: TraceBuilder, row: TraceRow) -> None:
    job_id, gpus = builder.claim(row), row.gpus("gpu_num", least=0)
    if gpus == 0:
        builder.leave_out("CPUs only")
        return
    if row["state"] in _WITHOUT_END:
        builder.leave_out("not ended")
        return
    outcome = row.choice("state", _STATES)
    job = Job(
        id=job_id,
        submit_ms=row.moment("submit_time"),
        demand=demand_for(gpus),
        queue=intern(row["vc"] or "default"),
        user=intern(row["user"]),
    )
    builder.jobs.append(TracedJob(job, row.milliseconds("duration"), outcome))
