"""Microsoft's Philly trace (ATC'19): `cluster_job_log` JSON and the `cluster_machine_list` CSV.

The last attempt's run time is the service, the attempts before it are failed attempts, the first one's
GPUs are the size, and the virtual cluster is the queue. Time 0 is midnight before the first submission.
Left out: jobs that never ran, and jobs whose last attempt has no start or no end. Not kept: the
machines of each attempt and the delays between attempts, which are the old scheduler's doing. Times are
Pacific wall-clock times: an attempt across the change of clocks is an hour off.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from sys import intern
from typing import NamedTuple

from trainmaster.model.job import Job
from trainmaster.model.topology import GpuType, NodeSpec, Topology, TopologyError, build
from trainmaster.model.trace import Outcome, Trace, TracedJob, TraceError
from trainmaster.model.units import GIB
from trainmaster.traces.csv_reader import (
    TraceBuilder,
    demand_for,
    midnight_before,
    open_table,
    open_text,
    wall_clock_ms,
)

JOB_LOG = "cluster_job_log"
MACHINE_COLUMNS = ("machineId", "number of GPUs", "single GPU mem")
RETRIES = 2

_STATUS = {"Pass": Outcome.SUCCEEDED, "Killed": Outcome.CANCELLED, "Failed": Outcome.FAILED}


class _Attempt(NamedTuple):
    gpus: int
    run_ms: int | None
    """None where the log lacks a start or an end, or the end comes first."""


class _Entry(NamedTuple):
    """One job of the log whose fields have been checked."""

    id: str
    outcome: Outcome
    queue: str
    user: str
    submit_ms: int
    attempts: tuple[_Attempt, ...]


def read(path: Path) -> Trace:
    """The trace in a cluster job log, or in the folder that holds one."""
    log = path / JOB_LOG if path.is_dir() else path
    builder = TraceBuilder(log, "job")
    entries = list(_entries(log, builder))
    origin = midnight_before(min((entry.submit_ms for entry in entries), default=0))
    untimed = 0
    for entry in entries:
        failed = tuple(a.run_ms for a in entry.attempts[:-1] if a.run_ms is not None)
        untimed += len(entry.attempts) - 1 - len(failed)
        job = Job(
            id=entry.id,
            submit_ms=entry.submit_ms - origin,
            demand=demand_for(entry.attempts[0].gpus),
            queue=entry.queue,
            user=entry.user,
            retries=max(RETRIES, len(failed)),
        )
        service = entry.attempts[-1].run_ms or 0
        builder.jobs.append(TracedJob(job, service, entry.outcome, failed))
    if untimed:
        builder.note(f"{log.name}: dropped {untimed} earlier attempts without times.")
    return builder.trace()


def _entries(path: Path, builder: TraceBuilder) -> Iterator[_Entry]:
    with open_text(path) as source:
        try:
            log = json.load(source)
        except json.JSONDecodeError as error:
            raise TraceError(f"{path} line {error.lineno}: it is not JSON, {error.msg}.") from None
    if not isinstance(log, list):
        raise TraceError(f"{path} is not a JSON list of jobs.")
    for number, record in enumerate(log, start=1):
        reading = _Reading(path, number, record)
        job_id = reading.text("jobid")
        if not job_id:
            raise reading.problem("jobid", "the id is missing")
        builder.claim(job_id, number, "jobid")
        entry = reading.entry(job_id)
        if not entry.attempts:
            builder.leave_out("never ran")
        elif entry.attempts[-1].run_ms is None:
            builder.leave_out("the last attempt has no start or no end")
        elif entry.attempts[0].gpus == 0:
            builder.leave_out("the first attempt names no GPUs")
        else:
            yield entry


class _Reading:
    """One job object of the log, taken apart with complaints that name its fields."""

    def __init__(self, path: Path, number: int, record: object) -> None:
        self.path = path
        self.number = number
        if not isinstance(record, dict):
            raise TraceError(f"{path} job {number}: it is not a JSON object.")
        self.record: dict[str, object] = record

    def problem(self, field: str, complaint: str) -> TraceError:
        return TraceError(f"{self.path} job {self.number}, field {field}: {complaint}.")

    def text(self, field: str) -> str:
        value = self.record.get(field)
        return value.strip() if isinstance(value, str) else ""

    def entry(self, job_id: str) -> _Entry:
        status = self.text("status")
        outcome = _STATUS.get(status)
        if outcome is None:
            raise self.problem("status", f"{status!r} is none of {', '.join(_STATUS)}")
        submit = self._moment("submitted_time", self.record.get("submitted_time"))
        if submit is None:
            raise self.problem("submitted_time", "the time is missing")
        attempts = self.record.get("attempts") or []
        if not isinstance(attempts, list):
            raise self.problem("attempts", "it is not a list")
        return _Entry(
            id=job_id,
            outcome=outcome,
            queue=intern(self.text("vc") or "default"),
            user=intern(self.text("user")),
            submit_ms=submit,
            attempts=tuple(map(self._attempt, attempts)),
        )

    def _attempt(self, attempt: object) -> _Attempt:
        if not isinstance(attempt, dict):
            raise self.problem("attempts", "an attempt is not a JSON object")
        start = self._moment("start_time", attempt.get("start_time"))
        end = self._moment("end_time", attempt.get("end_time"))
        gpus = 0
        for machine in attempt.get("detail") or ():
            used = machine.get("gpus") if isinstance(machine, dict) else None
            if not isinstance(used, list):
                raise self.problem("detail", "a machine has no list of GPUs")
            gpus += len(used)
        if start is None or end is None or end < start:
            return _Attempt(gpus, None)
        return _Attempt(gpus, end - start)

    def _moment(self, field: str, value: object) -> int | None:
        """A time of the log; null, "None" and the empty string all mean that it has none."""
        if value is None or value in ("", "None"):
            return None
        try:
            return wall_clock_ms(str(value))
        except ValueError:
            raise self.problem(
                field, f"{value!r} is not a date and time such as 2017-10-07 01:12:09"
            ) from None


def read_machines(path: Path) -> Topology:
    """The cluster in a machine list: one rack, because the list knows none."""
    specs: list[NodeSpec] = []
    with open_table(path) as table:
        table.read_header(MACHINE_COLUMNS)
        name, gpus, memory = map(table.position, MACHINE_COLUMNS)
        for row in table.rows():
            size = row[memory].strip()
            gib = table.number(size.upper().removesuffix("GB"), "single GPU mem")
            specs.append(
                NodeSpec(
                    name=row[name].strip(),
                    gpus=table.gpus(row[gpus], "number of GPUs"),
                    path=(0, 0),
                    type=GpuType(name=f"gpu-{size.lower()}", memory=round(gib * GIB)),
                )
            )
    try:
        return build(("cluster", "rack", "node", "gpu"), specs)
    except TopologyError as error:
        raise TraceError(f"{path}: {error}.") from None
