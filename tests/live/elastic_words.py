"""A program without torch that says and does what elastic ones do, so that resizes take a moment only.

python elastic_words.py FOLDER [MAY_LOSE]

Files of FOLDER tell it what is to happen: `joiners-die`, `joiners-wait`, `meeting-fails`,
`nobody-meets`, `die-PID`, `done`.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

LOOK_S = 0.01


class Rank:
    """One process."""

    def __init__(self, folder: Path, may_lose: int) -> None:
        self.folder = folder
        self.may_lose = may_lose
        self.rank, self.world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.joins = int(os.environ.get("TRAINMASTER_JOINS", "0"))
        process = int(os.environ.get("TRAINMASTER_PROCESS", self.rank))
        self.must_stop = False
        self.called_off = 0
        self.request: dict[str, Any] | None = None
        self.rest = b""
        self.line = socket.socket(socket.AF_UNIX)
        self.line.connect(os.environ["TRAINMASTER_SOCKET"])
        self.line.setblocking(False)
        self.say(say="hello", rank=self.rank, process=process, pid=os.getpid())
        signal.signal(signal.SIGTERM, self.stop)

    def stop(self, number: int, frame: FrameType | None) -> None:
        self.must_stop = True

    def say(self, **said: object) -> None:
        self.line.sendall(json.dumps(said).encode() + b"\n")

    def hear(self) -> None:
        try:
            self.rest += self.line.recv(1 << 16)
        except BlockingIOError:
            return
        *lines, self.rest = self.rest.split(b"\n")
        for said in map(json.loads, lines):
            if said.get("ask") == "stop":
                self.must_stop = True
            elif said.get("ask") == "resize":
                self.request = said
            elif said.get("ask") == "call off":
                self.called_off = said["n"]
            elif said.get("ask") == "wait":
                (self.folder / f"waits-{os.getpid()}").write_text(str(said["n"]))

    def has(self, name: str) -> bool:
        return (self.folder / name).exists()

    def work(self) -> None:
        if self.joins:
            self.join()
        else:
            self.tell()
        self.say(say="can resize", may_lose=self.may_lose)
        while not self.must_stop and not self.has("done"):
            time.sleep(LOOK_S)
            if self.has(f"die-{os.getpid()}"):
                os._exit(9)
            self.hear()
            if self.request is not None and self.request["n"] != self.called_off:
                self.take(self.request)
                self.request = None
        if self.must_stop:
            self.say(say="saved", step=1)
            self.say(say="leaving")
        else:
            self.say(say="done")

    def join(self) -> None:
        if self.has("joiners-die"):
            os._exit(9)
        while self.has("joiners-wait") and not self.must_stop:
            time.sleep(LOOK_S)
            self.hear()
        self.say(say="ready")
        if not self.meet(self.joins):
            raise SystemExit(0)

    def take(self, request: dict[str, Any]) -> None:
        if request["rank"] is None:
            self.say(say="removed", n=request["n"])
            raise SystemExit(0)
        self.rank, self.world = request["rank"], request["world"]
        if not self.meet(request["n"]):
            self.say(say="not resized", n=request["n"], why="They did not come.")
            self.must_stop = True

    def meet(self, number: int) -> bool:
        """Whether all came."""
        if self.has("meeting-fails") and not self.joins:
            return False
        (self.folder / f"met-{number}-{self.rank}").touch()
        while self.has("nobody-meets") or len(self.met(number)) < self.world:
            time.sleep(LOOK_S)
            self.hear()
            if self.must_stop or self.called_off == number:
                return False
        self.say(say="resized", n=number, regroup_ms=1, broadcast_ms=1)
        self.say(say="first step", n=number, ms=1)
        self.tell()
        return True

    def met(self, number: int) -> list[Path]:
        return [*self.folder.glob(f"met-{number}-*")]

    def tell(self) -> None:
        with (self.folder / f"seen-{os.getpid()}").open("a") as file:
            print(f"{self.rank} of {self.world}", file=file)
        print(f"{self.rank} of {self.world}", flush=True)


if __name__ == "__main__":
    Rank(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0).work()
