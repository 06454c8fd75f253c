"""`philly-82k.csv`: 82,247 jobs of the Philly trace as `timestamp,duration,num_gpus,gpu_time,cluster`.

Jobs get the ids j0, j1, … in file order; time 0 is midnight before the first submission. Not in the
file: status, attempts, users. Not kept: `gpu_time`, which is duration x num_gpus.
"""

from __future__ import annotations

from pathlib import Path
from sys import intern

from trainmaster.model.job import Job
from trainmaster.model.trace import Trace, TracedJob
from trainmaster.traces.csv_reader import TraceBuilder, demand_for, open_table

REQUIRED = ("timestamp", "duration", "num_gpus", "cluster")


def read(path: Path) -> Trace:
    """The trace in a file of that kind."""
    builder = TraceBuilder(path)
    with open_table(path) as table:
        table.read_header(REQUIRED)
        for index, row in enumerate(table.rows()):
            submit, queue = row.moment("timestamp"), intern(row["cluster"] or "default")
            job = Job(f"j{index}", submit, demand_for(row.gpus("num_gpus")), queue)
            builder.jobs.append(TracedJob(job, row.milliseconds("duration")))
    return builder.trace(is_dated=True)
