"""A run under a real supervisor, with nobody else: orders go over its socket, its journal answers."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from tests.live.stage import state_of
from trainmaster.engines.local import journal, processes, runfile
from trainmaster.engines.local.journal import JournalEntry
from trainmaster.engines.local.runfile import CgroupPlan, RankSpec, RunFile
from trainmaster.engines.local.socket_paths import for_orders
from trainmaster.gpu import fake_driver
from trainmaster.gpu.driver import FAKE_GPUS
from trainmaster_sdk.wire import SOCKET, encode_message

R = TypeVar("R")
PATIENCE_S = 60.0
SIZE = 32 << 20
SUPERVISOR = """
import sys
from trainmaster.engines.local import cooperative_freezer, driver_freezer
from trainmaster.engines.local import pace_keeper, run_pacing, supervisor
driver_freezer.LEAST_S = cooperative_freezer.RELEASE_S = float(sys.argv[2])
run_pacing.SILENT_S = 0.0
pace_keeper.EVERY_S = pace_keeper.SETTLE_S = 0.2
supervisor.supervise(sys.argv[1], lambda: True, lambda: None)
"""
PROGRAM = """
import os, signal, sys, time
def step():
    time.sleep(0.01)
{prepare}
if {child}:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    if os.fork() == 0:
        while True: time.sleep(0.01)
rank, n = os.environ["RANK"], 0
def leave(*_):
    open("left-" + rank, "w").close()
    os._exit(0)
signal.signal(signal.SIGTERM, leave)
while True:
    step()
    n += 1
    with open("ticks-" + rank, "w") as file: file.write(str(n))
"""
ON_GPU = """
from trainmaster.gpu import fake_driver
fake_driver.allocate(%d)
def step():  # no handler runs while a program waits for the driver
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    fake_driver.step(0.01)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
"""
COOPERATES = """
import trainmaster_sdk
from trainmaster.gpu import fake_driver
class Memory:
    def prepare(self):
        fake_driver.allocate(%d)
    def release(self):
        %s
        fake_driver.release()
        return {"bytes": %d, "host_bytes": %d, "left": %d}
    def take_back(self):
        %s
        self.prepare()
        return {}
session = trainmaster_sdk.run(checkpoint_dir="kept")
session.__enter__()
session.can_release(Memory())
def step():
    time.sleep(0.01)
    session.should_stop()
"""


@dataclass(frozen=True)
class Kit:
    """What a freezer needs of its run: what the program does first, how to see that its devices are free."""

    how: str
    devices: tuple[str, ...] = ()
    prepare: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)
    """Other fields of its run file."""
    is_out: Callable[[int], bool] = lambda pid: True
    """Whether this rank's devices are free; a rank is told by its pid."""


def stop_kit(folder: Path) -> Kit:
    return Kit("stop")


def driver_kit(folder: Path) -> Kit:
    fake_driver.make_folder(folder, gpus=2)
    uuids = tuple(gpu.uuid for gpu in fake_driver.FakeDriver(folder).gpus())
    return Kit(
        "driver",
        uuids[:1],
        ON_GPU % SIZE,
        {FAKE_GPUS: str(folder), "PYTHONPATH": os.environ.get("PYTHONPATH", "")},
        is_out=lambda pid: fake_driver.state_of(pid, folder) == fake_driver.CHECKPOINTED,
    )


def cooperative_kit(
    folder: Path, releasing: str = "pass", taking: str = "pass", left: int = 0
) -> Kit:
    """With a line of code that is run before the memory is released, and before it is taken back.

    `left`: what it says that stays on its GPU.
    """
    kit = driver_kit(folder)
    return replace(
        kit,
        how="cooperative",
        prepare=COOPERATES % (SIZE, releasing, SIZE, SIZE, left, taking),
        is_out=lambda pid: not fake_driver.process_of(pid, folder).get("gpus"),
    )


