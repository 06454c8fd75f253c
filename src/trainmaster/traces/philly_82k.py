"""`philly-82k.csv`: 82,247 jobs of the Philly trace as `timestamp,duration,num_gpus,gpu_time,cluster`.

Jobs get the ids j0, j1, … in file order; time 0 is midnight before the first submission. Not in the
file: status, attempts, users. Not kept: `gpu_time`, which is duration x num_gpus.
"""

from __future__ import annotations

from pathlib import Path
from sys import intern

from trainmaster.model.job import Job
from trainmaster.model.trace import Trace, TracedJob
from trainmaster.traces.csv_reader import TraceBuilder, demand_for, midnight_before, open_table

REQUIRED = ("timestamp", "duration", "num_gpus", "cluster")


def read(path: Path) -> Trace:
    """The trace in a file of that kind."""
    builder = TraceBuilder(path)
    rows: list[tuple[int, int, int, str]] = []
    with open_table(path) as table:
        table.read_header(REQUIRED)
        timestamp, duration, gpus, cluster = map(table.position, REQUIRED)
        for row in table.rows():
            submit = table.moment(row[timestamp], "timestamp")
            service = table.milliseconds(row[duration], "duration")
            count = table.gpus(row[gpus], "num_gpus")
            rows.append((submit, service, count, intern(row[cluster].strip())))
    origin = midnight_before(min((row[0] for row in rows), default=0))
    for index, (submit, service, count, queue) in enumerate(rows):
        job = Job(f"j{index}", submit - origin, demand_for(count), queue or "default")
        builder.jobs.append(TracedJob(job, service))
    return builder.trace()
