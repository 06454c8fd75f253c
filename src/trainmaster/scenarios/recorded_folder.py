"""The folder that `record` writes: a trace with its cluster, queues and switching costs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

TRACE, CLUSTER, QUEUES, PERF = "trace.csv", "cluster.yaml", "queues.yaml", "perf.yaml"


@dataclass(frozen=True, slots=True)
class Inputs:
    """The files of a simulation; what the command line says goes before what lies in the folder."""

    trace: Path
    cluster: str | None
    queues: Path | None
    perf: str


def inputs_of(trace: Path, cluster: str | None, queues: Path | None, perf: str | None) -> Inputs:
    """As they are stated, or as a recorded folder has them."""
    if not (trace / TRACE).is_file():
        return Inputs(trace, cluster, queues, perf or "default")
    own_queues, own_perf = trace / QUEUES, trace / PERF
    if cluster is None and (trace / CLUSTER).is_file():
        cluster = str(trace / CLUSTER)
    if queues is None and own_queues.is_file():
        queues = own_queues
    if perf is None and own_perf.is_file():
        perf = str(own_perf)
    return Inputs(trace / TRACE, cluster, queues, perf or "default")