class FrozenRun:
    """One run."""

    def __init__(self, folder: Path, kit: Kit) -> None:
        self.folder = folder
        self.kit = kit
        self.work = folder / "work"
        self.socket = str(folder / "s.sock")

    def up(self) -> None:
        """Wait until every rank works."""
        for rank in range(self.ranks):
            until(lambda rank=rank: self.ticks(rank))

    def start(self, ranks: int, child: bool, least_s: float) -> None:
        self.ranks = ranks
        self.work.mkdir()
        program = PROGRAM.format(prepare=self.kit.prepare, child=child)
        argv = (sys.executable, "-c", program)
        visible = {
            "CUDA_VISIBLE_DEVICES": ",".join(self.kit.devices),
            "TRAINMASTER_DEVICES": "vm:0",
        }
        file = RunFile(
            name="1.1",
            generation=0,
            workdir=str(self.work),
            env={"PATH": os.environ["PATH"], SOCKET: self.socket, **self.kit.env},
            ranks=tuple(RankSpec(argv, {"RANK": str(rank), **visible}) for rank in range(ranks)),
            socket=self.socket,
            grace_ms=20_000,
            log_bytes=1 << 20,
            log_files=1,
            placement="",
            cgroups=CgroupPlan(),
        )
        runfile.write(str(self.folder), replace(file, **self.kit.more))
        self.supervisor = subprocess.Popen(
            [sys.executable, "-P", "-c", SUPERVISOR, str(self.folder), str(least_s)],
            env=os.environ | dict(self.kit.env),
        )

    # -- what it does ------------------------------------------------------------------------------------

    def order(self, order: str, **more: object) -> None:
        """From a manager that dies right away."""

        def is_said() -> bool:
            with socket.socket(socket.AF_UNIX) as line:
                try:
                    line.connect(for_orders(self.socket))
                except (FileNotFoundError, ConnectionRefusedError):
                    return False
                line.sendall(encode_message({"order": order, **more}))
                return True

        until(is_said)

    def entries(self, *kinds: str) -> list[JournalEntry]:
        found = journal.read(str(self.folder))
        return [entry for entry in found if not kinds or entry["what"] in kinds]

    def heard(self, *kinds: str, which: int = 0) -> JournalEntry:
        """Wait for an entry of one of these kinds."""
        try:
            found = until(lambda: self.entries(*kinds)[which : which + 1])
        except TimeoutError:
            log = self.folder / "supervisor.log"
            said = log.read_text() if log.exists() else ""
            raise AssertionError(f"no {kinds} in {self.entries()}\n{said}") from None
        return found[0]

    def freeze(self, **more: object) -> JournalEntry:
        """Order it, and wait for the answer."""
        return self._answered("freeze", "frozen", "not frozen", "ended", "lost", **more)

    def thaw(self, **more: object) -> JournalEntry:
        return self._answered("thaw", "thawed", "ended", "lost", **more)

    def _answered(self, order: str, *kinds: str, **more: object) -> JournalEntry:
        before = len(self.entries(*kinds))
        self.order(order, **more)
        return self.heard(*kinds, which=before)

    # -- what it is --------------------------------------------------------------------------------------

    @property
    def pids(self) -> list[int]:
        found: list[int] = self.heard("started")["pids"]
        return found

    def members(self) -> list[int]:
        return [each for pid in self.pids for each in (pid, *processes.descendants(pid))]

    def ticks(self, rank: int = 0) -> int:
        try:
            return int((self.work / f"ticks-{rank}").read_text() or 0)
        except FileNotFoundError:
            return 0

    def goes_on(self) -> None:
        """Every rank works, and nothing of it is stopped or locked."""
        for rank in range(self.ranks):
            before = self.ticks(rank)
            until(lambda rank=rank, before=before: self.ticks(rank) > before)
        assert "T" not in {state_of(pid) for pid in self.members()}
        assert not any(self.kit.is_out(pid) for pid in self.pids if self.kit.devices)

    def stands_still(self) -> None:
        """Every process is stopped, and its devices are free."""
        assert {state_of(pid) for pid in self.members()} == {"T"}
        assert all(self.kit.is_out(pid) for pid in self.pids)

    def helper(self) -> int | None:
        return helper_of(self.pids[0])


def helper_of(rank: int) -> int | None:
    """The program that is freezing this process."""
    for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
        except OSError:
            continue
        if "trainmaster.gpu.checkpoint" in words and str(rank) in words:
            return pid
    return None


@contextmanager
def frozen_run(
    folder: Path, kit: Kit, ranks: int = 1, child: bool = False, least_s: float = 30.0
) -> Iterator[FrozenRun]:
    """A run that works; nothing of it is left afterwards."""
    run = FrozenRun(folder, kit)
    run.start(ranks, child, least_s)
    try:
        run.up()
        yield run
        if run.supervisor.poll() is None and not run.entries("ended", "lost"):
            run.order("kill")
            run.heard("ended", "lost")
        run.supervisor.wait(PATIENCE_S)
        assert not [pid for pid in run.pids if state_of(pid)]
        assert run.helper() is None
    finally:
        run.supervisor.kill()  # what is left of it dies with it
        run.supervisor.wait()


def until(look: Callable[[], R | None]) -> R:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        found = look()
        if found:
            return found
        time.sleep(0.02)
    raise TimeoutError
