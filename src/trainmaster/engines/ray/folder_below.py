"""Files of a folder that may be another user's, by descriptors: no link that is put there is followed."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from trainmaster.engines.local.privileges import is_users
from trainmaster.model.launch_spec import Account

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
RIGHTS = 0o777
NO_LINK = (errno.ELOOP, errno.ENOTDIR)


@contextmanager
def opened(folder: Path) -> Iterator[int]:
    """A folder of ours, or one that only we can replace."""
    root = os.open(folder, FOLDER)
    try:
        yield root
    finally:
        os.close(root)


@contextmanager
def folder_of(root: int, path: str) -> Iterator[int]:
    """The folder that this path is in; FileNotFoundError where there is a link or a file on the way."""
    at = os.dup(root)
    try:
        for part in path.split("/")[:-1]:
            try:
                inner = os.open(part, FOLDER, dir_fd=at)
            except OSError as error:
                if error.errno in NO_LINK:
                    raise FileNotFoundError(errno.ENOENT, "no folder", path) from None
                raise
            os.close(at)
            at = inner
        yield at
    finally:
        os.close(at)


@contextmanager
def open_below(root: int, path: str, account: Account | None = None) -> Iterator[int]:
    """An ordinary file, for reading; FileNotFoundError for what is none, or is another user's."""
    with folder_of(root, path) as folder:
        try:
            file = os.open(os.path.basename(path), FILE, dir_fd=folder)
        except OSError as error:
            if error.errno in (*NO_LINK, errno.ENXIO):
                raise FileNotFoundError(errno.ENOENT, "no file", path) from None
            raise
    try:
        seen = os.fstat(file)
        is_own = not is_users(account) or seen.st_uid == account.uid
        if not (stat.S_ISREG(seen.st_mode) and is_own):
            raise FileNotFoundError(errno.ENOENT, "no file", path)
        yield file
    finally:
        os.close(file)


class FolderWriter:
    """Puts ready files into a folder; what it makes there is that account's."""

    def __init__(self, folder: Path, account: Account | None) -> None:
        self._account = account
        self._root = os.open(folder, FOLDER)

    def __enter__(self) -> FolderWriter:
        return self

    def __exit__(self, *problem: object) -> None:
        os.close(self._root)

    def remove(self, path: str) -> None:
        """A file, a link, or a folder with nothing in it."""
        with suppress(FileNotFoundError), folder_of(self._root, path) as at:
            name = os.path.basename(path)
            try:
                os.unlink(name, dir_fd=at)
            except (IsADirectoryError, PermissionError):
                with suppress(OSError):  # it is not empty
                    os.rmdir(name, dir_fd=at)

    def make_folder(self, path: str, mode: int) -> None:
        with folder_of(self._root, path) as at:
            name = os.path.basename(path)
            try:
                os.mkdir(name, 0o700, dir_fd=at)
            except FileExistsError:
                if _is_folder(name, at):
                    return
                os.unlink(name, dir_fd=at)
                os.mkdir(name, 0o700, dir_fd=at)
            made = os.open(name, FOLDER, dir_fd=at)
            try:
                os.fchmod(made, mode | stat.S_IRWXU)
                if is_users(self._account):
                    os.fchown(made, self._account.uid, self._account.gid)
            finally:
                os.close(made)

    def make_link(self, path: str, to: str, mtime_ns: int) -> None:
        with folder_of(self._root, path) as at:
            name = os.path.basename(path)
            _clear(name, at)
            os.symlink(to, name, dir_fd=at)
            os.utime(name, ns=(mtime_ns, mtime_ns), dir_fd=at, follow_symlinks=False)
            if is_users(self._account):
                os.chown(
                    name,
                    self._account.uid,
                    self._account.gid,
                    dir_fd=at,
                    follow_symlinks=False,
                )

    def put_file(self, path: str, ready: Path) -> None:
        """Move a file there that has its rights and its owner already."""
        with folder_of(self._root, path) as at:
            name = os.path.basename(path)
            if _is_folder(name, at):
                shutil.rmtree(name, dir_fd=at)
            os.rename(ready, name, dst_dir_fd=at)


def finish(ready: Path, mode: int, mtime_ns: int, account: Account | None) -> None:
    """Give a file that was written in a folder of ours its rights, its time and its owner."""
    with ready.open("rb") as file:
        os.fchmod(file.fileno(), mode & RIGHTS)
        os.utime(file.fileno(), ns=(mtime_ns, mtime_ns))
        if is_users(account):
            os.fchown(file.fileno(), account.uid, account.gid)


def _clear(name: str, at: int) -> None:
    if _is_folder(name, at):
        shutil.rmtree(name, dir_fd=at)
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=at)


def _is_folder(name: str, at: int) -> bool:
    try:
        return stat.S_ISDIR(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False
