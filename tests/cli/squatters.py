"""Programs of another user that listen where a manager was, and keep what they are sent."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

OTHER = 54321
"""A user id that nobody has."""
PROGRAM = """
import os, socket, sys
uid, answer, bound = int(sys.argv[1]), sys.argv[2].encode(), sys.argv[3:]
os.setgroups([])
os.setgid(uid)
os.setuid(uid)
if bound:
    listening = socket.socket(fileno=int(bound[0]))
else:
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
listening.listen()
print(listening.getsockname()[1], flush=True)
head = "HTTP/1.1 200 OK\\r\\nContent-Type: application/json\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(answer)
while True:
    line, _ = listening.accept()
    while got := line.recv(65536):
        sys.stdout.buffer.write(got)
        sys.stdout.buffer.flush()
        line.sendall(head.encode() + answer)
"""
"""As another user from its first line on: the kernel knows a socket by who made it, or listens on it."""


@dataclass
class Squatter:
    """What it got."""

    url: str
    process: subprocess.Popen[bytes]
    _got: bytes = b""

    @property
    def got(self) -> bytes:
        """All that it was sent; it ends."""
        self.process.kill()
        assert self.process.stdout is not None
        self._got += self.process.stdout.read()
        return self._got


@contextmanager
def squatting(answer: object = None, path: Path | None = None) -> Iterator[Squatter]:
    """One on a free port, or on a Unix socket."""
    assert os.geteuid() == 0, "Run this test as root: it needs a program of another user."
    words = [sys.executable, "-I", "-c", PROGRAM, str(OTHER), json.dumps(answer or {})]
    bound = [] if path is None else [socket.socket(socket.AF_UNIX)]
    for each in bound:
        each.bind(str(path))
    handed = [each.fileno() for each in bound]
    process = subprocess.Popen(
        [*words, *map(str, handed)], stdout=subprocess.PIPE, pass_fds=handed, cwd="/"
    )
    for each in bound:
        each.close()
    assert process.stdout is not None
    try:
        said = process.stdout.readline().decode().strip()
        yield Squatter(f"http://127.0.0.1:{said}" if path is None else f"unix:{path}", process)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
