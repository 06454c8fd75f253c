"""Trainmaster's own trace format: CSV with a header, `docs/traces.md` shows it by example."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from sys import intern
from typing import TextIO, TypeVar

from trainmaster.model.job import Demand, Job
from trainmaster.model.placement import Role
from trainmaster.model.trace import Outcome, Trace, TracedJob, TraceError
from trainmaster.model.units import GIB, SECOND, WHOLE
from trainmaster.traces.csv_reader import Table, TraceBuilder, demand_for, open_table

REQUIRED = ("job_id", "submit_s", "gpus", "duration_s")
OPTIONAL = (
    *("queue", "user", "app", "model", "class", "min_gpus", "max_gpus", "gpu_share"),
    *("gpu_memory_gib", "gpu_util", "iterations", "status", "failed_attempts_s"),
    *("deadline_s", "priority", "gpu_type", "stays_in_memory"),
)

_STATUS = {
    "": Outcome.SUCCEEDED,
    "passed": Outcome.SUCCEEDED,
    "killed": Outcome.CANCELLED,
    "failed": Outcome.FAILED,
}
_STATUS_WORD = {
    Outcome.SUCCEEDED: "passed",
    Outcome.CANCELLED: "killed",
    Outcome.FAILED: "failed",
}
_STAYS = {"": True, "yes": True, "no": False}
_CLASS = {"": Role.GUARANTEED} | {role.value: role for role in Role}

PERCENT = 100
PPM = 1_000_000
RETRIES = 2
"""A job's retries unless its failed attempts in the trace ask for more."""


def read(path: Path) -> Trace:
    """The trace in a native CSV file, or a TraceError that names the first bad cell."""
    builder = TraceBuilder(path)
    with open_table(path) as table:
        table.read_header(REQUIRED)
        cells = _Cells(table)
        for row in table.rows():
            traced = cells.job(row)
            builder.claim(traced.job.id, table.line)
            builder.jobs.append(traced)
    return builder.trace()


T = TypeVar("T")


class _Cells:
    """Where each column of one file stands, and how its cells become a job."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.id = table.position("job_id")
        self.submit = table.position("submit_s")
        self.gpus = table.position("gpus")
        self.duration = table.position("duration_s")
        # A column that the file lacks is found in the empty cell that `job` adds to each row.
        places = [table.find(name) for name in OPTIONAL]
        self.is_plain = all(place is None for place in places)
        self.optional = tuple(-1 if place is None else place for place in places)

    def job(self, row: list[str]) -> TracedJob:
        table = self.table
        job_id = row[self.id].strip()
        if not job_id:
            raise table.problem("job_id", "the id is missing")
        submit = table.milliseconds(row[self.submit], "submit_s")
        service = table.milliseconds(row[self.duration], "duration_s")
        count = table.gpus(row[self.gpus], "gpus")
        if self.is_plain:
            return TracedJob(Job(job_id, submit, demand_for(count)), service)
        row.append("")
        cells = [row[place].strip() for place in self.optional]
        queue, user, app, model, role, low, high, share = cells[:8]
        memory, util, iterations, status, attempts, deadline, priority, gpu_type = cells[8:16]
        failed = self._failed_attempts(attempts)
        job = Job(
            id=job_id,
            submit_ms=submit,
            demand=self._demand(count, low, high, share, memory, gpu_type),
            queue=intern(queue or "default"),
            user=intern(user),
            app=intern(app),
            model=intern(model),
            role=self._choice(_CLASS, role, "class"),
            priority=self._whole(priority, "priority") or 0,
            gpu_util_ppm=self._util(util),
            retries=max(RETRIES, len(failed)),
            deadline_ms=self._deadline(submit, deadline),
            iterations=self._whole(iterations, "iterations", least=0),
        )
        outcome = self._choice(_STATUS, status, "status")
        stays = self._choice(_STAYS, cells[16], "stays_in_memory")
        return TracedJob(job, service, outcome, failed, stays)

    def _demand(
        self, count: int, low: str, high: str, share: str, memory: str, gpu_type: str
    ) -> Demand:
        minimum = self.table.gpus(low, "min_gpus") if low else None
        maximum = self.table.gpus(high, "max_gpus") if high else None
        problem = self.table.problem
        if minimum is not None and maximum is not None and minimum > maximum:
            raise problem("min_gpus", f"{minimum} is more than max_gpus, {maximum}")
        if minimum is not None and minimum > count:
            raise problem("min_gpus", f"{minimum} is more than gpus, {count}")
        if maximum is not None and maximum < count:
            raise problem("max_gpus", f"{maximum} is less than gpus, {count}")
        thousandths, size = self._share(share), self._memory(memory)
        return demand_for(count, thousandths, size, minimum, maximum, gpu_type or None)

    def _whole(self, text: str, column: str, least: int | None = None) -> int | None:
        return self.table.whole(text, column, least) if text else None

    def _share(self, text: str) -> int:
        if not text:
            return WHOLE
        share = self.table.number(text, "gpu_share")
        if not 0 < share <= 1:
            raise self.table.problem(
                "gpu_share", f"{text} is not a fraction of one GPU, more than 0 and at most 1"
            )
        return max(1, round(share * WHOLE))

    def _memory(self, text: str) -> int:
        if not text:
            return 0
        gib = self.table.number(text, "gpu_memory_gib")
        if gib < 0:
            raise self.table.problem("gpu_memory_gib", f"{text} is negative")
        return round(gib * GIB)

    def _util(self, text: str) -> int | None:
        if not text:
            return None
        util = self.table.number(text, "gpu_util")
        if not 0 <= util <= PERCENT:
            raise self.table.problem(
                "gpu_util", f"{text} is neither a part from 0 to 1 nor a percentage up to 100"
            )
        return round(util * PPM) if util <= 1 else round(util * PPM / PERCENT)

    def _deadline(self, submit: int, text: str) -> int | None:
        return submit + self.table.milliseconds(text, "deadline_s") if text else None

    def _failed_attempts(self, text: str) -> tuple[int, ...]:
        if not text:
            return ()
        pieces = text.rstrip(";").split(";")
        return tuple(self.table.milliseconds(piece, "failed_attempts_s") for piece in pieces)

    def _choice(self, words: Mapping[str, T], text: str, column: str) -> T:
        choice = words.get(text.lower())
        if choice is None:
            known = ", ".join(word for word in words if word)
            raise self.table.problem(column, f"{text!r} is none of {known}")
        return choice


@dataclass(frozen=True, slots=True)
class ExtraColumns:
    """Columns of a native file that mean nothing to Trainmaster, kept so that they survive."""

    names: tuple[str, ...] = ()
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By job id, one value for each name."""


