"""What a program reads from its environment: its rank in the gang, and its restarts."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trainmaster_sdk import wire


@dataclass(frozen=True, slots=True)
class JobEnvironment:
    """One rank's environment. A program that runs by itself is a gang of one, started for the first time."""

    rank: int
    world_size: int
    local_rank: int
    job: str | None
    attempt: int
    restart_count: int
    array_index: int | None
    array_size: int | None
    end_time: float | None
    socket: str | None
    checkpoint_dir: Path | None
    generation: str
    """Equal for all ranks that were started together, and another one after a restart."""
    process: int = 0
    """By which the supervisor knows this process: its rank when it was started, or the next free number."""
    joins: int = 0
    """The number of the resize by which it joins others that train; 0: it starts with all others."""

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> JobEnvironment:
        """Read from the environment; a missing variable has the value for a program that runs by itself."""
        attempt = _whole(environ, wire.ATTEMPT) or 1
        restarts = _whole(environ, wire.RESTART_COUNT)
        if restarts is None:
            restarts = attempt - 1
        world = _whole(environ, "WORLD_SIZE") or 1
        local_rank = _whole(environ, "LOCAL_RANK") or 0
        # Lightning starts its own workers, and tells them LOCAL_RANK beside a RANK that they inherit.
        rank = _whole(environ, "RANK") or local_rank
        end = environ.get(wire.END_TIME)
        folder = environ.get(wire.CHECKPOINT_DIR)
        process = _whole(environ, wire.PROCESS)
        return cls(
            process=rank if process is None else process,
            joins=_whole(environ, wire.JOINS) or 0,
            rank=rank,
            world_size=world,
            local_rank=local_rank,
            job=environ.get(wire.JOB),
            attempt=attempt,
            restart_count=restarts,
            array_index=_whole(environ, wire.ARRAY_INDEX),
            array_size=_whole(environ, wire.ARRAY_SIZE),
            end_time=float(end) if end else None,
            socket=environ.get(wire.SOCKET) or None,
            checkpoint_dir=Path(folder) if folder else None,
            generation=f"{attempt}-{restarts}-{world}-{environ.get('MASTER_PORT', '0')}",
        )


def local_folder() -> Path:
    """Where a program keeps its checkpoints by default: a folder of its own name, here."""
    script = Path(sys.argv[0] if sys.argv else "").stem
    return Path("checkpoints", script or "program").absolute()


def _whole(environ: Mapping[str, str], name: str) -> int | None:
    said = environ.get(name)
    if not said:
        return None
    try:
        return int(said)
    except ValueError:
        raise ValueError(
            f"{name} is {said!r} in the environment; set it to a whole number."
        ) from None
