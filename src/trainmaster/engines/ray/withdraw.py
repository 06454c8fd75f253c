"""Takes back from Ray what a manager has there: launchers and reservations, and a cluster that it started."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trainmaster.engines.engine_settings import EngineChoice
from trainmaster.engines.ray import local_cluster
from trainmaster.engines.ray.gateway_client import Gateway


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """What is not on Ray any more."""

    address: str | None
    """Of the cluster that was left; None: it was one of this machine, and has ended."""
    fence_s: float
    """After so long what still runs there ends."""
    processes: int = 0
    """Of a cluster of this machine."""

    @property
    def sentence(self) -> str:
        if self.address is not None:
            return f"Its launchers and reservations on Ray at {self.address} are gone."
        if not self.processes:
            return "It has no Ray cluster."
        return f"Its Ray cluster has ended ({self.processes} processes)."


async def withdraw(folder: Path, store: str, choice: EngineChoice) -> Withdrawn:
    """EngineError where the cluster does not answer."""
    ended = local_cluster.stop(folder)
    if choice.address is None:
        return Withdrawn(None, choice.fence_s, ended)
    link = Gateway(choice.address, store, choice.fence_s)
    await link.connect()
    try:
        await link.withdraw()
    finally:
        await link.close()
    return Withdrawn(choice.address, choice.fence_s, ended)
