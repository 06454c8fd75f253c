"""Gavel's traces (OSDI'20): tab separated, no header, three widths from three of its ages.

    10 fields  job_type command working_directory num_steps_arg needs_data_dir total_steps
               scale_factor priority_weight SLO arrival_time
     9 fields  the same without working_directory
     7 fields  job_type command num_steps_arg needs_data_dir total_steps arrival_time scale_factor

A trace counts steps, not seconds. The wide ones were made from seconds x the throughput of
(job_type, scale_factor) on a V100, so that division by Gavel's `simulation_throughputs.json` gives the
seconds back. The narrow ones (`traces/msr`, Philly's jobs with models drawn for them) were made from
seconds x the throughput on *one* V100 whatever the scale factor, by an older table that was never
released. `MSR_STEPS_PER_S` is that table, recovered by dividing the steps by the run times of the same
jobs in philly-82k.csv: of 5,432 jobs that can be matched 5,353 agree to within a step.

Not kept: the command line and its arguments, and the priority weight, which is not an order.
"""

from __future__ import annotations

import json
from pathlib import Path
from sys import intern
from typing import NamedTuple

from trainmaster.model.job import Job
from trainmaster.model.trace import Trace, TracedJob, TraceError
from trainmaster.model.units import SECOND
from trainmaster.traces.csv_reader import (
    LONGEST_S,
    Table,
    TraceBuilder,
    demand_for,
    open_table,
    open_text,
)

THROUGHPUTS = "simulation_throughputs.json"
GPU_TYPE = "v100"

MSR_STEPS_PER_S = {
    "A3C": 8.233033,
    "CycleGAN": 4.918495,
    "LM (batch size 5)": 167.122858,
    "LM (batch size 10)": 143.360513,
    "LM (batch size 20)": 107.950872,
    "LM (batch size 40)": 71.723037,
    "LM (batch size 80)": 43.903611,
    "Recommendation (batch size 512)": 0.331482,
    "Recommendation (batch size 1024)": 0.479980,
    "Recommendation (batch size 2048)": 0.567532,
    "Recommendation (batch size 4096)": 0.624408,
    "Recommendation (batch size 8192)": 0.602355,
    "ResNet-18 (batch size 16)": 77.317374,
    "ResNet-18 (batch size 32)": 65.805407,
    "ResNet-18 (batch size 64)": 48.884180,
    "ResNet-18 (batch size 128)": 30.287505,
    "ResNet-18 (batch size 256)": 16.987371,
    "ResNet-50 (batch size 16)": 17.374389,
    "ResNet-50 (batch size 32)": 9.920583,
    "ResNet-50 (batch size 64)": 5.457600,
    "ResNet-50 (batch size 128)": 2.845981,
    "Transformer (batch size 16)": 12.845652,
    "Transformer (batch size 32)": 12.475278,
    "Transformer (batch size 64)": 9.568024,
    "Transformer (batch size 128)": 5.771211,
    "Transformer (batch size 256)": 1.707030,
}
"""Steps per second on one V100 of Gavel's older table, by job type."""

NARROW = (
    *("job_type", "command", "num_steps_arg", "needs_data_dir"),
    *("total_steps", "arrival_time", "scale_factor"),
)
WIDE = (
    *("job_type", "command", "working_directory", "num_steps_arg", "needs_data_dir"),
    *("total_steps", "scale_factor", "priority_weight", "SLO", "arrival_time"),
)
WITHOUT_DIRECTORY = tuple(name for name in WIDE if name != "working_directory")
WIDTHS = {len(names): names for names in (NARROW, WITHOUT_DIRECTORY, WIDE)}


class _Rate(NamedTuple):
    """A key of the throughput table: a job type on so many GPUs."""

    job_type: str
    scale_factor: int


class _Rates:
    """Steps per second of each job type; from Gavel's JSON, which is only opened when it is needed."""

    def __init__(self, trace: Path, throughputs: Path | None, gpu_type: str) -> None:
        self.trace = trace
        self.file = throughputs
        self.gpu_type = gpu_type
        self._table: dict[_Rate, float] | None = None

    def of(self, rate: _Rate) -> float | None:
        if self._table is None:
            self._table = _read_throughputs(self._find(), self.gpu_type)
        return self._table.get(rate)

    def _find(self) -> Path:
        if self.file is not None:
            return self.file
        for folder in (self.trace.parent, self.trace.parent.parent):
            if (folder / THROUGHPUTS).exists():
                return folder / THROUGHPUTS
        raise TraceError(
            f"{self.trace} counts steps, not seconds: put {THROUGHPUTS} from"
            " github.com/stanford-futuredata/gavel (folder scheduler) beside it."
        )


