"""Trainmaster's own trace format: CSV with a header, `docs/traces.md` shows it by example."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from sys import intern
from typing import TextIO

from trainmaster.model.job import Demand, Job
from trainmaster.model.placement import Role
from trainmaster.model.submission import Dependency, When
from trainmaster.model.trace import Outcome, Trace, TracedJob, TraceError
from trainmaster.model.units import GIB, SECOND, WHOLE
from trainmaster.traces.csv_reader import (
    RETRIES,
    TraceBuilder,
    TraceRow,
    demand_for,
    open_table,
    open_text,
)

REQUIRED = ("job_id", "submit_s", "gpus", "duration_s")
OPTIONAL = (
    *("queue", "user", "app", "model", "class", "min_gpus", "max_gpus", "gpu_share"),
    *("gpu_memory_gib", "gpu_util", "iterations", "status", "failed_attempts_s"),
    *("deadline_s", "priority", "gpu_type", "stays_in_memory", "failure_reasons", "bad_input"),
    *("preemptible", "depends_on", "array", "array_limit"),
)

_STATUS = {
    "": Outcome.SUCCEEDED,
    "passed": Outcome.SUCCEEDED,
    "killed": Outcome.CANCELLED,
    "failed": Outcome.FAILED,
}
_STATUS_WORD = {outcome: word if word != "passed" else "" for word, outcome in _STATUS.items()}
_YES = {"": True, "yes": True, "no": False}
_WHEN = {when.value: when for when in When}
_CLASS = {"": Role.GUARANTEED} | {role.value: role for role in Role}

PERCENT = 100
PPM = 1_000_000


def read(path: Path) -> Trace:
    """The trace in a native CSV file, or a TraceError that names the first bad cell."""
    builder = TraceBuilder(path)
    with open_table(path) as table:
        table.read_header(REQUIRED, OPTIONAL)
        read_row = _plain if len(table.absent) == len(OPTIONAL) else _traced
        for row in table.rows():
            builder.jobs.append(read_row(row, builder.claim(row)))
    trace = builder.trace()
    _check_dependencies(path, trace)
    return trace


def _check_dependencies(path: Path, trace: Trace) -> None:
    """A job may depend on those before it alone, so that no two wait for each other."""
    seen: set[str] = set()
    for traced in trace.jobs:
        for wanted in traced.depends_on:
            if wanted.job not in seen:
                raise TraceError(
                    f"{path}, column depends_on: {traced.job.id!r} depends on {wanted.job!r}, and no job"
                    " of that id is submitted before it."
                )
        seen.add(traced.job.id)


def _plain(row: TraceRow, job_id: str) -> TracedJob:
    """The job of a file that has the required columns alone."""
    submit, service = row.milliseconds("submit_s"), row.milliseconds("duration_s")
    return TracedJob(Job(job_id, submit, demand_for(row.gpus("gpus"))), service)


def _traced(row: TraceRow, job_id: str) -> TracedJob:
    submit, service = row.milliseconds("submit_s"), row.milliseconds("duration_s")
    count = row.gpus("gpus")
    attempts = row["failed_attempts_s"].rstrip(";")
    pieces = attempts.split(";") if attempts else ()
    failed = tuple([row.milliseconds("failed_attempts_s", piece) for piece in pieces])
    job = Job(
        id=job_id,
        submit_ms=submit,
        demand=_demand(row, count),
        queue=intern(row["queue"] or "default"),
        user=intern(row["user"]),
        app=intern(row["app"]),
        model=intern(row["model"]),
        role=row.choice("class", _CLASS),
        priority=row.whole("priority") if row["priority"] else 0,
        gpu_util_ppm=_util(row) if row["gpu_util"] else None,
        retries=max(RETRIES, len(failed)),
        deadline_ms=submit + row.milliseconds("deadline_s") if row["deadline_s"] else None,
        iterations=row.whole("iterations", least=0) if row["iterations"] else None,
        preemptible=row.choice("preemptible", _YES),
    )
    outcome, stays = row.choice("status", _STATUS), row.choice("stays_in_memory", _YES)
    reasons = _reasons(row, len(failed) + (outcome is Outcome.FAILED))
    return TracedJob(
        job,
        service,
        outcome,
        failed,
        stays,
        reasons,
        intern(row["bad_input"]),
        _dependencies(row["depends_on"]),
        intern(row["array"]),
        row.whole("array_limit", least=1) if row["array_limit"] else None,
    )


def _dependencies(text: str) -> tuple[Dependency, ...]:
    """`12;13:any`: jobs, each with the end that is waited for unless that is success."""
    found = []
    for piece in filter(None, map(str.strip, text.split(";"))):
        job, _, word = piece.rpartition(":")
        is_plain = not job or word not in _WHEN
        found.append(Dependency(piece) if is_plain else Dependency(job, _WHEN[word]))
    return tuple(found)


def _reasons(row: TraceRow, failures: int) -> tuple[str, ...]:
    """Why it failed, each time; empty where the cell is."""
    if not row["failure_reasons"]:
        return ()
    reasons = tuple([intern(each.strip()) for each in row["failure_reasons"].split(";")])
    if len(reasons) != failures:
        many = f"{len(reasons)} reason{'s' if len(reasons) > 1 else ''}"
        raise row.problem("failure_reasons", f"{many}, but it fails {failures} times")
    return reasons


def _demand(row: TraceRow, count: int) -> Demand:
    minimum = row.gpus("min_gpus") if row["min_gpus"] else count
    maximum = row.gpus("max_gpus") if row["max_gpus"] else count
    if minimum > maximum and row["min_gpus"] and row["max_gpus"]:
        raise row.problem("min_gpus", f"{minimum} is more than max_gpus, {maximum}")
    if minimum > count:
        raise row.problem("min_gpus", f"{minimum} is more than gpus, {count}")
    if maximum < count:
        raise row.problem("max_gpus", f"{maximum} is less than gpus, {count}")
    share = row.number("gpu_share") if row["gpu_share"] else 1.0
    if not 0 < share <= 1:
        wanted = "a fraction of one GPU, more than 0 and at most 1"
        raise row.problem("gpu_share", f"{row['gpu_share']} is not {wanted}")
    gib = row.number("gpu_memory_gib") if row["gpu_memory_gib"] else 0.0
    if gib < 0:
        raise row.problem("gpu_memory_gib", f"{row['gpu_memory_gib']} is negative")
    thousandths, memory = max(1, round(share * WHOLE)), round(gib * GIB)
    return demand_for(count, thousandths, memory, minimum, maximum, row["gpu_type"] or None)


def _util(row: TraceRow) -> int:
    util = row.number("gpu_util")
    if not 0 <= util <= PERCENT:
        wanted = "neither a part from 0 to 1 nor a percentage up to 100"
        raise row.problem("gpu_util", f"{row['gpu_util']} is {wanted}")
    return round(util * PPM) if util <= 1 else round(util * PPM / PERCENT)


@dataclass(frozen=True, slots=True)
class ExtraColumns:
    """Unknown columns of a native file, kept so that they are written out again."""

    names: tuple[str, ...] = ()
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By job id, one value for each name."""


