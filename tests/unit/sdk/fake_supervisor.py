"""A real Unix socket that programs report to, as a supervisor's does: it hears all, and asks."""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from trainmaster_sdk.wire import Message, MessageReader, encode_message

PATIENCE_S = 60.0


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    """Generous: the machine may be busy."""
    until = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < until, f"waited in vain until {what}"
        time.sleep(0.005)


class FakeSupervisor:
    """Hears every line of every connection, in a thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.heard: list[Message] = []
        self._connections: list[socket.socket] = []
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen(16)
        self._threads: list[threading.Thread] = []
        self._spawn(self._accept)

    def said(self, word: str) -> list[Message]:
        return [line for line in self.heard if line.get("say") == word]

    def wait_for(self, word: str, count: int = 1) -> list[Message]:
        wait_until(lambda: len(self.said(word)) >= count, f"{word!r} was said; heard {self.heard}")
        return self.said(word)

    def ask(self, line: Message) -> None:
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.sendall(encode_message(line))

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(PATIENCE_S)
        for connection in self._connections:
            connection.close()
        self.path.unlink(missing_ok=True)

    def _spawn(self, target: Callable[..., None], *args: socket.socket) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            self._spawn(self._hear, connection)

    def _hear(self, connection: socket.socket) -> None:
        lines = MessageReader()
        with contextlib.suppress(OSError):
            while piece := connection.recv(1 << 16):
                self.heard.extend(lines.feed(piece))


@contextlib.contextmanager
def socket_path() -> Iterator[Path]:
    """Sockets have short names, and pytest's folders long ones."""
    with tempfile.TemporaryDirectory(prefix="tm-", dir="/tmp") as folder:
        yield Path(folder, "s")


@contextlib.contextmanager
def booth() -> Iterator[FakeSupervisor]:
    with socket_path() as path:
        opened = FakeSupervisor(path)
        try:
            yield opened
        finally:
            opened.close()


def environment(**more: str) -> dict[str, str]:
    """Ours without what a surrounding Trainmaster or torchrun might have set."""
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
    own = {
        name: value
        for name, value in os.environ.items()
        if name not in names and not name.startswith("TRAINMASTER_")
    }
    return own | more
