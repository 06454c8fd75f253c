"""The fence of a node: a process that ends our runs there when nobody confirms that the node is alive.

    python -m trainmaster.engines.ray.fence FOLDER

A node that is cut off goes on training, and the manager starts its jobs elsewhere: so that no attempt runs
twice, what is here ends before that. It outlives the launcher and the raylet, and needs neither them nor Ray.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import structlog

from trainmaster.engines.local import cgroup_probe, ownership, processes, socket_paths
from trainmaster.engines.local.engine import LIVE
from trainmaster.engines.local.journal import steady_ms
from trainmaster.engines.local.orphan_cleanup import (
    RunRemains,
    close_lost_run,
    kill_supervisor,
)
from trainmaster.engines.ray import node_folder
from trainmaster.engines.ray.confirmation import confirmed, ending

log = structlog.get_logger(__name__)

LOCK = "fence.lock"
LOG = "fence.log"
LOOK_S = 0.5
WHY = (
    "Its node was not confirmed to be alive by Ray's control store in time, so it was ended there: the job"
    " may have been started elsewhere."
)


def main(folder: Path) -> None:
    lock = _own_lock(folder)
    if lock is None:  # another one is here
        return
    _leave(folder)
    processes.set_process_name("tm fence")
    while _has_more_to_watch(folder):
        time.sleep(LOOK_S)
    os.close(lock)


def _has_more_to_watch(folder: Path) -> bool:
    try:
        return keep_watch(folder)
    except Exception as error:  # without a fence its runs would go on
        _say("the fence could not look", why=str(error))
        return not _is_removed(folder)


def _is_removed(folder: Path) -> bool:
    try:
        folder.stat()
    except OSError as error:
        return isinstance(error, FileNotFoundError)
    return False


def keep_watch(folder: Path) -> bool:
    """One look; whether there is anything left to watch."""
    if not _is_over(folder):
        return True
    with ending(folder):
        is_over = _is_over(folder)
        if is_over:
            end_runs(folder)
    return not is_over or bool(live_runs(folder)) or node_folder.is_taken(folder)


def _is_over(folder: Path) -> bool:
    said = confirmed(folder)
    return said is None or said.is_over(steady_ms())


def end_runs(folder: Path, why: str = WHY) -> None:
    """All runs of this node: their processes, and a line in their journals that says why.

    What cannot be written now, as on a full disk, is at the next look: the run stays among the live ones.
    """
    for run in live_runs(folder):
        _say("a run is ended", folder=str(run), why=why)
        try:
            _end_run(folder, run, why)
        except Exception as error:  # the others end all the same
            _say("the end of a run could not be noted", folder=str(run), why=str(error))


def _end_run(folder: Path, run: Path, why: str) -> None:
    sockets = socket_paths.folder_for(folder, serves_users=os.geteuid() == 0)
    remains = RunRemains(
        run,
        socket_paths.path_in(sockets, run),
        cgroup_probe.probe().plan,
        ownership.uuid_of(str(run)) or "",
    )
    kill_supervisor(remains, why)  # the launcher may see its end first
    if close_lost_run(remains, 0, why):
        (folder / "runs" / LIVE / remains.name).unlink(missing_ok=True)


def _say(what: str, **more: str) -> None:
    with suppress(OSError):  # the log may be on the disk that is full
        log.error(what, **more)


def live_runs(folder: Path) -> list[Path]:
    """The folders of runs that were begun here and are not known to have ended."""
    live = folder / "runs" / LIVE
    if not live.is_dir():
        return []
    named = (marker.name.rpartition(".") for marker in live.iterdir())
    return [folder / "runs" / job / attempt for job, _, attempt in named if attempt.isdecimal()]


def start(folder: Path, environ: Mapping[str, str]) -> None:
    """Have a fence watch this folder; OSError or CalledProcessError where that cannot be."""
    if not is_watching(folder):
        words = [sys.executable, "-P", "-m", "trainmaster.engines.ray.fence", str(folder)]
        subprocess.run(words, check=True, env=environ, stdin=subprocess.DEVNULL)


def is_watching(folder: Path) -> bool:
    try:
        lock = os.open(folder / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    return processes.is_lock_held(lock, fcntl.LOCK_SH)


def _own_lock(folder: Path) -> int | None:
    lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    for _ in range(20):  # testing whether it is free takes it for a moment
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        except BlockingIOError:
            time.sleep(0.01)
    os.close(lock)
    return None


def _leave(folder: Path) -> None:
    """Have no parent, no terminal and no session with others: who started this waits until it is done."""
    if os.fork():
        os._exit(0)
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    errors = os.open(folder / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for number, file in enumerate((nothing, errors, errors)):
        os.dup2(file, number)
    os.chdir("/")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
