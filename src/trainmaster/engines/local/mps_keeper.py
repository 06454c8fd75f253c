"""`python -m trainmaster.engines.local.mps_keeper STATE SOCKETS`: ends MPS daemons when no manager does.

A manager that stops while jobs go on that share a GPU by MPS starts it. It ends with the last daemon, or when
there is a manager again.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from trainmaster.engines.local import journal, processes, runfile
from trainmaster.gpu.mps import CONTROL, LOGS, MpsDaemons, control_program
from trainmaster.model.placement import Sharing

LOOK_S = 2.0
LOCK = "lock"
"""In the folder of the daemons: held by the program that looks after them."""


def take_charge(folder: Path) -> int | None:
    """The lock, held until it is closed; None where another process looks after the daemons."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    opened = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(opened)
        return None
    return opened


def hand_over(state: Path, sockets: str) -> None:
    """Let a process of its own look after the daemons from now on."""
    subprocess.Popen(
        [sys.executable, "-P", "-m", __name__, str(state), sockets],
        env=os.environ | {"PYTHONPATH": processes.python_path()},
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def unwatched(runs: Path) -> list[str]:
    """The folders of runs that a supervisor holds; none where no run was ever begun, or all were removed."""
    live, found = runs / ".live", []
    for marker in live.iterdir() if live.is_dir() else ():
        job, _, attempt = marker.name.rpartition(".")
        if journal.is_locked(str(runs / job / attempt)):
            found.append(str(runs / job / attempt))
    return found


def gpus_in_use(folders: Iterable[str]) -> Sequence[str]:
    """The GPUs whose daemons these runs are clients of."""
    found = []
    for folder in folders:
        try:
            file = runfile.newest(folder)
        except (OSError, ValueError):
            continue
        if file is not None and file.sharing == Sharing.MPS.value:
            found.append(os.path.basename(file.ranks[0].env.get(LOGS, "")))
    return found


def keep(state: Path, sockets: Path) -> None:
    daemons = MpsDaemons(state / "mps", sockets, control_program() or CONTROL)
    while daemons.known():
        charge = take_charge(state / "mps")
        if charge is None:
            return
        try:
            daemons.tend(gpus_in_use(unwatched(state / "runs")))
        finally:
            os.close(charge)
        time.sleep(LOOK_S)


if __name__ == "__main__":
    keep(Path(sys.argv[1]), Path(sys.argv[2]))
