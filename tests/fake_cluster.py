"""A cluster of several machines without any machine: nodes come, fall and return as the test says.

It outlives its managers, as a real cluster does: each manager has an engine of its own for it.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trainmaster.engines.protocol import (
    Abilities,
    EngineError,
    Known,
    Probed,
    RecordedRun,
    StrayRun,
    Tell,
    TellNode,
    any_job,
    ignore,
)
from trainmaster.model import actions as a
from trainmaster.model.engine_reports import (
    ClusterNode,
    DevicesTaken,
    Ended,
    Frozen,
    Lost,
    NodeCame,
    NodeFell,
    NodeReport,
    Report,
    Reshaped,
    Started,
    StopOrder,
    Thawed,
)
from trainmaster.model.job import Run
from trainmaster.model.launch_spec import LaunchSpec
from trainmaster.model.placement import Placement
from trainmaster.model.topology import GpuType, Topology
from trainmaster.model.topology_growth import topology_of
from trainmaster.model.units import GIB

H100 = GpuType("H100", 80 * GIB)


def a_node(name: str, gpus: int = 2, type_: GpuType = H100, host: str = "192.0.2.1") -> ClusterNode:
    return ClusterNode(name, host, gpus, type_, 8_000 * gpus, 64 * GIB * gpus)


@dataclass(slots=True)
class Process:
    """A run: by names of nodes, since numbers are the manager's."""

    devices: tuple[tuple[str, int], ...]
    reports: list[Report] = field(default_factory=list)
    is_over: bool = False
    is_frozen: bool = False
    """Its devices are free meanwhile."""
    spec: LaunchSpec | None = None
    """What it was launched with."""
    waiting: list[a.Order] = field(default_factory=list)
    """Orders that its nodes have not heard, since one is away."""


@dataclass
class FakeCluster:
    """What is really there."""

    nodes: dict[str, ClusterNode] = field(default_factory=dict)
    runs: dict[Run, Process] = field(default_factory=dict)
    engine: ClusterEngine | None = None
    """Of the manager that leads."""
    can_freeze: bool = False
    remarks: tuple[tuple[str, str], ...] = ()
    says: dict[str, bytes] = field(default_factory=dict)
    """By node: what a short program of ours says there."""
    probed: list[tuple[str, ...]] = field(default_factory=list)
    """Nodes, and the words of those that were asked for."""

    def came(self, *nodes: ClusterNode) -> None:
        self.nodes |= {node.name: node for node in nodes}
        for node in nodes:
            self._tell_node(NodeCame(node, 0))
        for process in self.runs.values():
            orders, process.waiting = process.waiting, []
            for order in orders:
                self.carry_out(order, process)

    def fell(self, name: str, why: str = "It does not answer.") -> None:
        """Its runs may go on until `buried`."""
        self.nodes.pop(name, None)
        self._tell_node(NodeFell(name, 0, why))

    def buried(self, name: str) -> None:
        """Nothing of ours runs on that node any more."""
        for run, process in self.runs.items():
            if not process.is_over and name in {node for node, _ in process.devices}:
                process.is_over = True
                self.report(run, Lost(run, 0, f"Node {name} is gone."))

    def taken(self, name: str, gpus: int) -> None:
        self._tell_node(DevicesTaken(name, 0, gpus))

    def ended(self, run: Run, code: int = 0) -> None:
        self.runs[run].is_over = True
        self.report(run, Ended(run, 0, code))

    def report(self, run: Run, report: Report) -> None:
        self.runs[run].reports.append(report)
        if self.engine is not None and self.engine.tell is not None:
            self.engine.tell(report, len(self.runs[run].reports))

    def on(self, name: str) -> list[Run]:
        """Runs that are on this node now."""
        there = (run for run, each in self.runs.items() if not each.is_over)
        return [run for run in there if name in {node for node, _ in self.runs[run].devices}]

    def used_twice(self) -> set[tuple[str, int]]:
        """Devices that two runs have at once."""
        on = [each for each in self.runs.values() if not (each.is_over or each.is_frozen)]
        held = [at for each in on for at in each.devices]
        return {each for each in held if held.count(each) > 1}

    def carry_out(self, order: a.Order, process: Process) -> None:
        """At once where all its nodes are there, else when they are."""
        run = order.run
        if not {node for node, _ in process.devices} <= self.nodes.keys():
            process.waiting.append(order)
        elif process.is_over:
            return
        elif isinstance(order, a.Halt | a.Kill):
            process.is_over = True
            asked = StopOrder.HALT if isinstance(order, a.Halt) else StopOrder.KILL
            self.report(run, Ended(run, 0, 143, asked, has_left=True))
        elif isinstance(order, a.Freeze):
            process.is_frozen = True
            self.report(run, Frozen(run, 0))
        elif isinstance(order, a.Thaw):
            process.is_frozen = False
            self.report(run, Thawed(run, 0))
        elif isinstance(order, a.Reshape) and self.engine is not None:
            process.devices = self.engine.devices(order.placement)
            self.report(run, Reshaped(run, 0, (1,)))

    def _tell_node(self, report: NodeReport) -> None:
        if self.engine is not None and self.engine.tell is not None:
            self.engine.tell_node(report)


