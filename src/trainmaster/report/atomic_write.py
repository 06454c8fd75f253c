"""Write files into a directory, all of them or none."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory


class ReportError(Exception):
    """A report that could not be written: one sentence that says what to do."""


@dataclass(frozen=True, slots=True)
class ReportFile:
    """A file to be: its name, below the report's directory, and its bytes, or what makes them."""

    name: str
    source: bytes | Callable[[], bytes]

    @property
    def content(self) -> bytes:
        return self.source if isinstance(self.source, bytes) else self.source()


NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
NOT_ALLOWED = (errno.EACCES, errno.EPERM, errno.EROFS)


def publish(files: Iterable[ReportFile], directory: Path) -> None:
    """Write the files into `directory`, or leave it as it was and raise ReportError.

    Everything is written into a hidden directory on the same disk first. A new directory is
    then renamed into place as a whole; in one that exists, each file is replaced by a rename,
    the last file last, and files of other names stay as they are.
    """
    target = directory.resolve()
    missing = [parent for parent in target.parents if not parent.exists()]
    try:
        if target.exists() and not target.is_dir():
            raise ReportError(
                f"cannot write the report to {directory}: it is a file; choose another directory."
            )
        _write_and_move(files, target)
    except OSError as error:
        _remove_empty(missing)
        raise ReportError(_sentence(directory, error)) from error


def _write_and_move(files: Iterable[ReportFile], target: Path) -> None:
    exists = target.is_dir()
    beside = target if exists else target.parent
    beside.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(
        prefix=".trainmaster-report-", dir=beside, ignore_cleanup_errors=True
    ) as hidden:
        staging = Path(hidden) / "report"
        staging.mkdir()
        names = []
        for file in files:
            write_file(staging / file.name, file.content)
            names.append(file.name)
        if not exists:
            staging.rename(target)
            return
        for name in names:
            if (target / name).is_dir():
                raise IsADirectoryError(errno.EISDIR, f"{name} in it is a directory")
        for name in names:
            (target / name).parent.mkdir(exist_ok=True)
            (staging / name).replace(target / name)


def write_file(path: Path, content: bytes) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)


def _remove_empty(directories: Iterable[Path]) -> None:
    """Remove the parents that were created for a report that failed."""
    for directory in directories:
        try:
            directory.rmdir()
        except OSError:
            return


def _sentence(directory: Path, error: OSError) -> str:
    cause = error.strerror or str(error) or type(error).__name__
    if error.errno in NO_ROOM:
        remedy = "free some space or choose another directory"
    elif error.errno in NOT_ALLOWED:
        remedy = "choose a directory that you may write to"
    else:
        remedy = "choose another directory"
    return f"cannot write the report to {directory}: {cause}; {remedy}."
