"""The CSV of Tiresias' simulator (NSDI'19): `job_id,num_gpu,submit_time,iterations,model_name,…`.

`duration` is the run time in seconds on the GPUs asked for. Not kept: `interval`, the gap to the next
submission, which the submit times already say.
"""

from __future__ import annotations

from pathlib import Path
from sys import intern

from trainmaster.model.job import Job
from trainmaster.model.trace import Trace, TracedJob
from trainmaster.traces.csv_reader import TraceBuilder, demand_for, open_table

REQUIRED = ("job_id", "num_gpu", "submit_time", "iterations", "model_name", "duration")


def read(path: Path) -> Trace:
    """The trace in a Tiresias CSV file."""
    builder = TraceBuilder(path)
    with open_table(path) as table:
        table.read_header(REQUIRED)
        for row in table.rows():
            job = Job(
                id=builder.claim(row),
                submit_ms=row.milliseconds("submit_time"),
                demand=demand_for(row.gpus("num_gpu")),
                model=intern(row["model_name"]),
                iterations=row.whole("iterations", least=0),
            )
            builder.jobs.append(TracedJob(job, row.milliseconds("duration")))
    return builder.trace()
