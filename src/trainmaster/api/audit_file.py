"""The file of the audit log: whole lines, rotated, and blocks that are set aside for a disk that is full.

A line that finds no room goes into those blocks, which are zeros until then, so that it outlives the manager.
It is moved to the log as soon as there is room again, or by the next manager; a crash in between writes it
twice.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

MOST_BYTES, MOST_FILES = 16 << 20, 9
WAITING = ".waiting"
WAITING_BYTES = 256 << 10
LEAST_LEFT = WAITING_BYTES // 2
"""For the lines of requests that are being answered: with less, no request is taken that needs a line."""
LONGEST_LINE = 4 << 10
FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


class AuditLines:
    """Appends lines; none is lost with the process."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._file = os.open(place, FLAGS | os.O_APPEND, 0o600)
        self._end_last_line()
        self._blocks = os.open(f"{place}{WAITING}", FLAGS, 0o600)
        self._is_ours = False
        """Whether this process may use the blocks: a standby in the same folder must not."""
        self._room = 0
        """How many bytes of them the disk has given us."""
        self._waiting = b""
        """What is in them: lines that found no room in the log."""
        self._set_aside()

    @property
    def has_room(self) -> bool:
        """Whether the line of a request that comes now can be written, whatever happens to the disk."""
        self._set_aside()
        return self._left >= LEAST_LEFT

    @property
    def is_crowded(self) -> bool:
        """Whether lines wait, and hardly another one can."""
        return bool(self._waiting) and self._left < LONGEST_LINE

    @property
    def _left(self) -> int:
        return self._room - len(self._waiting)

    def write(self, line: str) -> None:
        data = f"{line}\n".encode()
        self._set_aside()
        if not self._waiting and self._append(data):
            return
        if self._is_ours:
            with contextlib.suppress(OSError):  # beyond the blocks that it has
                os.pwrite(self._blocks, data, len(self._waiting))
        self._waiting += data

    def _append(self, data: bytes) -> bool:
        """Whether the log has it; of a piece that did not fit nothing stays."""
        try:
            size = os.fstat(self._file).st_size
            if size and size + len(data) > MOST_BYTES:
                self._rotate()
                size = 0
            if os.write(self._file, data) == len(data):
                return True
            os.ftruncate(self._file, size)
        except OSError:
            pass
        return False

    def _rotate(self) -> None:
        """Begin a new file; the newest of the full ones is `.1`."""
        fresh = f"{self._place}.0"
        file = os.open(fresh, FLAGS | os.O_APPEND | os.O_TRUNC, 0o600)
        names = [str(self._place), *(f"{self._place}.{n}" for n in range(1, MOST_FILES + 1))]
        for number in range(MOST_FILES, 0, -1):
            with contextlib.suppress(FileNotFoundError):
                os.replace(names[number - 1], names[number])
        os.replace(fresh, self._place)
        os.close(self._file)
        self._file = file

    def _end_last_line(self) -> None:
        """One that was cut off: the next must not be joined to it."""
        size = os.fstat(self._file).st_size
        if size and os.pread(self._file, 1, size - 1) != b"\n":
            self._append(b"\n")

    def _set_aside(self) -> None:
        """Move what waits to the log, and have all blocks, as far as the disk lets us."""
        if not self._is_ours and not self._take_blocks():
            return
        if self._waiting:
            if not self._append(self._waiting):
                return
            self._waiting, self._room = b"", 0
        if self._room < WAITING_BYTES:
            with contextlib.suppress(OSError):
                self._room = os.pwrite(self._blocks, bytes(WAITING_BYTES), 0)

    def _take_blocks(self) -> bool:
        """Become their owner, with the lines that an earlier manager has left in them."""
        try:
            fcntl.flock(self._blocks, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        self._is_ours = True
        self._room = os.fstat(self._blocks).st_size
        lines, end, _ = os.pread(self._blocks, self._room, 0).rpartition(b"\n")
        self._waiting = lines + end
        return True
