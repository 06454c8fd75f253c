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

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from sys import intern

from trainmaster.model.job import Job
from trainmaster.model.trace import Trace, TracedJob, TraceError
from trainmaster.model.units import SECOND
from trainmaster.traces.csv_reader import (
    LONGEST_S,
    TraceBuilder,
    TraceRow,
    TraceTable,
    demand_for,
    open_table,
    read_json,
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


Rates = Mapping[tuple[str, int], float]
"""Steps per second by job type and number of GPUs."""


def read(path: Path, throughputs: Path | None = None, gpu_type: str = GPU_TYPE) -> Trace:
    """The trace in a Gavel file; run times are those on `gpu_type`, consolidated and alone.

    Without `throughputs` the table is looked for beside the trace and one folder up; the narrow
    variant then uses the rates it was made with.
    """
    builder = TraceBuilder(path)
    recovered = MSR_STEPS_PER_S if throughputs is None and gpu_type == GPU_TYPE else {}
    # The file with throughputs is opened only where a rate is needed that was not recovered.
    rates_of = cache(lambda: _read_throughputs(throughputs or _find_throughputs(path), gpu_type))

    def steps_per_second(row: TraceRow, job_type: str, gpus: int, *, is_narrow: bool) -> float:
        if is_narrow and job_type in recovered:
            return recovered[job_type]
        rate = rates_of().get((job_type, 1 if is_narrow else gpus))
        if not rate:
            where = f"{job_type!r} on {1 if is_narrow else gpus} GPUs"
            missing = f"{where} has no throughput on {gpu_type} in {THROUGHPUTS}"
            raise row.problem("job_type", missing)
        return rate

    with open_table(path, delimiter="\t") as table:
        table.accept_header(_columns(table))
        is_narrow = len(table.columns) == len(NARROW)
        for index, row in enumerate(table.rows()):
            job_type, gpus = intern(row["job_type"]), row.gpus("scale_factor")
            steps, submit = row.whole("total_steps", least=0), row.milliseconds("arrival_time")
            seconds = steps / steps_per_second(row, job_type, gpus, is_narrow=is_narrow)
            if seconds > LONGEST_S:
                too_long = f"{steps} steps take longer than {LONGEST_S} seconds"
                raise row.problem("total_steps", too_long)
            service = round(seconds * SECOND)
            slo = 0.0 if is_narrow else row.number("SLO")
            job = Job(
                id=f"j{index}",
                submit_ms=submit,
                demand=demand_for(gpus),
                model=job_type,
                iterations=steps,
                # Gavel's scheduler.py: the deadline is SLO x duration after the arrival; -1 is none.
                deadline_ms=submit + round(slo * service) if slo > 0 else None,
            )
            builder.jobs.append(TracedJob(job, service))
    return builder.trace()


def _columns(table: TraceTable) -> tuple[str, ...]:
    width = len(table.first or ())
    if width not in WIDTHS:
        raise TraceError(
            f"{table.path} line {table.line}: the row has {width} fields between tabs,"
            f" a Gavel trace has {', '.join(map(str, sorted(WIDTHS)))}."
        )
    return WIDTHS[width]


def _find_throughputs(trace: Path) -> Path:
    for folder in (trace.parent, trace.parent.parent):
        if (folder / THROUGHPUTS).exists():
            return folder / THROUGHPUTS
    raise TraceError(
        f"{trace} counts steps, not seconds: put {THROUGHPUTS} from"
        " github.com/stanford-futuredata/gavel (folder scheduler) beside it."
    )


def _read_throughputs(path: Path, gpu_type: str) -> Rates:
    tables = read_json(path)
    if not isinstance(tables, dict) or not isinstance(tables.get(gpu_type), dict):
        raise TraceError(f"{path} has no throughputs for {gpu_type!r}.")
    found: dict[tuple[str, int], float] = {}
    for key, rates in tables[gpu_type].items():
        alone = rates.get("null") if isinstance(rates, dict) else None
        job_type, _, scale = str(key).strip("()").rpartition(", ")
        if not isinstance(alone, int | float) or not scale.isdigit():
            raise TraceError(f"{path}: the entry {key!r} of {gpu_type} is not a throughput.")
        found[job_type.strip("'\""), int(scale)] = float(alone)
    return found
