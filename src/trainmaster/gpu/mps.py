"""MPS daemons: one for each GPU whose jobs share it by MPS. They are ours: started, watched, ended here.

A daemon outlives the manager, as runs do, and the next manager finds it again. NVIDIA's control program
serves one user at a time: programs of other users wait until the last client of the present one has left.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import structlog

log = structlog.get_logger(__name__)

CONTROL, SERVER = "nvidia-cuda-mps-control", "nvidia-cuda-mps-server"
PIPES, LOGS = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"
VISIBLE = "CUDA_VISIBLE_DEVICES"
THREADS, MEMORY = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
PID = "pid"
ANSWER_S, END_S, POLL_S = 10.0, 5.0, 0.05
MIB = 1 << 20


class MpsError(Exception):
    """A daemon that does not start: one sentence."""


def control_program() -> str | None:
    """NVIDIA's control program; None where it is not installed."""
    return shutil.which(CONTROL)


def thread_percentage(share: int) -> int:
    """Which part of the GPU's threads a client may use: twice its share (in thousandths).

    NVIDIA advises 100 % / (n / 2) for n clients: each then uses what others leave idle. So threads are
    promised twice; memory never is.
    """
    return max(1, min(100, -(-2 * share // 10)))


def limits(share: int, memory: int) -> dict[str, str]:
    """What a client's environment says of its share (thousandths) and of its booked memory (bytes)."""
    found = {THREADS: str(thread_percentage(share))}
    if memory > 0:
        found[MEMORY] = f"0={-(-memory // MIB)}M"
    return found


@dataclass(frozen=True, slots=True)
class MpsPlace:
    """Where the daemon of one GPU listens, and where it and its servers write their logs."""

    uuid: str
    pipes: Path
    logs: Path

    @property
    def env(self) -> dict[str, str]:
        """What names this daemon in the environment of a client."""
        return {PIPES: str(self.pipes), LOGS: str(self.logs)}


class MpsDaemons:
    """All daemons of a state folder: logs and pids in `folder`, pipes in `sockets`, where paths are short.

    Safe to call from several threads.
    """

    def __init__(self, folder: Path, sockets: Path, program: str) -> None:
        self._folder = folder
        self._sockets = sockets
        self._program = program
        self.lock = threading.RLock()
        """Held while daemons are started or ended."""
        self.troubles: dict[str, str] = {}
        """By GPU: why its daemon does not start."""

    def place(self, uuid: str) -> MpsPlace:
        logs = self._folder / uuid
        name = hashlib.sha256(os.fsencode(logs.resolve())).hexdigest()[:12]
        return MpsPlace(uuid, self._sockets / f"mps-{name}", logs)

    def known(self) -> list[str]:
        """GPUs that have a daemon of ours, or had one."""
        found = self._folder.iterdir() if self._folder.is_dir() else ()
        return sorted(each.name for each in found if (each / PID).exists())

    def pid(self, uuid: str) -> int | None:
        """The process of the GPU's daemon; None if it does not run."""
        place = self.place(uuid)
        said = _read(place.logs / PID)
        if said.isdecimal() and _is_of(int(said), CONTROL, place):
            return int(said)
        return next(_processes(CONTROL, place), None)

    def ensure(self, uuid: str) -> MpsPlace:
        """Have a daemon run for this GPU; MpsError where that cannot be."""
        with self.lock:
            place = self.place(uuid)
            if self.pid(uuid) is not None:
                return place
            try:
                self._start(place)
            except (OSError, subprocess.SubprocessError, MpsError) as problem:
                self.troubles[uuid] = str(problem)
                raise MpsError(str(problem)) from None
            self.troubles.pop(uuid, None)
            return place

    def _start(self, place: MpsPlace) -> None:
        for folder in (place.logs, place.pipes):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (place.logs / PID).write_text("")  # known from now on, whatever happens
        said = place.logs / "start.log"  # not a pipe: a daemon may keep it open
        with open(said, "wb") as file:
            code = subprocess.run(
                [self._program, "-d"],
                env=os.environ | place.env | {VISIBLE: place.uuid},
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                timeout=ANSWER_S,
                start_new_session=True,
                check=False,
            ).returncode
        if code == 0:
            _until(lambda: self.pid(place.uuid) is not None)
        found = self.pid(place.uuid)
        if found is None:
            why = said.read_text(errors="replace").strip() or f"exit code {code}"
            raise MpsError(f"{CONTROL} -d does not start for {place.uuid}: {why}")
        (place.logs / PID).write_text(str(found))
        log.info("an MPS daemon was started", gpu=place.uuid, pid=found)

    def tend(self, in_use: Collection[str]) -> None:
        """Start again the daemons that died under their clients, and end those without clients."""
        with self.lock:
            for uuid in self.known():
                if uuid not in in_use:
                    self._end(self.place(uuid))
                elif self.pid(uuid) is None:
                    log.warning("an MPS daemon has died and is started again", gpu=uuid)
                    try:
                        self.ensure(uuid)
                    except MpsError as problem:
                        log.error("an MPS daemon does not start", gpu=uuid, why=str(problem))

    def _end(self, place: MpsPlace) -> None:
        """Ask it to quit; end what is left of it and its servers by force."""
        if self.pid(place.uuid) is not None:
            try:
                self.ask(place.uuid, "quit")
                _until(lambda: self.pid(place.uuid) is None)
            except (OSError, subprocess.SubprocessError) as problem:
                log.warning("an MPS daemon does not answer", gpu=place.uuid, why=str(problem))
        for name in (CONTROL, SERVER):
            for pid in _processes(name, place):
                log.warning("an MPS process is ended by force", gpu=place.uuid, pid=pid)
                _kill(pid)
        shutil.rmtree(place.pipes, ignore_errors=True)
        (place.logs / PID).unlink(missing_ok=True)
        log.info("an MPS daemon was ended", gpu=place.uuid)

    def ask(self, uuid: str, command: str) -> str:
        """Give the daemon a command, such as `get_server_list`; its answer."""
        return subprocess.run(
            [self._program],
            env=os.environ | self.place(uuid).env,
            input=f"{command}\n",
            capture_output=True,
            text=True,
            timeout=ANSWER_S,
            check=False,
        ).stdout


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _until(is_so: Callable[[], bool]) -> None:
    """Wait until it is so, at most for a while."""
    end = time.monotonic() + END_S
    while not is_so() and time.monotonic() < end:
        time.sleep(POLL_S)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _processes(program: str, place: MpsPlace) -> Iterator[int]:
    """Processes of this program that serve these pipes."""
    for name in os.listdir("/proc"):
        if name.isdecimal() and _is_of(int(name), program, place):
            yield int(name)


def _is_of(pid: int, program: str, place: MpsPlace) -> bool:
    """Whether a process runs this program for these pipes, and has not ended."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if not any(os.path.basename(word) == program.encode() for word in words[:3]):
            return False
        named = f"{PIPES}={place.pipes}".encode()
        return named in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
