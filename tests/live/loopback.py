"""A node link without a cluster: a launcher for each node in the test's own process; real processes."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainmaster.engines.ray.engine import RayEngine
from trainmaster.engines.ray.launcher import Launcher
from trainmaster.engines.ray.node_files import Unseen
from trainmaster.engines.ray.node_link import (
    NodeFound,
    NodeGone,
    NodeNews,
    NodeSilent,
    NotReserved,
    Unreachable,
)
from trainmaster.engines.run_limits import DEFAULT_RUN_LIMITS, RunLimits
from trainmaster.gpu.devices import Machine
from trainmaster.model.engine_reports import ClusterNode
from trainmaster.model.job import Run
from trainmaster.model.topology import SLOT_TYPE, GpuType
from trainmaster.model.topology_growth import topology_of
from trainmaster.model.units import GIB, WHOLE

HOST = "127.0.0.1"


def node_of(name: str, slots: int = 4, host: str = HOST) -> ClusterNode:
    return ClusterNode(name, host, slots, GpuType(SLOT_TYPE, GIB), slots * 1000, 16 * GIB)


@dataclass
class LoopbackNode:
    """One node: it can be cut off, die, and come back."""

    node: ClusterNode
    folder: Path
    launcher: Launcher | None = None
    is_cut_off: bool = False
    incarnation: int = 0
    hidden: tuple[str, ...] = ()
    """Folders that are not on this node, though all nodes of the test have one disk."""
    bare: tuple[str, ...] = ()
    """Folders in which there is nothing on this node: nothing is mounted there."""

    def as_seen(self, word: object) -> object:
        """A path of a hidden folder is, as this node sees it, one that does not exist."""
        if isinstance(word, tuple):
            return tuple(map(self.as_seen, word)) if type(word) is tuple else word
        if not isinstance(word, str):
            return word
        if word in self.bare:
            (empty := Path(f"{self._empty}{word}")).mkdir(parents=True, exist_ok=True)
            return str(empty)
        return f"{self._nowhere}{word}" if any(map(word.startswith, self.hidden)) else word

    def as_told(self, answer: object) -> object:
        if isinstance(answer, Unseen):
            return Unseen(self._known(answer.gone), self._known(answer.bare))
        return answer

    def _known(self, paths: tuple[str, ...]) -> tuple[str, ...]:
        """As everybody else calls them."""
        return tuple(
            path.removeprefix(self._nowhere).removeprefix(str(self._empty)) for path in paths
        )

    @property
    def _nowhere(self) -> str:
        return f"/not-on-{self.node.name}"

    @property
    def _empty(self) -> Path:
        return self.folder / "empty"

    async def start(self) -> None:
        self.launcher = Launcher(self.folder, Machine(topology_of([self.node]), ()))
        self.incarnation += 1
        await self.launcher.open()

    async def stop(self) -> None:
        """Its launcher is gone; what runs there goes on."""
        launcher, self.launcher = self.launcher, None
        if launcher is not None:
            await launcher.close()


class LoopbackLink:
    """Keeps the promise of a node link, with nodes whose folders are below one folder."""

    def __init__(self, folder: Path, nodes: Sequence[ClusterNode]) -> None:
        self.nodes = {node.name: LoopbackNode(node, folder / node.name) for node in nodes}
        self.held: dict[Run, Mapping[str, int]] = {}
        self.taken: dict[str, int] = {}
        """Thousandths of GPUs that others hold."""
        self._tell: Callable[[NodeNews], None] = print

    async def open(self, tell: Callable[[NodeNews], None]) -> None:
        self._tell = tell
        for node in self.nodes.values():
            await node.start()
            self._found(node)

    async def call(self, node: str, method: str, *words: object) -> object:
        there = self._reached(node)
        assert there.launcher is not None
        said = pickle.loads(pickle.dumps(words))
        answer = await getattr(there.launcher, method)(*map(there.as_seen, said))
        self._reached(node)
        answer = there.as_told(answer)
        return pickle.loads(pickle.dumps(answer))

    async def reserve(
        self, run: Run, thousandths: Mapping[str, int], cpus: Mapping[str, int]
    ) -> None:
        for name, wanted in thousandths.items():
            self._reached(name)
            others = sum(
                held.get(name, 0) for other, held in self.held.items() if other != run
            ) + self.taken.get(name, 0)
            if others + wanted > WHOLE * self.nodes[name].node.gpus:
                raise NotReserved(f"Other users of the cluster hold GPUs of {name}.")
        self.held.pop(run, None)
        if thousandths:
            self.held[run] = dict(thousandths)

    async def reserved(self) -> Mapping[Run, Mapping[str, int]]:
        return dict(self.held)

    async def settled(self) -> None:
        return

    def alive(self) -> tuple[tuple[str, str], ...]:
        return tuple((name, "") for name, node in self.nodes.items() if node.launcher is not None)

    def troubles(self) -> tuple[str, ...]:
        return ()

    async def close(self) -> None:
        for node in self.nodes.values():
            await node.stop()

    # -- what becomes of nodes -----------------------------------------------------------------------------

    async def join(self, node: ClusterNode, folder: Path) -> None:
        self.nodes[node.name] = LoopbackNode(node, folder / node.name)
        await self.nodes[node.name].start()
        self._found(self.nodes[node.name])

    async def restart_launcher(self, name: str) -> None:
        """The raylet was killed and is back before its fence: runs went on."""
        node = self.nodes[name]
        await node.stop()
        self._tell(NodeSilent(name, str(node.incarnation), "its raylet was killed"))
        await asyncio.sleep(0.05)
        await node.start()
        self._found(node)

    async def die(self, name: str, kill: Callable[[Path], None]) -> None:
        """The machine is switched off: nothing of it is left, and that becomes known."""
        node = self.nodes[name]
        await node.stop()
        kill(node.folder)
        self._tell(NodeSilent(name, str(node.incarnation), "it does not answer"))
        self._tell(NodeGone(name, str(node.incarnation), f"The node {name} is dead."))

    async def come_back(self, name: str) -> None:
        await self.nodes[name].start()
        self._found(self.nodes[name])

    def _found(self, node: LoopbackNode) -> None:
        self._tell(NodeFound(node.node, str(node.incarnation)))

    def _reached(self, name: str) -> LoopbackNode:
        node = self.nodes.get(name)
        if node is None or node.launcher is None or node.is_cut_off:
            raise Unreachable(name)
        return node


def ray_engine(folder: Path, limits: RunLimits = DEFAULT_RUN_LIMITS) -> RayEngine:
    """Two nodes of four slots each, as the local engine of the stage has."""
    nodes = [node_of("n0"), node_of("n1")]
    return RayEngine(folder, LoopbackLink(folder / "nodes", nodes), nodes, limits)
