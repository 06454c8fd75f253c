"""Where supervisors listen: a folder that is the same in every session, and closed to other users."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

from trainmaster.engines.local.privileges import CLOSED, OPEN
from trainmaster.engines.protocol import EngineError

SHARED = "/tmp"
"""Not XDG_RUNTIME_DIR: it differs between ssh, cron and services, and vanishes at logout."""
LONGEST = 107
"""Bytes that the path of a socket may have."""
END = ".sock"
ORDERS_END = ".o"
FOR_USERS = "-users"


def folder_for(state: Path, *, serves_users: bool = False) -> str:
    """A folder for sockets that only we can change: below /tmp, or in the state folder.

    Others cannot enter it. One that serves users has another name, and they can enter it, but not list it:
    each socket in there is closed to all but its job's user.
    """
    shared = os.path.join(SHARED, f"trainmaster-{os.getuid()}{FOR_USERS if serves_users else ''}")
    mode = OPEN if serves_users else CLOSED
    if _is_ours(shared, mode):
        return shared
    own = os.path.join(os.path.abspath(state), "sockets")
    if len(os.fsencode(path_in(own, state))) <= LONGEST and _is_ours(own, mode):
        return own
    raise EngineError(
        f"{shared} must be a folder of yours that others cannot change: remove it, "
        "or use a state folder with a shorter path."
    )


def path_in(folder: str, run_folder: Path) -> str:
    """The socket of the run with this folder; no other run on this machine has the same."""
    name = hashlib.sha256(os.fsencode(run_folder.resolve())).hexdigest()[:20]
    return os.path.join(folder, name + END)


def for_orders(programs: str) -> str:
    """Where the supervisor whose programs connect there takes orders."""
    return programs.removesuffix(END) + ORDERS_END


def takes_orders(programs: str) -> str:
    """The same, as far as it is known: a supervisor of an earlier version has one socket for both."""
    orders = for_orders(programs)
    return orders if os.path.exists(orders) else programs


def _is_ours(folder: str, mode: int) -> bool:
    """Whether it exists or could be created with these rights, and is not another user's."""
    try:
        os.makedirs(folder, mode=mode, exist_ok=True)
        found = os.stat(folder, follow_symlinks=False)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            return False
        if stat.S_IMODE(found.st_mode) != mode:
            os.chmod(folder, mode)
    except OSError:
        return False
    return os.access(folder, os.W_OK | os.X_OK)