def extra_columns(path: Path) -> ExtraColumns:
    """The unknown columns of a native file, by job, for code that writes its jobs out again."""
    with open_text(path) as source:
        rows = filter(None, csv.reader(source))
        columns = [name.strip() for name in next(rows)]
        names = {name: at for at, name in enumerate(columns) if name not in {*REQUIRED, *OPTIONAL}}
        if not names:
            return ExtraColumns()
        job_id = columns.index("job_id")
        values = {row[job_id].strip(): tuple(row[at] for at in names.values()) for row in rows}
        return ExtraColumns(tuple(names), values)


def write(trace: Trace, out: TextIO, extra: ExtraColumns | None = None) -> None:
    """Write a trace as native CSV: the required columns, and the optional ones in use.

    Not in the format, so not written: splits, CPUs and host memory, sharing mode, grace period.
    """
    _check_writable(trace)
    extra = extra or ExtraColumns()
    blank = ("",) * len(extra.names)
    optional = [(name, cell) for name, cell in _WRITTEN if any(map(cell, trace.jobs))]
    cells = [cell for _, cell in optional]
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*REQUIRED, *(name for name, _ in optional), *extra.names])
    for traced in trace.jobs:
        job = traced.job
        row = [job.id, _seconds(job.submit_ms), str(job.demand.nominal.count)]
        row.append(_seconds(traced.service_ms))
        row.extend(cell(traced) for cell in cells)
        row.extend(extra.values.get(job.id, blank))
        writer.writerow(row)


