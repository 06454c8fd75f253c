"""Alibaba's 2023 GPU-sharing trace (ATC'23): `openb_pod_list_*.csv` and `openb_node_list_*.csv`.

A pod is a job; it runs from `scheduled_time` to `deletion_time`. One that was deleted while it ran
counts as cancelled, best-effort pods (`qos` BE) are opportunistic, and `gpu_milli` is the share. Left
out: pods without GPUs and pods that never ran. Not kept: `cpu_milli` and `memory_mib` (CPUs and host
memory follow the GPUs), and a `gpu_spec` that names several types, which a demand cannot say.
"""

from __future__ import annotations

from pathlib import Path
from sys import intern

from trainmaster.model.job import Job
from trainmaster.model.placement import Role
from trainmaster.model.topology import GpuType, NodeSpec, Topology, TopologyError, build
from trainmaster.model.trace import Outcome, Trace, TracedJob, TraceError
from trainmaster.model.units import GIB, MIB, WHOLE
from trainmaster.traces.csv_reader import Table, TraceBuilder, demand_for, open_table

REQUIRED = (
    *("name", "num_gpu", "gpu_milli", "gpu_spec", "qos", "pod_phase"),
    *("creation_time", "deletion_time", "scheduled_time"),
)
NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")

_PHASES = {
    "Succeeded": Outcome.SUCCEEDED,
    "Failed": Outcome.FAILED,
    "Running": Outcome.CANCELLED,
}
_MEMORY_GIB = {"P100": 16, "T4": 16, "V100M16": 16, "V100M32": 32, "A10": 24}
"""Memory of the types that are named; G1, G2 and G3 are undisclosed and get the default."""


def read(path: Path) -> Trace:
    """The trace in a pod list."""
    builder = TraceBuilder(path)
    several = 0
    with open_table(path) as table:
        table.read_header(REQUIRED)
        places = tuple(map(table.position, REQUIRED))
        for row in table.rows():
            cells = [row[place].strip() for place in places]
            traced = _pod(table, cells, builder)
            if traced is not None:
                builder.jobs.append(traced)
                several += "|" in cells[3]
    if several:
        builder.note(f"{path.name}: {several} jobs accept several GPU types; they may use any.")
    return builder.trace()


def _pod(table: Table, cells: list[str], builder: TraceBuilder) -> TracedJob | None:
    name, num_gpu, gpu_milli, gpu_spec, qos, phase, created, deleted, scheduled = cells
    if not name:
        raise table.problem("name", "the name is missing")
    builder.claim(name, table.line, "name")
    gpus = table.gpus(num_gpu, "num_gpu", least=0)
    if gpus == 0:
        builder.leave_out("CPUs only")
        return None
    if phase == "Pending" or not scheduled:
        builder.leave_out("never ran")
        return None
    outcome = _PHASES.get(phase)
    if outcome is None:
        raise table.problem("pod_phase", f"{phase!r} is none of {', '.join(_PHASES)}, Pending")
    milli = table.whole(gpu_milli, "gpu_milli", least=1)
    if milli > WHOLE:
        raise table.problem("gpu_milli", f"{milli} is more than one GPU, {WHOLE}")
    start = table.milliseconds(scheduled, "scheduled_time")
    end = table.milliseconds(deleted, "deletion_time")
    if end < start:
        raise table.problem("deletion_time", f"{deleted} is before scheduled_time, {scheduled}")
    gpu_type = intern(gpu_spec) if gpu_spec not in ("", "nan") and "|" not in gpu_spec else None
    job = Job(
        id=name,
        submit_ms=table.milliseconds(created, "creation_time"),
        demand=demand_for(gpus, milli, 0, None, None, gpu_type),
        role=Role.OPPORTUNISTIC if qos == "BE" else Role.GUARANTEED,
    )
    return TracedJob(job, end - start, outcome)


def read_nodes(path: Path) -> Topology:
    """The cluster in a node list: one rack, because the list knows none; CPU-only nodes left out."""
    specs: list[NodeSpec] = []
    with open_table(path) as table:
        table.read_header(NODE_COLUMNS)
        name, cpus, memory, gpus, model = map(table.position, NODE_COLUMNS)
        for row in table.rows():
            count = table.gpus(row[gpus], "gpu", least=0)
            if count == 0:
                continue
            kind = row[model].strip()
            gib = _MEMORY_GIB.get(kind)
            specs.append(
                NodeSpec(
                    name=row[name].strip(),
                    gpus=count,
                    path=(0, 0),
                    type=GpuType(kind) if gib is None else GpuType(kind, gib * GIB),
                    cpus=table.whole(row[cpus], "cpu_milli", least=0),
                    memory=table.whole(row[memory], "memory_mib", least=0) * MIB,
                )
            )
    try:
        return build(("cluster", "rack", "node", "gpu"), specs)
    except TopologyError as error:
        raise TraceError(f"{path}: {error}.") from None