class ClusterEngine:
    """Does what it is ordered at once."""

    name = "fake"

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.topology = topology_of(list(cluster.nodes.values()))
        self.numbering: Topology | None = None
        self.tell: Tell | None = None
        self.tell_node: TellNode = ignore
        cluster.engine = self

    @property
    def abilities(self) -> Abilities:
        return Abilities(
            *(self.cluster.can_freeze, False, False),
            spans_machines=True,
            node_remarks=self.cluster.remarks,
        )

    def troubles(self) -> Sequence[str]:
        return ()

    def number_nodes(self, topology: Topology) -> None:
        self.numbering = topology

    async def open(self, tell: Tell, tell_node: TellNode = ignore) -> None:
        assert self.numbering is not None, "it does not know what numbers mean"
        self.tell, self.tell_node = tell, tell_node
        for node in self.cluster.nodes.values():
            tell_node(NodeCame(node, 0))

    async def execute(self, order: a.Order, spec: LaunchSpec) -> None:
        cluster, run = self.cluster, order.run
        process = cluster.runs.get(run)
        if isinstance(order, a.Launch):
            if process is not None:
                return
            cluster.runs[run] = Process(self.devices(order.placement), spec=spec)
            absent = {node for node, _ in cluster.runs[run].devices} - cluster.nodes.keys()
            if absent:
                cluster.runs[run].is_over = True
                cluster.report(run, Lost(run, 0, f"There is no node {absent}."))
            else:
                cluster.report(run, Started(run, 0, (1,)))
        elif process is None or process.is_over:
            cluster.runs.setdefault(run, Process((), is_over=True))
            cluster.report(run, Lost(run, 0, "Nothing is left of it."))
        else:
            cluster.carry_out(order, process)

    def devices(self, placement: Placement) -> tuple[tuple[str, int], ...]:
        assert self.numbering is not None
        nodes = self.numbering.nodes
        return tuple(
            (nodes[piece.node].name, piece.gpu - nodes[piece.node].first_gpu)
            for piece in placement.slices
        )

    async def observe(self, runs: Mapping[Run, int], known: Known = any_job) -> Sequence[StrayRun]:
        for run, seen in runs.items():
            process = self.cluster.runs.get(run)
            for number, report in enumerate(process.reports if process else (), 1):
                if number > seen and self.tell is not None:
                    self.tell(report, number)
        return ()

    async def probe(self, node: str, words: Sequence[str], limit_s: float) -> Probed:
        self.cluster.probed.append((node, *words))
        if node not in self.cluster.says:
            raise EngineError(f"Node {node} is only told of, and runs nothing.")
        return Probed(0, self.cluster.says[node])

    async def save(self, run: Run) -> None: ...
    async def bring(self, run: Run) -> None: ...

    def tell_gpu_use(self, run: Run, util_ppm: int) -> None: ...

    def catches_save(self, run: Run, pids: Sequence[int]) -> bool:
        return False

    def environment(self, run: Run) -> tuple[Path, Mapping[str, str]]:
        raise FileNotFoundError(run)

    def run_of(self, pid: int) -> Run | None:
        return None

    def connect(self, job: str, port: int) -> socket.socket | None:
        return None

    def recorded(self, run: Run) -> RecordedRun | None:
        return None

    async def write_row(self, run: Run, spec: LaunchSpec) -> None: ...

    def unwatched(self) -> Sequence[Run]:
        return ()

    def cancel_unwatched(self, run: Run) -> bool:
        return False

    async def forget(self, run: Run) -> None: ...

    async def close(self) -> None:
        self.tell, self.tell_node = None, ignore
        if self.cluster.engine is self:
            self.cluster.engine = None
