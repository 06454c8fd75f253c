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
        job_id, gpus, submit, iterations, model, duration = map(table.position, REQUIRED)
        for row in table.rows():
            name = row[job_id].strip()
            if not name:
                raise table.problem("job_id", "the id is missing")
            builder.claim(name, table.line)
            job = Job(
                id=name,
                submit_ms=table.milliseconds(row[submit], "submit_time"),
                demand=demand_for(table.gpus(row[gpus], "num_gpu")),
                model=intern(row[model].strip()),
                iterations=table.whole(row[iterations], "iterations", least=0),
            )
            service = table.milliseconds(row[duration], "duration")
            builder.jobs.append(TracedJob(job, service))
    return builder.trace()