def extra_columns(path: Path) -> ExtraColumns:
    """The unknown columns of a native file, by job, for code that writes its jobs out again."""
    with open_table(path) as table:
        table.read_header(REQUIRED)
        known = {*REQUIRED, *OPTIONAL}
        names = tuple(name for name in table.columns if name not in known)
        if not names:
            return ExtraColumns()
        places = [table.position(name) for name in names]
        job_id = table.position("job_id")
        values = {row[job_id].strip(): tuple(row[at] for at in places) for row in table.rows()}
    return ExtraColumns(names, values)


def write(trace: Trace, out: TextIO, extra: ExtraColumns | None = None) -> None:
    """Write a trace as native CSV: the required columns, and those optional ones that say anything.

    Not in the format, so not written: splits, CPUs and host memory, sharing mode, grace period.
    """
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
    """Write a trace to a file, whole or not at all."""
    partial = path.with_name(f".{path.name}.partial")
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


def _deadline_after_submit(traced: TracedJob) -> str:
    deadline = traced.job.deadline_ms
    return "" if deadline is None else _seconds(max(0, deadline - traced.job.submit_ms))


def _bound(count: int, nominal: int) -> str:
    return "" if count == nominal else str(count)


def _optional_number(value: int | None) -> str:
    return "" if value is None else str(value)


_Cell = Callable[[TracedJob], str]

_WRITTEN: tuple[tuple[str, _Cell], ...] = (
    ("queue", lambda t: "" if t.job.queue == "default" else t.job.queue),
    ("user", lambda t: t.job.user),
    ("app", lambda t: t.job.app),
    ("model", lambda t: t.job.model),
    ("class", lambda t: "" if t.job.role is Role.GUARANTEED else t.job.role.value),
    ("min_gpus", lambda t: _bound(t.job.demand.min_count, t.job.demand.nominal.count)),
    ("max_gpus", lambda t: _bound(t.job.demand.max_count, t.job.demand.nominal.count)),
    ("gpu_share", lambda t: _share_text(t.job.demand.nominal.share)),
    ("gpu_memory_gib", lambda t: _gib(m) if (m := t.job.demand.nominal.memory) else ""),
    ("gpu_util", lambda t: "" if (u := t.job.gpu_util_ppm) is None else repr(u / PPM)),
    ("iterations", lambda t: _optional_number(t.job.iterations)),
    ("status", lambda t: "" if t.outcome is Outcome.SUCCEEDED else _STATUS_WORD[t.outcome]),
    ("failed_attempts_s", lambda t: ";".join(map(_seconds, t.failed_attempts_ms))),
    ("deadline_s", _deadline_after_submit),
    ("priority", lambda t: str(t.job.priority) if t.job.priority else ""),
    ("gpu_type", lambda t: t.job.demand.gpu_type or ""),
    ("stays_in_memory", lambda t: "" if t.stays_in_memory else "no"),
)


def _share_text(share: int) -> str:
    return "" if share == WHOLE else repr(share / WHOLE)
