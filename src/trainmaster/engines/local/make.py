"""Makes the engine of this machine from what the command line says."""

from __future__ import annotations

from trainmaster.engines.engine_settings import EngineSettings
from trainmaster.engines.local.engine import LocalEngine


async def make(settings: EngineSettings) -> LocalEngine:
    machine = settings.machine
    assert machine is not None
    return LocalEngine(
        settings.folder,
        machine.topology,
        machine.devices,
        machine.numbers,
        supervisor_silence_s=settings.supervisor_silence_s,
        fork_server_silence_s=settings.fork_server_silence_s,
        hang_limits=settings.hang_limits,
        serves_users=settings.serves_users,
        most_pids=settings.most_pids,
        minors=machine.minors,
    )
