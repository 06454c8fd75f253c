"""The lock of a data folder: which managers use it now."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from pathlib import Path
from typing import Any

from trainmaster.engines.local.processes import is_lock_held

LOCK = "lock"


class FolderLock:
    """Keeps managers of another database out of a data folder.

    Managers of the same database share it: which of them leads is decided there.
    """

    def __init__(self, folder: Path, database: str) -> None:
        self._place = folder / LOCK
        self._database = database
        self._file: int | None = None
        self.other: int | None = None
        """The process of a manager that used the folder already."""

    def take(self) -> None:
        """RequestError where a manager of another database uses the folder."""
        self._file = os.open(self._place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        is_first = self._try(fcntl.LOCK_EX)
        if is_first:
            self.sign()
        fcntl.flock(self._file, fcntl.LOCK_SH)  # the exclusive one is held for a moment only
        said = self._signature()
        self.other = None if is_first else said.get("pid")
        if said.get("database") != self._database and (said or not is_first):
            self.release()
            from trainmaster.daemon.service_api import RequestError

            raise RequestError(
                f"{self._place.parent} is used by another Trainmaster, process {said.get('pid')},"
                f" with the database {said.get('database')}: use that one, stop it first, or"
                " name another folder with --data."
            )

    def sign(self) -> None:
        """Say who uses the folder, for those that are refused; on a full disk nothing is said."""
        if self._file is not None:
            said = json.dumps({"pid": os.getpid(), "database": self._database}).encode()
            os.ftruncate(self._file, 0)
            with contextlib.suppress(OSError):
                os.pwrite(self._file, said, 0)

    def release(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _try(self, how: int) -> bool:
        assert self._file is not None
        try:
            fcntl.flock(self._file, how | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _signature(self) -> dict[str, Any]:
        assert self._file is not None
        try:
            said = json.loads(os.pread(self._file, 1 << 16, 0))
        except ValueError:
            return {}
        return said if isinstance(said, dict) else {}


def is_in_use(folder: Path) -> bool:
    """Whether a manager uses the folder now."""
    try:
        file = os.open(folder / LOCK, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    return is_lock_held(file, fcntl.LOCK_EX)
