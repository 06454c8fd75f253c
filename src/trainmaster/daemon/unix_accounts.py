"""Which Unix account a job runs as, where jobs run as their users."""

from __future__ import annotations

import os
import pwd

from trainmaster.daemon.request_errors import RequestError
from trainmaster.model.launch_spec import Account


def account_for(user: str, caller: str, uid: int | None) -> Account:
    """The account of a job of this user that the caller submits; a RequestError where it must not run.

    `uid` is what the kernel says of the caller; None for one with a token, whose name is an account's. Root
    alone submits for others, and root's own jobs come from root's own processes: no token makes one root.
    """
    if user != caller and uid != 0:
        raise RequestError(
            f"jobs run as their users here, so only root may submit one as {user}: leave `user` out."
        )
    found = _by_uid(uid) if user == caller and uid is not None else _by_name(user)
    if found.uid == 0 and uid != 0:
        raise RequestError(
            "jobs of root are taken only from root itself, over the manager's Unix socket: submit it there,"
            " or as another user."
        )
    return found


def _by_uid(uid: int) -> Account:
    try:
        return _account(pwd.getpwuid(uid))
    except KeyError:
        raise RequestError(
            f"jobs run as their users here, and this machine has no account with the number {uid}: ask its"
            " administrator for one."
        ) from None


def _by_name(name: str) -> Account:
    try:
        return _account(pwd.getpwnam(name))
    except (KeyError, ValueError):
        raise RequestError(
            f"jobs run as their users here, and this machine has no account {name}: its administrator can"
            f" make one (useradd {name})."
        ) from None


def _account(entry: pwd.struct_passwd) -> Account:
    home = entry.pw_dir if os.path.isabs(entry.pw_dir) else "/"
    shell = entry.pw_shell or "/bin/sh"
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid, home, shell)
