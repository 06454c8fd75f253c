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
from trainmaster.model.topology import GpuType, NodeSpec, Topology
from trainmaster.model.trace import Outcome, Trace, TracedJob
from trainmaster.model.units import GIB, MIB, WHOLE
from trainmaster.traces.csv_reader import TraceBuilder, TraceRow, demand_for, one_rack, open_table

REQUIRED = (
    *("name", "num_gpu", "gpu_milli", "gpu_spec", "qos", "pod_phase"),
    *("creation_time", "deletion_time", "scheduled_time"),
)
NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")

_PHASES = {
    "Succeeded": Outcome.SUCCEEDED,
    "Failed": Outcome.FAILED,
    "Running": Outcome.CANCELLED,
    "Pending": None,
}
_MEMORY_GIB = {"P100": 16, "T4": 16, "V100M16": 16, "V100M32": 32, "A10": 24}
"""Memory of the types that are named; G1, G2 and G3 are undisclosed and get the default."""


def read(path: Path) -> Trace:
    """The trace in a pod list."""
    builder = TraceBuilder(path)
    several = 0
    with open_table(path) as table:
        table.read_header(REQUIRED)
        for row in table.rows():
            traced = _pod(row, builder)
            if traced is not None:
                builder.jobs.append(traced)
                several += "|" in row["gpu_spec"]
    if several:
        builder.note(f"{path.name}: {several} jobs accept several GPU types; they may use any.")
    return builder.trace()


def _pod(row: TraceRow, builder: TraceBuilder) -> TracedJob | None:
    name, gpus = builder.claim(row, "name"), row.gpus("num_gpu", least=0)
    if gpus == 0:
        builder.leave_out("CPUs only")
        return None
    outcome = row.choice("pod_phase", _PHASES) if row["scheduled_time"] else None
    if outcome is None:
        builder.leave_out("never ran")
        return None
    milli = row.whole("gpu_milli", least=1)
    if milli > WHOLE:
        raise row.problem("gpu_milli", f"{milli} is more than one GPU, {WHOLE}")
    service = row.milliseconds("deletion_time") - row.milliseconds("scheduled_time")
    if service < 0:
        is_before = f"{row['deletion_time']} is before scheduled_time, {row['scheduled_time']}"
        raise row.problem("deletion_time", is_before)
    spec = row["gpu_spec"]
    gpu_type = None if spec in ("", "nan") or "|" in spec else intern(spec)
    job = Job(
        id=name,
        submit_ms=row.milliseconds("creation_time"),
        demand=demand_for(gpus, milli, gpu_type=gpu_type),
        role=Role.OPPORTUNISTIC if row["qos"] == "BE" else Role.GUARANTEED,
    )
    return TracedJob(job, service, outcome)


def read_nodes(path: Path) -> Topology:
    """The cluster in a node list: one rack, because the list has no racks; without CPU-only nodes."""
    with open_table(path) as table:
        table.read_header(NODE_COLUMNS)
        return one_rack(path, [_node(row) for row in table.rows() if row.gpus("gpu", least=0)])


def _node(row: TraceRow) -> NodeSpec:
    kind = row["model"]
    gib = _MEMORY_GIB.get(kind)
    return NodeSpec(
        name=row["sn"],
        gpus=row.gpus("gpu"),
        path=(0, 0),
        type=GpuType(kind) if gib is None else GpuType(kind, gib * GIB),
        cpus=row.whole("cpu_milli", least=0),
        memory=row.whole("memory_mib", least=0) * MIB,
    )
