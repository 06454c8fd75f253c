"""Makes the engine of this machine from what the command line says."""

from __future__ import annotations

from trainmaster.engines.engine_settings import EngineSettings
from trainmaster.engines.local.engine import LocalEngine


async def make(settings: EngineSettings) -> LocalEngine:
    machine, limits = settings.machine, settings.limits
    assert machine is not None
    return LocalEngine(
        settings.folder,
        machine.topology,
        machine.devices,
        machine.numbers,
        supervisor_silence_s=limits.supervisor_silence_s,
        fork_server_silence_s=limits.fork_server_silence_s,
        hang_limits=limits.hang,
        serves_users=settings.serves_users,
        most_pids=limits.most_pids,
        minors=machine.minors,
    )
