"""Reads the output of a rank: by seeking, through rotation, never a whole file into memory."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

PIECE = 1 << 16


class Log:
    """What is kept of a rank's output now: its files one after another, opened once.

    Open files stay what they are when the run's supervisor renames or drops them meanwhile.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._stack = ExitStack()
        self._files: list[tuple[BinaryIO, int]] = []
        for path in paths:
            try:
                file = self._stack.enter_context(path.open("rb"))
            except OSError:
                continue
            self._files.append((file, os.fstat(file.fileno()).st_size))
        self.size = sum(size for _, size in self._files)

    def close(self) -> None:
        self._stack.close()

    def place_of(self, start: int) -> tuple[int, int]:
        """Which file holds this position of what is kept (its inode), and where in it."""
        inode, end = 0, 0
        for file, size in self._files:
            inode, end = os.fstat(file.fileno()).st_ino, min(start, size)
            if start < size:
                break
            start -= size
        return inode, end

    def pieces(self, start: int) -> Iterator[bytes]:
        """From this position to what was the end when it was opened; then the files are closed."""
        try:
            for file, size in self._files:
                if start >= size:
                    start -= size
                    continue
                file.seek(start)
                left, start = size - start, 0
                while left > 0:
                    piece = file.read(min(PIECE, left))
                    if not piece:
                        break
                    left -= len(piece)
                    yield piece
        finally:
            self.close()

    def tail_start(self, lines: int) -> int:
        """Where the last `count` lines begin; what follows the last line break is a line too."""
        if lines <= 0:
            return self.size
        at, wanted = self.size, lines
        for piece in self._backwards():
            low = at - len(piece)
            # A break at the very end closes the last line and begins none.
            end = len(piece) - 1 if at == self.size and piece.endswith(b"\n") else len(piece)
            while True:
                found = piece.rfind(b"\n", 0, end)
                if found < 0:
                    break
                wanted -= 1
                if wanted == 0:
                    return low + found + 1
                end = found
            at = low
        return 0

    def _backwards(self) -> Iterator[bytes]:
        for file, size in reversed(self._files):
            end = size
            while end > 0:
                start = max(0, end - PIECE)
                file.seek(start)
                piece = file.read(end - start)
                if len(piece) < end - start:  # Cut short meanwhile: there is nothing to go by.
                    return
                yield piece
                end = start


class Follower:
    """Reads on as a log grows and its files are rotated."""

    def __init__(self) -> None:
        self._file: BinaryIO | None = None

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    @property
    def place(self) -> tuple[int, int] | None:
        """Which file it reads (its inode), and how far it has come."""
        if self._file is None:
            return None
        return os.fstat(self._file.fileno()).st_ino, self._file.tell()

    def go_to(self, paths: Sequence[Path], place: tuple[int, int]) -> bool:
        """Go on where another has stopped; False where that file is not kept any more."""
        for path in paths:
            if _inode(path) == place[0] and self._open(path):
                assert self._file is not None
                self._file.seek(min(place[1], os.fstat(self._file.fileno()).st_size))
                return True
        return False

    def read(self, paths: Sequence[Path]) -> bytes:
        """What has come since; empty where nothing has."""
        if self._file is None and not any(self._open(path) for path in paths):
            return b""
        assert self._file is not None
        piece = self._file.read(PIECE)
        if piece:
            return piece
        follower = self._next(paths)
        if follower is None:
            return b""
        # It may have been written to until it was rotated: that comes before the next file.
        piece = self._file.read(PIECE)
        if piece:
            return piece
        self._open(follower)
        return self._file.read(PIECE)

    def _next(self, paths: Sequence[Path]) -> Path | None:
        assert self._file is not None
        own = os.fstat(self._file.fileno()).st_ino
        inodes = [_inode(path) for path in paths]
        if own in inodes:
            later = inodes.index(own) + 1
            return next((path for path in paths[later:] if _inode(path) is not None), None)
        return next(
            (path for path, inode in zip(paths, inodes, strict=True) if inode is not None), None
        )

    def _open(self, path: Path) -> bool:
        try:
            opened = path.open("rb")
        except OSError:
            return False
        self.close()
        self._file = opened
        return True


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except OSError:
        return None
