"""The protocol between a terminal and an interactive session: frames on a Unix socket."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

HEAD = struct.Struct("!cI")
SIZE = struct.Struct("!HH")
CODE = struct.Struct("!i")
LONGEST = 1 << 20
SOCKET = "session.sock"
"""In the job's checkpoint folder, which is the same for all its attempts."""
ADDRESS = "session.json"
"""In the same folder: the address of a notebook."""
FOLDER_NAMES = Path("/proc/self/fd")


class Kind(Enum):
    """What a frame holds."""

    TYPED = b"t"
    """From a terminal: bytes for the program."""
    SIZE = b"w"
    """From a terminal: rows and columns."""
    SHOWN = b"s"
    """From the session: bytes for the screen."""
    ENDED = b"e"
    """From the session: the program's exit code; nothing follows."""
    SLEEPS = b"z"
    """From the session: it is idle and asks to be suspended."""


@dataclass(frozen=True, slots=True)
class Frame:
    kind: Kind
    body: bytes


def frame(kind: Kind, body: bytes = b"") -> bytes:
    """One frame, ready to be sent."""
    return HEAD.pack(kind.value, len(body)) + body


class Frames:
    """Splits what a socket delivers into frames."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, piece: bytes) -> Iterator[Frame]:
        """All frames that are complete with this piece; ValueError for anything else."""
        self._rest += piece
        while len(self._rest) >= HEAD.size:
            kind, size = HEAD.unpack_from(self._rest)
            if size > LONGEST:
                raise ValueError("a frame is too long")
            end = HEAD.size + size
            if len(self._rest) < end:
                return
            body, self._rest = self._rest[HEAD.size : end], self._rest[end:]
            yield Frame(Kind(kind), body)


def listen(folder: Path) -> socket.socket:
    """A socket in this folder that only its owner may connect to."""
    (folder / SOCKET).unlink(missing_ok=True)
    heard = socket.socket(socket.AF_UNIX)
    before = os.umask(0o177)
    try:
        _at(folder, heard.bind)
    finally:
        os.umask(before)
    heard.listen(8)
    return heard


def call(folder: Path) -> socket.socket:
    """Connect to the session of this folder; OSError if there is none."""
    line = socket.socket(socket.AF_UNIX)
    try:
        _at(folder, line.connect)
    except OSError:
        line.close()
        raise
    return line


def _at(folder: Path, use: object) -> None:
    """A socket's path has 107 bytes at most: a folder's open number makes any path short."""
    assert callable(use)
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        use(
            str(FOLDER_NAMES / str(opened) / SOCKET)
            if FOLDER_NAMES.exists()
            else str(folder / SOCKET)
        )
    finally:
        os.close(opened)
