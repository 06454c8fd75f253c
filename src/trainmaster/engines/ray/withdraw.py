"""Takes back from Ray what a manager has there: launchers and reservations, and a cluster that it started."""

from __future__ import annotations

from pathlib import Path

from trainmaster.engines.engine_settings import EngineChoice
from trainmaster.engines.ray import local_cluster
from trainmaster.engines.ray.gateway_client import Gateway


async def withdraw(folder: Path, store: str, choice: EngineChoice) -> str:
    """A sentence that says what was done; EngineError where the cluster does not answer."""
    if choice.nodes is not None:
        ended = local_cluster.stop(folder)
        return (
            f"Its Ray cluster has ended ({ended} processes)." if ended else "It has no Ray cluster."
        )
    assert choice.address is not None
    link = Gateway(choice.address, store, choice.fence_s)
    await link.connect()
    try:
        await link.withdraw()
    finally:
        await link.close()
    return f"Its launchers and reservations on Ray at {choice.address} are gone."
