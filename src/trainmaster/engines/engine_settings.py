"""What an engine is made from: everything that the command line says of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from trainmaster.engines.protocol import Engine
from trainmaster.engines.run_limits import RunLimits
from trainmaster.gpu.devices import Machine

FENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """Which engine, and where its cluster is."""

    name: str = "local"
    address: str | None = None
    """Of a cluster that is there."""
    nodes: int | None = None
    """Of a cluster that is started on this machine."""
    slots: int | None = None
    """CPU slots of each such node; None: its part of the GPUs or cores."""
    fence_s: float = FENCE_S
    """After so long a node that the cluster does not know to be alive ends its runs."""


@dataclass(frozen=True, slots=True)
class EngineSettings:
    folder: Path
    """The manager's data folder."""
    store_name: Callable[[], str]
    """Of that folder, unlike all others: for what is to be found again on other machines.

    Asked for by engines that need it: a folder that has none is given one.
    """
    choice: EngineChoice
    machine: Machine | None
    """The devices of this machine; None: those of a cluster are looked for."""
    say: Callable[[str], None]
    """Tells the user what takes a while."""
    limits: RunLimits
    was_there: bool = False
    """Whether the manager of this folder was on that cluster before: then it may be away now."""
    serves_users: bool = False


MakeEngine = Callable[[EngineSettings], Awaitable[Engine]]
"""What the catalog has for each engine; EngineError where it cannot work, one sentence."""
