"""Giving up root for the account of a job's user, before anything of that user is touched.

Only the standard library and the model are imported: supervisors load this.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import pwd
import resource
import select
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypedDict, TypeGuard

from trainmaster.model.launch_spec import Account

CLOSED = 0o700
OPEN = 0o711
"""Of folders of ours: users reach what is theirs in them, and can neither list nor change them."""
COPY_S = 120.0
"""How long a program that works on files of a user may take."""
_libc = ctypes.CDLL(None, use_errno=True)


def become(account: Account) -> None:
    """Be this account from now on, for good: its user and all its groups. OSError where that cannot be."""
    if os.geteuid() != 0:
        if os.geteuid() != account.uid:
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
        return
    if not is_known(account):
        raise OSError(errno.ENOENT, gone(account))  # its number may be somebody else's by now
    os.initgroups(account.name, account.gid)
    os.setresgid(account.gid, account.gid, account.gid)
    os.setresuid(account.uid, account.uid, account.uid)


def is_known(account: Account) -> bool:
    """Whether this machine has that account, with the same number."""
    try:
        return pwd.getpwnam(account.name).pw_uid == account.uid
    except KeyError:
        return False


def gone(account: Account) -> str:
    return f"this machine has no account {account.name} with the number {account.uid} any more"


def closed_place(path: str) -> str:
    """What keeps other users from reading and entering it: a folder on the way, or itself; empty: nothing.

    What a link leads to is on the way too.
    """
    real = os.path.realpath(path)
    for way in (os.path.abspath(path), real):
        for folder in reversed(Path(way).parents):
            if not folder.stat().st_mode & stat.S_IXOTH:
                return str(folder)
    return "" if os.stat(real).st_mode & 0o005 == 0o005 else real


def interpreter_remark() -> str:
    """Why other users cannot run the Python of this installation; empty where they can."""
    closed = closed_place(sys.executable)
    if not closed:
        return ""
    real = os.path.realpath(sys.executable)
    leads = f", which leads to {real}" if real != sys.executable else ""
    return (
        f"Other users cannot run {sys.executable}{leads}: {closed} is closed to them. `trainmaster` and jobs"
        ' that use this Python end with "Permission denied".'
    )


def is_users(account: Account | None) -> TypeGuard[Account]:
    """Whether this process is root's and that account is not: what is done for it is done as it."""
    return account is not None and os.geteuid() == 0 and account.uid != 0


def limit_processes(most: int) -> None:
    """How many processes the user of this one may have when it starts another, in all its runs together.

    For machines without control groups. Not for the manager's own account, which has other processes.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(resource.RLIMIT_NPROC, (most, most))


def as_argument(account: Account | None) -> str:
    """For the command line of a process of ours that becomes it; empty for none."""
    return "" if account is None else json.dumps(asdict(account))


def account_in(argument: str) -> Account | None:
    return Account(**json.loads(argument)) if argument else None


def called_as(account: Account | None, act: Callable[[], Any], patience_s: float) -> Any:
    """What the function returns when that account calls it, as JSON has it; None where it takes too long.

    It is called in a child: only for processes with one thread.
    """
    if not is_users(account):
        return act()
    ours, theirs = os.pipe2(os.O_CLOEXEC)
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            become(account)
            os.write(theirs, json.dumps(act()).encode())
        os._exit(0)
    os.close(theirs)
    said, until = b"", time.monotonic() + patience_s
    while select.select([ours], [], [], max(0.0, until - time.monotonic()))[0]:
        piece = os.read(ours, 1 << 16)
        if not piece:
            break
        said += piece
    os.close(ours)
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(child, 0)
    return json.loads(said) if said else None


@contextlib.contextmanager
def looking_as(account: Account | None) -> Iterator[None]:
    """Look at files as that account, in this thread alone; nothing may be made there meanwhile."""
    if not is_users(account):
        yield
        return
    _libc.setfsgid(account.gid)
    _libc.setfsuid(account.uid)  # which takes away what root may do with files
    try:
        yield
    finally:
        _libc.setfsuid(0)
        _libc.setfsgid(0)


class Identity(TypedDict, total=False):
    """Options of `subprocess` that start a program as another user."""

    user: int
    group: int
    extra_groups: list[int]


def identity(account: Account | None) -> Identity:
    """For programs of the machine that work on what is that account's."""
    if not is_users(account):
        return {}
    groups = os.getgrouplist(account.name, account.gid)
    return {"user": account.uid, "group": account.gid, "extra_groups": groups}


def run_as(account: Account, argv: Sequence[str]) -> None:
    """Run a program of the machine as that account; OSError where it fails."""
    try:
        subprocess.run(
            argv,
            **identity(account),
            env={"PATH": os.defpath, "HOME": account.home},
            cwd="/",
            umask=0o077,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=COPY_S,
            check=True,
        )
    except subprocess.CalledProcessError as failed:
        said = failed.stderr.decode(errors="replace").strip()
        raise OSError(errno.EIO, f"as {account.name}: {said or failed}") from None
    except subprocess.TimeoutExpired as late:
        raise OSError(errno.ETIMEDOUT, f"as {account.name}: {late}") from None


def open_job_folder(job_folder: Path) -> None:
    """Make the folder of a job whose user is not ours: what is in it may be the user's, itself it is ours."""
    job_folder.mkdir(mode=CLOSED, parents=True, exist_ok=True)
    for folder in (job_folder, job_folder.parent):
        if stat.S_IMODE(folder.stat().st_mode) != OPEN:
            folder.chmod(OPEN)


def give_folder(path: str | os.PathLike[str], account: Account) -> None:
    """A folder of this account's own, closed to others, in one that only we can change; links are refused."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(folder).st_uid != account.uid:
            os.fchown(folder, account.uid, account.gid)
    finally:
        os.close(folder)
