"""A run's journal: lines of JSON, the durable record of it. Only the holder of the run's lock writes it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import time
from collections.abc import Iterator
from typing import Any

from trainmaster.durable_files import sync
from trainmaster.engines.local import processes

JournalEntry = dict[str, Any]

JOURNAL = "journal.jsonl"
LOCK = "lock"
LAST = ("ended", "lost")
"""What the last entry of a journal says; nothing comes after it."""
SYNCED = frozenset({"opened", "launched", "started", "frozen", "reshaped", *LAST})
"""Entries that must survive a power cut before they are reported; losing others costs no training."""


def _boot() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read(8)
    except OSError:
        return ""


BOOT = _boot()
"""Which start of the machine this is: steady clocks of different ones cannot be compared."""


def steady_ms() -> int:
    """Milliseconds of a clock that cannot be set, and that goes on while the machine sleeps."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


def take_lock(folder: str, patience_s: float = 0.0) -> int | None:
    """The run's lock, as a descriptor that holds it; None if another process holds it.

    Testing whether it is free takes it for a moment, so wait a little.
    """
    lock = os.open(os.path.join(folder, LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    until = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        except OSError as problem:
            if problem.errno not in (errno.EWOULDBLOCK, errno.EINTR) or time.monotonic() >= until:
                os.close(lock)
                return None
        time.sleep(0.005)


def claim(folder: str) -> int | None:
    """Take the run's lock, waiting for others that only test whether it is free."""
    for _ in range(40):
        lock = take_lock(folder)
        if lock is not None or has_begun(folder):
            return lock
        time.sleep(0.005)
    return None


def is_locked(folder: str) -> bool:
    """Whether a supervisor holds the run."""
    try:
        lock = os.open(os.path.join(folder, LOCK), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    return processes.is_lock_held(lock, fcntl.LOCK_SH)


def has_begun(folder: str) -> bool:
    """Whether the run was ever begun: an attempt is begun once."""
    try:
        return os.path.getsize(os.path.join(folder, JOURNAL)) > 0
    except OSError:
        return False


def has_ended(folder: str) -> bool:
    """Whether the run's end is written down."""
    return any(entry["what"] in LAST for entry in read(folder))


def last(folder: str) -> JournalEntry | None:
    """The newest entry; None if the journal is empty."""
    newest = None
    for newest in read(folder):  # noqa: B007 - only the last one is wanted
        pass
    return newest


def read(folder: str, after: int = 0) -> Iterator[JournalEntry]:
    """The entries after that number, up to the first damaged line."""
    with contextlib.suppress(FileNotFoundError), open(os.path.join(folder, JOURNAL), "rb") as file:
        for line in file:
            entry = _entry_of(line)
            if entry is None:
                return
            if entry["n"] > after:
                yield entry


def _entry_of(line: bytes) -> JournalEntry | None:
    """None for an incomplete or damaged line, which a power failure may leave."""
    if not line.endswith(b"\n"):
        return None
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, dict):
        return None
    kinds = (("n", int), ("at_ms", int), ("what", str))
    return said if all(isinstance(said.get(name), kind) for name, kind in kinds) else None


def _line_of(entry: JournalEntry) -> bytes:
    return json.dumps(entry, separators=(",", ":")).encode() + b"\n"


class Unsynced:
    """What a file has and a disk may not have yet; `sync` may be called in another thread."""

    def __init__(self, file: int, opening: int, folder: str, entries: int) -> None:
        self._file = file
        self.opening = opening
        self._folder = folder
        """Which has a new name in it; empty: none."""
        self.entries = entries

    def sync(self) -> None:
        os.fsync(self._file)
        if self._folder:
            sync(self._folder)

    def __del__(self) -> None:
        os.close(self._file)  # who waited for it may have been cancelled


class Journal:
    """Appends entries. Where the disk refuses, it remembers them and tries again.

    Its numbers begin after `floor`: readers may have seen entries that a power cut has taken away.

    A writer that must not wait for the disk has `puts`: it calls `put` for `append`, and has what is
    `unsynced` synced elsewhere, which makes entries durable (`synced`) or takes them back (`refused`).
    """

    def __init__(self, folder: str, floor: int = 0, *, puts: bool = False) -> None:
        self._folder = folder
        self._puts = puts
        self._openings = 0
        self._has_new_file = False
        """Whether the disk may not have the file's name yet."""
        self._unsynced: list[JournalEntry] = []
        """Entries that are in the file and not durable, and those after them."""
        self._unsynced_at = 0
        """Where they begin."""
        self._path = os.path.join(folder, JOURNAL)
        self._kept: list[JournalEntry] = []
        """All entries but progress, in case the folder is removed."""
        self._waiting: list[JournalEntry] = []
        self.trouble = ""
        """Why entries wait to be written; empty where none does."""
        self._good = 0
        """Bytes of the file that are whole lines and not taken back."""
        self._is_longer = False
        """Whether there are more, which the disk would not cut off: nothing is written behind them."""
        self._file = self._open()
        newest = last(folder)
        self._n = floor if newest is None else max(floor, newest["n"])
        self._at_ms = 0 if newest is None else newest["at_ms"]

    @property
    def is_written(self) -> bool:
        return not (self._waiting or self._unsynced)

    def entry(self, what: str, said: JournalEntry) -> JournalEntry:
        """A new entry with its number and time: neither ever decreases."""
        self._n += 1
        self._at_ms = max(self._at_ms, time.time_ns() // 1_000_000)
        stamp = {"steady_ms": steady_ms(), "boot": BOOT}
        return {"n": self._n, "at_ms": self._at_ms, "what": what} | stamp | said

    def append(self, entry: JournalEntry) -> list[JournalEntry]:
        """Write it; returns the entries that are durable now, oldest first, to be reported."""
        self._add(entry)
        return self.retry()

    def retry(self) -> list[JournalEntry]:
        """Write the waiting entries in order, until one fails."""
        written, before = self._write_waiting()
        if any(entry["what"] in SYNCED for entry in written) and not self._is_synced(before):
            written = []
        del self._waiting[: len(written)]
        return written

    def put(self, entry: JournalEntry) -> list[JournalEntry]:
        """Write it; returns the entries that may be reported before anything is synced, oldest first."""
        self._add(entry)
        return self.put_again()

    def put_again(self) -> list[JournalEntry]:
        """Write the waiting entries, as `put` does."""
        written, before = self._write_waiting()
        del self._waiting[: len(written)]
        if not (self._unsynced or any(entry["what"] in SYNCED for entry in written)):
            return written
        if not self._unsynced:
            self._unsynced_at = before
        self._unsynced += written
        return []

    def unsynced(self) -> Unsynced | None:
        """What is to be synced; None: nothing."""
        if not self._unsynced or self._file < 0:
            return None
        folder = self._folder if self._has_new_file else ""
        return Unsynced(os.dup(self._file), self._openings, folder, len(self._unsynced))

    def synced(self, what: Unsynced) -> list[JournalEntry]:
        """The disk has it: entries that are durable now, oldest first, to be reported."""
        if what.opening != self._openings:
            return []  # it was of a file that was removed meanwhile
        self._has_new_file = False
        durable = self._unsynced[: what.entries]
        del self._unsynced[: what.entries]
        if not any(entry["what"] in SYNCED for entry in self._unsynced):
            durable, self._unsynced = durable + self._unsynced, []
        self._unsynced_at += sum(map(len, map(_line_of, durable)))
        return durable

    def refused(self, what: Unsynced | None, problem: OSError) -> None:
        """The disk has not taken it: it is as if nothing of that had been written; None: it was not asked."""
        self.trouble = problem.strerror or str(problem)
        if what is None or what.opening != self._openings:
            return  # what is in the present file is still to be synced
        self._waiting, self._unsynced = self._unsynced + self._waiting, []
        self._take_back(self._unsynced_at)

    def _add(self, entry: JournalEntry) -> None:
        if entry["what"] != "progress":
            self._kept.append(entry)
        self._waiting.append(entry)

    def _write_waiting(self) -> tuple[list[JournalEntry], int]:
        """Those that are in the file now, and where they begin."""
        written: list[JournalEntry] = []
        before = self._good
        try:
            if self._is_removed():
                self._begin_again()
            self._cut()
            before = self._good
            for entry in self._waiting:
                self._write(entry)
                written.append(entry)
            self.trouble = ""
        except OSError as problem:
            self.trouble = problem.strerror or str(problem)
        return written, before

    def _is_synced(self, before: int) -> bool:
        """Whether the disk has it; where it has not, what was written after `before` is taken back."""
        try:
            os.fsync(self._file)
        except OSError as problem:
            self.trouble = problem.strerror or str(problem)
            self._take_back(before)
            return False
        return True

    def _take_back(self, size: int) -> None:
        """What was written behind that never happened."""
        self._good, self._is_longer = size, True
        with contextlib.suppress(OSError):  # it is tried again before anything is written
            self._cut()

    def _cut(self) -> None:
        if self._is_longer:
            os.ftruncate(self._file, self._good)
            self._is_longer = False

    def _is_removed(self) -> bool:
        try:
            return os.fstat(self._file).st_nlink == 0  # a folder that was moved has it still
        except OSError as problem:
            if problem.errno == errno.ESTALE:  # as NFS says it
                return True
            raise

    def remembered(self, after: int) -> Iterator[JournalEntry]:
        """Entries for a follower: from the file, or from memory if the file is gone."""
        source = read(self._folder, after) if os.path.exists(self._path) else iter(self._kept)
        unsaid = {entry["n"] for entry in (*self._waiting, *self._unsynced)}
        return (entry for entry in source if entry["n"] > after and entry["n"] not in unsaid)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._file = -1  # nothing is written into a file that is opened later under its number

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        is_new = not os.path.exists(self._path)
        file = os.open(self._path, flags, 0o600)
        try:
            good = 0
            with open(self._path, "rb") as written:
                for line in written:
                    if _entry_of(line) is None:
                        break
                    good += len(line)
            os.ftruncate(file, good)  # a line that was torn by a crash never happened
            if is_new and not self._puts:
                sync(self._folder)
        except OSError:
            os.close(file)
            raise
        self._openings += 1
        self._good, self._is_longer = good, False
        self._has_new_file = is_new and self._puts
        return file

    def _begin_again(self) -> None:
        """The folder was removed: create it again, with the remembered entries."""
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        removed, self._file = self._file, self._open()
        with contextlib.suppress(OSError):
            os.close(removed)
        self._waiting, self._unsynced = [*self._kept], []

    def _write(self, entry: JournalEntry) -> None:
        line = _line_of(entry)
        if os.write(self._file, line) != len(line):
            self._take_back(self._good)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._good += len(line)