def save(trace: Trace, path: Path, extra: ExtraColumns | None = None) -> None:
    """Write a trace to a file, atomically."""
    partial = path.with_name(f".{path.name}.partial")
    _check_writable(trace)
    try:
        with partial.open("w", encoding="utf-8", newline="") as out:
            write(trace, out, extra)
        os.replace(partial, path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        reason = (error.strerror or str(error)).lower()
        raise TraceError(f"{path} cannot be written: {reason}.") from None


def _seconds(ms: int) -> str:
    whole, rest = divmod(ms, SECOND)
    return f"{whole}.{rest:03d}".rstrip("0") if rest else str(whole)


def _gib(memory: int) -> str:
    return repr(memory / GIB) if memory % GIB else str(memory // GIB)


def _dependency(wanted: Dependency) -> str:
    """With its end said where it is not success, or where an id's own colon could be taken for one."""
    is_plain = wanted.when is When.OK and ":" not in wanted.job
    return wanted.job if is_plain else f"{wanted.job}:{wanted.when.value}"


def _check_writable(trace: Trace) -> None:
    for traced in trace.jobs:
        for wanted in traced.depends_on:
            if ";" in wanted.job:
                raise TraceError(
                    f"{traced.job.id!r} depends on {wanted.job!r}, which the native format cannot say:"
                    " `;` stands between dependencies. Rename that job."
                )


def _deadline_after_submit(traced: TracedJob) -> str:
    deadline = traced.job.deadline_ms
    return "" if deadline is None else _seconds(max(0, deadline - traced.job.submit_ms))


def _bound(count: int, demand: Demand) -> str:
    return "" if count == demand.nominal.count else str(count)


_Cell = Callable[[TracedJob], str]

_WRITTEN: tuple[tuple[str, _Cell], ...] = (
    ("queue", lambda t: "" if t.job.queue == "default" else t.job.queue),
    ("user", lambda t: t.job.user),
    ("app", lambda t: t.job.app),
    ("model", lambda t: t.job.model),
    ("class", lambda t: "" if t.job.role is Role.GUARANTEED else t.job.role.value),
    ("min_gpus", lambda t: _bound(t.job.demand.min_count, t.job.demand)),
    ("max_gpus", lambda t: _bound(t.job.demand.max_count, t.job.demand)),
    ("gpu_share", lambda t: "" if (n := t.job.demand.nominal.share) == WHOLE else repr(n / WHOLE)),
    ("gpu_memory_gib", lambda t: _gib(m) if (m := t.job.demand.nominal.memory) else ""),
    ("gpu_util", lambda t: "" if (u := t.job.gpu_util_ppm) is None else repr(u / PPM)),
    ("iterations", lambda t: "" if t.job.iterations is None else str(t.job.iterations)),
    ("status", lambda t: _STATUS_WORD[t.outcome]),
    ("failed_attempts_s", lambda t: ";".join(map(_seconds, t.failed_attempts_ms))),
    ("deadline_s", _deadline_after_submit),
    ("priority", lambda t: str(t.job.priority) if t.job.priority else ""),
    ("gpu_type", lambda t: t.job.demand.gpu_type or ""),
    ("stays_in_memory", lambda t: "" if t.stays_in_memory else "no"),
    ("failure_reasons", lambda t: ";".join(t.failure_reasons)),
    ("bad_input", lambda t: t.bad_input),
    ("preemptible", lambda t: "" if t.job.preemptible else "no"),
    ("depends_on", lambda t: ";".join(map(_dependency, t.depends_on))),
    ("array", lambda t: t.array),
    ("array_limit", lambda t: "" if t.array_limit is None else str(t.array_limit)),
)
