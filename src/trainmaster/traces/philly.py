"""Microsoft's Philly trace (ATC'19): `cluster_job_log` JSON and the `cluster_machine_list` CSV.

The last attempt's run time is the service, the attempts before it are failed attempts, the first one's
GPUs are the size, and the virtual cluster is the queue. Time 0 is midnight before the first submission.
Left out: jobs that never ran, and jobs whose last attempt has no start or no end. Not kept: the
machines of each attempt and the delays between attempts, which are the old scheduler's doing. Times are
Pacific wall-clock times: an attempt across the change of clocks is an hour off.
"""

from __future__ import annotations

from pathlib import Path
from sys import intern
from typing import NamedTuple

from trainmaster.model.job import Job
from trainmaster.model.topology import GpuType, NodeSpec, Topology
from trainmaster.model.trace import Outcome, Trace, TracedJob, TraceError
from trainmaster.model.units import GIB
from trainmaster.traces.csv_reader import (
    RETRIES,
    TraceBuilder,
    TraceRow,
    demand_for,
    one_rack,
    open_table,
    read_json,
    wall_clock_ms,
)

JOB_LOG = "cluster_job_log"
MACHINE_COLUMNS = ("machineId", "number of GPUs", "single GPU mem")

_STATUS = {"Pass": Outcome.SUCCEEDED, "Killed": Outcome.CANCELLED, "Failed": Outcome.FAILED}


class _Attempt(NamedTuple):
    gpus: int
    run_ms: int | None
    """None where the log lacks a start or an end, or the end comes first."""


def read(path: Path) -> Trace:
    """The trace in a cluster job log, or in the folder that holds one."""
    path = path / JOB_LOG if path.is_dir() else path
    builder, untimed = TraceBuilder(path, "job"), 0
    log = read_json(path)
    if not isinstance(log, list):
        raise TraceError(f"{path} is not a JSON list of jobs.")
    for number, record in enumerate(log, start=1):
        if not isinstance(record, dict):
            raise TraceError(f"{path} job {number}: it is not a JSON object.")
        untimed += _add(builder, _Entry(path, number, record))
    if untimed:
        builder.note(f"{path.name}: dropped {untimed} earlier attempts without times.")
    return builder.trace(is_dated=True)


def _add(builder: TraceBuilder, entry: _Entry) -> int:
    """Add a job of the log, or leave it out; returns how many earlier attempts have no times."""
    job_id = entry.text("jobid")
    if not job_id:
        raise entry.problem("jobid", "the id is missing")
    builder.claim_at(job_id, entry.number, "jobid")
    status, submit = entry.text("status"), entry.moment(entry.record, "submitted_time")
    if status not in _STATUS:
        raise entry.problem("status", f"{status!r} is none of {', '.join(_STATUS)}")
    if submit is None:
        raise entry.problem("submitted_time", "the time is missing")
    attempts = entry.attempts()
    if not attempts:
        builder.leave_out("never ran")
        return 0
    gpus, service = attempts[0].gpus, attempts[-1].run_ms
    if service is None:
        builder.leave_out("the last attempt has no start or no end")
        return 0
    if gpus == 0:
        builder.leave_out("the first attempt names no GPUs")
        return 0
    failed = tuple(each.run_ms for each in attempts[:-1] if each.run_ms is not None)
    job = Job(
        id=job_id,
        submit_ms=submit,
        demand=demand_for(gpus),
        queue=intern(entry.text("vc") or "default"),
        user=intern(entry.text("user")),
        retries=max(RETRIES, len(failed)),
    )
    builder.jobs.append(TracedJob(job, service, _STATUS[status], failed))
    return len(attempts) - 1 - len(failed)


class _Entry(NamedTuple):
    """One job object of the log; errors name its fields."""

    path: Path
    number: int
    record: dict[str, object]

    def problem(self, field: str, complaint: str) -> TraceError:
        return TraceError(f"{self.path} job {self.number}, field {field}: {complaint}.")

    def text(self, field: str) -> str:
        value = self.record.get(field)
        return value.strip() if isinstance(value, str) else ""

    def moment(self, record: dict[str, object], field: str) -> int | None:
        """A time of the log; null, "None" and the empty string all mean that it has none."""
        value = record.get(field)
        if value is None or value in ("", "None"):
            return None
        try:
            return wall_clock_ms(str(value))
        except ValueError:
            wanted = "a date and time such as 2017-10-07 01:12:09"
            raise self.problem(field, f"{value!r} is not {wanted}") from None

    def attempts(self) -> list[_Attempt]:
        found = self.record.get("attempts") or []
        if not isinstance(found, list):
            raise self.problem("attempts", "it is not a list")
        return [self._attempt(each) for each in found]

    def _attempt(self, attempt: object) -> _Attempt:
        if not isinstance(attempt, dict):
            raise self.problem("attempts", "an attempt is not a JSON object")
        start, end = self.moment(attempt, "start_time"), self.moment(attempt, "end_time")
        gpus = 0
        for machine in attempt.get("detail") or ():
            used = machine.get("gpus") if isinstance(machine, dict) else None
            if not isinstance(used, list):
                raise self.problem("detail", "a machine has no list of GPUs")
            gpus += len(used)
        has_times = start is not None and end is not None and start <= end
        return _Attempt(gpus, end - start if has_times else None)  # type: ignore[operator]


def read_machines(path: Path) -> Topology:
    """The cluster in a machine list: one rack, because the list has no racks."""
    with open_table(path) as table:
        table.read_header(MACHINE_COLUMNS)
        return one_rack(path, [_node(row) for row in table.rows()])


def _node(row: TraceRow) -> NodeSpec:
    size = row["single GPU mem"]
    gib = row.number("single GPU mem", size.upper().removesuffix("GB"))
    return NodeSpec(
        name=row["machineId"],
        gpus=row.gpus("number of GPUs"),
        path=(0, 0),
        type=GpuType(name=f"gpu-{size.lower()}", memory=round(gib * GIB)),
    )
