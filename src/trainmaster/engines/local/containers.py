"""Containers of engines that run them out of sight: what a run has left of them, and the programs inside.

Only the standard library and the model are imported: supervisors load this.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
from collections.abc import Iterable, Iterator, Sequence

from trainmaster.engines.local import privileges, processes
from trainmaster.engines.local.runfile import RunFile
from trainmaster.model.launch_spec import CONTAINER_LABEL, OUT_OF_SIGHT
from trainmaster_sdk import wire
from trainmaster_sdk.process_tree import all_pids

APPTAINER = "apptainer"
PATIENCE_S = 20.0
"""How long an engine may take to answer."""
NOW = {"podman": ("--force", "--time", "0")}
"""How a container is removed without waiting for its program; Docker never waits."""


def remove(run: RunFile) -> None:
    """Remove what is left of the run's containers, as its user; OSError while nobody knows what is left."""
    engine = run.container_engine
    if engine not in OUT_OF_SIGHT:
        return
    label = f"label={CONTAINER_LABEL}={run.socket}"
    found = _said(run, (engine, "ps", "--all", "--quiet", "--filter", label)).split()
    if found:
        _said(run, (engine, "rm", *NOW.get(engine, ("--force",)), *found))


def _said(run: RunFile, argv: Sequence[str]) -> str:
    """What the engine prints; nothing where it is not installed any more."""
    try:
        done = subprocess.run(
            argv,
            **privileges.identity(run.account),
            env=run.env | run.ranks[0].env,
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=True,
        )
    except FileNotFoundError:
        return ""
    except subprocess.CalledProcessError as failed:
        raise OSError(errno.EIO, f"{' '.join(argv[:2])}: {failed.stderr.strip()}") from None
    except subprocess.TimeoutExpired as late:
        raise OSError(errno.ETIMEDOUT, str(late)) from None
    return done.stdout


def programs_inside(leaders: Iterable[int]) -> Iterator[int]:
    """The processes in the containers of these ranks: with the rank's variables and numbers of their own."""
    names = ("TRAINMASTER_RUN", wire.SOCKET, "RANK")
    wanted = {processes.variables_of(pid, names) for pid in leaders} - {None}
    own = _numbers_of("self")
    for pid in all_pids() if wanted else ():
        numbers = _numbers_of(str(pid))
        if numbers and numbers != own and processes.variables_of(pid, names) in wanted:
            yield pid


def _numbers_of(process: str) -> str:
    """What its process number counts in; empty where it has ended or may not be looked at."""
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/{process}/ns/pid")
    return ""


def told_to_save(leaders: Sequence[int], engine: str) -> list[int]:
    """Of these ranks' processes those that have a handler for the signal to save: it would end others.

    An engine's own process has one for every signal, to pass it on to a program that may have none:
    Apptainer's is the rank itself, those of the others are not inside.
    """
    if engine in OUT_OF_SIGHT:
        asked = [*programs_inside(leaders)]
    else:
        own = {*leaders} if engine == APPTAINER else set()
        asked = [pid for pid in processes.in_groups(leaders) if pid not in own]
    return [pid for pid in asked if processes.catches(pid, signal.SIGUSR1)]
