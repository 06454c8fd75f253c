"""The Unix socket of a manager: who may connect, and a path that is always the leader's.

It is bound under a name of its own and renamed to its path when the manager leads, in one step: a standby
waits beside a leader, and what a manager that was killed left behind is replaced.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import stat
import struct
from pathlib import Path

from trainmaster.engines.local.socket_paths import folder_for

SYSTEM = Path("/run/trainmaster/manager.sock")
"""Of the manager for everybody on this machine (`trainmaster up --system`)."""
OWN_MODE, SYSTEM_MODE = 0o600, 0o666


class LocalSocket:
    """A socket that listens, and the path that clients find it by."""

    def __init__(self, path: Path, mode: int = OWN_MODE) -> None:
        self.path = path
        self.bound = path.with_name(f"{path.name}.{os.getpid()}")
        """Where it is until it is published."""
        for left in path.parent.glob(f"{path.name}.*"):  # by standbys that were killed
            if listener_at(left) is None:
                left.unlink(missing_ok=True)
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            before = os.umask(0o177)
            try:
                self.sock.bind(str(self.bound))
            finally:
                os.umask(before)
            os.chmod(self.bound, mode)
            self.sock.listen()
        except BaseException:
            self.sock.close()
            raise
        self._inode = os.stat(self.bound).st_ino

    def publish(self) -> None:
        """From now on clients find this one."""
        if self.bound.exists():
            os.rename(self.bound, self.path)

    def withdraw(self) -> None:
        """Remove it, unless another manager has taken its place."""
        self.bound.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            if os.lstat(self.path).st_ino == self._inode:
                self.path.unlink()
        self.sock.close()


def own_path(folder: Path, kind: str = "manager") -> Path:
    """The socket of the manager of this data folder, in a folder that only its user can enter.

    Not in XDG_RUNTIME_DIR: it vanishes when the user logs out, and the manager goes on.
    """
    name = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:20]
    return Path(folder_for(folder)) / f"{kind}-{name}.sock"


def system_path(path: Path = SYSTEM) -> Path:
    """The socket for everybody; PermissionError where its folder is not root's alone to change."""
    path.parent.mkdir(mode=0o755, exist_ok=True)
    found = os.lstat(path.parent)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise PermissionError(f"{path.parent} must be a folder that only root can change")
    os.chmod(path.parent, 0o755)
    return path


def listener_at(path: Path) -> int | None:
    """The process that listens on this socket; None if none does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(2.0)
        try:
            probe.connect(str(path))
        except OSError:
            return None
        said = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        return int(struct.unpack("3i", said)[0])