def read(path: Path, throughputs: Path | None = None, gpu_type: str = GPU_TYPE) -> Trace:
    """The trace in a Gavel file; run times are those on `gpu_type`, consolidated and alone.

    Without `throughputs` the table is looked for beside the trace and one folder up; the narrow
    variant then uses the rates it was made with.
    """
    builder = TraceBuilder(path)
    rates = _Rates(path, throughputs, gpu_type)
    with open_table(path, delimiter="\t") as table:
        table.accept_header(_columns(table))
        for index, row in enumerate(table.rows()):
            builder.jobs.append(_job(table, row, rates, f"j{index}"))
    return builder.trace()


def _columns(table: Table) -> tuple[str, ...]:
    width = table.width()
    names = WIDTHS.get(width)
    if names is None:
        raise TraceError(
            f"{table.path} line {table.line}: the row has {width} fields between tabs,"
            f" a Gavel trace has {', '.join(map(str, sorted(WIDTHS)))}."
        )
    return names


def _job(table: Table, row: list[str], rates: _Rates, job_id: str) -> TracedJob:
    def cell(column: str) -> str:
        return row[table.position(column)]

    job_type = intern(cell("job_type").strip())
    gpus = table.gpus(cell("scale_factor"), "scale_factor")
    steps = table.whole(cell("total_steps"), "total_steps", least=0)
    submit = table.milliseconds(cell("arrival_time"), "arrival_time")
    is_narrow = len(row) == len(NARROW)
    rate = _steps_per_second(table, rates, _Rate(job_type, 1 if is_narrow else gpus), is_narrow)
    seconds = steps / rate
    if seconds > LONGEST_S:
        raise table.problem("total_steps", f"{steps} steps take longer than {LONGEST_S} seconds")
    service = round(seconds * SECOND)
    slo = 0.0 if is_narrow else table.number(cell("SLO"), "SLO")
    job = Job(
        id=job_id,
        submit_ms=submit,
        demand=demand_for(gpus),
        model=job_type,
        iterations=steps,
        # Gavel's scheduler.py: the deadline is SLO x duration after the arrival; -1 is none.
        deadline_ms=submit + round(slo * service) if slo > 0 else None,
    )
    return TracedJob(job, service)


def _steps_per_second(table: Table, rates: _Rates, rate: _Rate, is_narrow: bool) -> float:
    if is_narrow and rates.file is None and rates.gpu_type == GPU_TYPE:
        recovered = MSR_STEPS_PER_S.get(rate.job_type)
        if recovered is not None:
            return recovered
    found = rates.of(rate)
    if not found:
        raise table.problem(
            "job_type",
            f"{rate.job_type!r} on {rate.scale_factor} GPUs has no throughput on"
            f" {rates.gpu_type} in {THROUGHPUTS}",
        )
    return found


def _read_throughputs(path: Path, gpu_type: str) -> dict[_Rate, float]:
    with open_text(path) as source:
        try:
            tables = json.load(source)
        except json.JSONDecodeError as error:
            raise TraceError(f"{path} line {error.lineno}: it is not JSON, {error.msg}.") from None
    if not isinstance(tables, dict) or not isinstance(tables.get(gpu_type), dict):
        raise TraceError(f"{path} has no throughputs for {gpu_type!r}.")
    found: dict[_Rate, float] = {}
    for key, rates in tables[gpu_type].items():
        alone = rates.get("null") if isinstance(rates, dict) else None
        job_type, _, scale = str(key).strip("()").rpartition(", ")
        if not isinstance(alone, int | float) or not scale.isdigit():
            raise TraceError(f"{path}: the entry {key!r} of {gpu_type} is not a throughput.")
        found[_Rate(_unquoted(job_type), int(scale))] = float(alone)
    return found


def _unquoted(text: str) -> str:
    return text.strip("'\"")
