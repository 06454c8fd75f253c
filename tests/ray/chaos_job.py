"""A rank of a job of the chaos run on Ray: works in step with the others, and writes down all that it does.

    python -S chaos_job.py STEPS STEP_MS SAVE_EVERY FOLDER

Each process has a file of its own under FOLDER/<job>, named <attempt>-<rank>of<world>-<generation>-<pid>,
with a line for whatever happens: what, when (the machine's monotonic clock, in ms) and the step. `beat` comes
five times a second while the process goes on. With SAVE_EVERY 0 it neither saves nor leaves when it is asked
to. The ranks meet after each step, as in an all-reduce; one that loses the others fails.
"""

import contextlib
import os
import socket
import struct
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))

import trainmaster_sdk

BEAT_S = 0.2
MEET_S = 60.0
"""How long a rank waits for the others to come."""
NUMBER = struct.Struct("!q")
UNLIKE = 3
"""Exit code where the ranks are not at the same step."""

steps, step_ms, save_every = map(int, sys.argv[1:4])
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
folder = Path(sys.argv[4]) / os.environ["TRAINMASTER_JOB"]


class Record:
    """Lines that are in the file as soon as they are written, whatever becomes of the process."""

    def __init__(self) -> None:
        self.step = 0
        """How many are done."""
        folder.mkdir(parents=True, exist_ok=True)
        port = os.environ.get("MASTER_PORT", "0")
        name = f"{os.environ['TRAINMASTER_ATTEMPT']}-{rank}of{world}-{port}-{os.getpid()}"
        self._file = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(self, what: str) -> None:
        os.write(self._file, f"{what} {time.monotonic_ns() // 1_000_000} {self.step}\n".encode())

    def beat(self) -> None:
        while True:
            time.sleep(BEAT_S)
            self.note("beat")


class Peers:
    """The other ranks: rank 0 hears all of them, and then tells all."""

    def __init__(self) -> None:
        self._lines: list[socket.socket] = []
        place = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
        until = time.monotonic() + MEET_S
        if world > 1 and rank == 0:
            listening = socket.create_server(place, backlog=world)
            listening.settimeout(MEET_S)
            self._lines = [listening.accept()[0] for _ in range(world - 1)]
        elif world > 1:
            while not self._lines:
                with contextlib.suppress(ConnectionRefusedError):
                    self._lines = [socket.create_connection(place, MEET_S)]
                if time.monotonic() > until:
                    raise TimeoutError(f"nobody meets at {place}")
                time.sleep(0.05)
        for line in self._lines:
            line.settimeout(None)

    def meet(self) -> None:
        """All are at the same step."""
        if rank:
            self._tell()
            self._hear()
        else:
            self._hear()
            self._tell()

    def _tell(self) -> None:
        for line in self._lines:
            line.sendall(NUMBER.pack(record.step))

    def _hear(self) -> None:
        for line in self._lines:
            said = line.recv(NUMBER.size, socket.MSG_WAITALL)
            if len(said) < NUMBER.size:
                raise ConnectionError("another rank is gone")
            if NUMBER.unpack(said)[0] != record.step:
                record.note("UNLIKE")
                os._exit(UNLIKE)


def save(tm: trainmaster_sdk.Session) -> None:
    if rank == 0:
        record.note("saving")
        tm.save({"step": record.step}, record.step)
        record.note("saved")


def train(tm: trainmaster_sdk.Session, peers: Peers) -> None:
    peers.meet()
    while record.step < steps:
        if save_every and tm.should_stop():
            save(tm)
            record.note("leaves")
            return
        time.sleep(step_ms / world / 1000)
        record.step += 1
        peers.meet()
        tm.progress(record.step)
        if save_every and record.step % save_every == 0:
            save(tm)
    tm.finish()
    record.note("ends")


record = Record()
with trainmaster_sdk.run(keep=1) as session:
    found = session.load()
    record.step = 0 if found is None else int(found.state["step"])
    record.note("begin")
    threading.Thread(target=record.beat, daemon=True).start()
    train(session, Peers())
