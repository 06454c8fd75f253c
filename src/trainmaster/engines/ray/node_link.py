"""How the engine reaches the launchers of a cluster's nodes: calls by name, and what is said of the nodes.

The engine knows nothing of Ray beyond this page. `gateway.py` keeps the promise by a process that has Ray
loaded; tests keep it by launchers in their own process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from trainmaster.model.engine_reports import ClusterNode
from trainmaster.model.job import Run


@dataclass(frozen=True, slots=True)
class NodeFound:
    """It is there, for the first time or again, and its launcher answers."""

    node: ClusterNode
    """Named as Ray names it; where nobody gave it a name, by its host name."""
    incarnation: str
    """Ray's id of the node: new each time that its raylet starts."""
    remarks: tuple[str, ...] = ()
    """What a user would expect of it and it cannot do, one sentence each."""


@dataclass(frozen=True, slots=True)
class NodeGone:
    """It is dead, and nothing of ours runs there any more: its fence has passed."""

    name: str
    incarnation: str
    why: str


@dataclass(frozen=True, slots=True)
class NodeSilent:
    """Ray counts it as dead, or it cannot be used (another version, a folder that it does not see).

    What runs there may go on until `NodeGone`.
    """

    name: str
    incarnation: str
    why: str
    gone_ms: int | None = field(default=None, compare=False)
    """When that is expected, as far as it is known now."""


@dataclass(frozen=True, slots=True)
class TakenByOthers:
    """So many of its devices are held by other users of the cluster."""

    name: str
    gpus: int


NodeNews = NodeFound | NodeSilent | NodeGone | TakenByOthers


class Unreachable(Exception):
    """The launcher of a node does not answer: the call may or may not have been carried out."""


class NotReserved(Exception):
    """The cluster does not have the resources, because other users of it hold them: one sentence."""


class NodeLink(Protocol):
    """Calls to launchers, and reservations. Everything is idempotent: what is not answered is sent again."""

    async def open(self, tell: Callable[[NodeNews], None]) -> None:
        """Connect, start a launcher on each node that has none, and tell of the nodes from now on.

        Returns as soon as the cluster answers; `EngineError` where it cannot be reached at all. Afterwards a
        cluster that is away for a while is waited for.
        """
        ...

    async def call(self, node: str, method: str, *words: object) -> object:
        """The answer of `Launcher.<method>` on this node; Unreachable where there is none.

        Words and answers are values that pickle can write. An exception of the method is raised here.
        """
        ...

    async def reserve(
        self, run: Run, thousandths: Mapping[str, int], cpus: Mapping[str, int]
    ) -> None:
        """Take so many thousandths of a device, and of a core, on these nodes, so that other users of the
        cluster see them taken: CPU slots as their part of the node's cores. What the run held before is
        replaced; nothing: it is given back.

        NotReserved: others hold them; what it held before is as it was.
        """
        ...

    async def reserved(self) -> Mapping[Run, Mapping[str, int]]:
        """Thousandths of GPUs by run and node, as the cluster has them reserved for us."""
        ...

    async def settled(self) -> None:
        """Until the cluster has answered once, and its launchers have started."""
        ...

    def alive(self) -> Sequence[tuple[str, str]]:
        """The nodes that are there by the last look, and why each is not used; empty where it is."""
        ...

    def troubles(self) -> tuple[str, ...]:
        """What does not work now, one sentence each."""
        ...

    async def close(self) -> None:
        """Disconnect. Launchers, runs and reservations stay."""
        ...
