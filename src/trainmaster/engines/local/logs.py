"""A rank's output in files: the newest part is kept, up to a limit."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from trainmaster.engines.local.secret_files import Mask

TAIL_BYTES = 4096
TAIL_LINES = 20
STACKS = "stacks.txt"
"""Where the processes of a run were when it hung the last time."""


def path_of(folder: str, rank: int) -> str:
    """Where the newest output of a rank is; older files have .1, .2, … after their name."""
    return os.path.join(folder, f"rank-{rank}.log")


def rank_logs(folder: Path) -> Mapping[int, tuple[Path, ...]]:
    """For each rank its files, oldest first."""
    found: dict[int, list[tuple[int, Path]]] = {}
    for path in folder.glob("rank-*.log*"):
        rank, _, age = path.name.removeprefix("rank-").partition(".log")
        if rank.isdecimal() and (not age or age[1:].isdecimal()):
            found.setdefault(int(rank), []).append((int(age[1:] or 0), path))
    return {rank: tuple(p for _, p in sorted(found[rank], reverse=True)) for rank in sorted(found)}


class RankLog:
    """Takes bytes as they come. If the disk is full, output is lost, but the training goes on."""

    def __init__(self, path: str, file_bytes: int, files: int) -> None:
        self._path = path
        self._limit = max(1, file_bytes)
        self._files = max(1, files)
        self._file: int | None = None
        self._size = 0
        self._mask = Mask(())
        self._lost = 0
        """Bytes that could not be written; noted in the log once writing works again."""

    def hide(self, values: Iterable[str]) -> None:
        """Write *** instead of these from now on."""
        self._mask = Mask(values)

    def write(self, piece: bytes) -> None:
        """Append; an empty piece is the end, before which nothing is held back any more."""
        self._write(self._mask.hide(piece) if piece else self._mask.rest())

    def _write(self, piece: bytes) -> None:
        """A file that is full is put aside first, so that none grows beyond its limit."""
        left = memoryview(piece)
        while left:
            if self._size >= self._limit:
                self._rotate()
            part = left[: max(1, self._limit - self._size)]
            self._append(part)
            left = left[len(part) :]

    def tail(self) -> str:
        """The last lines, for people; bytes that are not text are shown as such."""
        last = b""
        for path in (self._path, f"{self._path}.1"):
            try:
                with open(path, "rb") as file:
                    file.seek(max(0, os.path.getsize(path) - TAIL_BYTES + len(last)))
                    last = file.read() + last
            except OSError:
                continue
            if len(last) >= TAIL_BYTES:
                break
        text = (
            last[-TAIL_BYTES:].decode(errors="replace").replace("\0", "\N{REPLACEMENT CHARACTER}")
        )
        return "\n".join(text.splitlines()[-TAIL_LINES:])

    def close(self) -> None:
        """No more comes."""
        self._write(self._mask.rest())
        self._close()

    def _close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _append(self, part: memoryview) -> None:
        try:
            file = self._opened()
            if self._lost:
                note = f"\n[trainmaster: {self._lost} bytes of output could not be written]\n"
                self._size += os.write(file, note.encode())
                self._lost = 0
            done = os.write(file, part)
            self._size += done
            self._lost += len(part) - done
        except OSError:
            self._lost += len(part)

    def _opened(self) -> int:
        if self._file is None:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._file = os.open(self._path, flags, 0o600)
            self._size = os.fstat(self._file).st_size
        return self._file

    def _rotate(self) -> None:
        """Rename each file to the next number; the oldest is dropped."""
        try:
            for age in range(self._files - 1, 0, -1):
                older = f"{self._path}.{age}"
                newer = self._path if age == 1 else f"{self._path}.{age - 1}"
                if os.path.exists(newer):
                    os.replace(newer, older)
            if self._files == 1 and self._file is not None:
                os.ftruncate(self._file, 0)
        except OSError:
            if self._file is not None:
                os.ftruncate(self._file, 0)
        self._close()
        self._size = 0
