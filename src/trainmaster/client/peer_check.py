"""Whose program answers: the kernel is asked before anything is sent to it.

A port above 1024 is anybody's, and so is a name in /tmp: after a manager has ended, another user's program
can listen there. What commands send holds tokens and the environment of jobs, so it goes only to a program
of the caller, of root, or of a user that the caller has named.
"""

from __future__ import annotations

import os
import pwd
import socket
import stat
import struct
from collections.abc import Collection, Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from trainmaster.client.listening_sockets import Listener, listeners_at
from trainmaster.errors import Failed

ROOT = 0
PROBE_S = 2.0
CREDENTIALS = struct.Struct("3i")
"""Process, user and group, as SO_PEERCRED has them."""
ANYBODY = stat.S_IWOTH
GROUP = stat.S_IWGRP


class Stranger(Failed):
    """Another user's program answers, or could have been put there; nothing was sent to it."""


class OtherUsersProgram(Stranger):
    """It answers where a manager is expected."""


class Peer(NamedTuple):
    """A process that listens on a Unix socket, as the kernel knows it."""

    pid: int
    uid: int
    gid: int


def trusted(owner: int | None = None) -> frozenset[int]:
    """The users whose programs may be asked: oneself, root, and one that was named."""
    return frozenset({os.geteuid(), ROOT} | ({owner} if owner is not None else set()))


def name_of(uid: int) -> str:
    """A user for people."""
    try:
        return f"user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"user {uid}"


# -- Unix sockets ----------------------------------------------------------------------------------------


def peer_of(connection: socket.socket) -> Peer:
    """Who listens at the other end of a Unix socket."""
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    return Peer(*CREDENTIALS.unpack(found))


def check_peer(connection: socket.socket, where: str, users: Collection[int]) -> None:
    uid = peer_of(connection).uid
    if uid not in users:
        raise _listens(where, uid)


def listening_process(path: Path, owner: int | None = None) -> int | None:
    """The process of a trusted user that listens on a Unix socket; None if none does."""
    users = trusted(owner)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(PROBE_S)
        try:
            check_path(path, users)
            probe.connect(str(path))
            check_peer(probe, str(path), users)
        except (OSError, Stranger):
            return None
        return peer_of(probe).pid


def check_path(path: Path, users: Collection[int]) -> None:
    """Stranger where another user could have put this file there; OSError where it is not there."""
    stated = Path(os.path.abspath(path))
    for each in dict.fromkeys((*_parts(stated), *_parts(Path(os.path.realpath(stated))))):
        found = os.lstat(each)
        if found.st_uid not in users:
            raise Stranger(
                f"{path} is not used: {each} belongs to {name_of(found.st_uid)}, who could put another"
                " program there."
            )
        if stat.S_ISDIR(found.st_mode) and _is_open(found):
            raise Stranger(
                f"{path} is not used: other users may write into {each}, and could put another program"
                f" there; `chmod go-w {each}` ends that."
            )


def _parts(path: Path) -> Iterator[Path]:
    yield from reversed(path.parents)
    yield path


def _is_open(folder: os.stat_result) -> bool:
    """Whether others may exchange what is in it: not where it is sticky, as /tmp is."""
    if folder.st_mode & stat.S_ISVTX:
        return False
    if folder.st_mode & ANYBODY:
        return True
    return bool(folder.st_mode & GROUP) and not _is_private_group(folder.st_uid, folder.st_gid)


def _is_private_group(uid: int, gid: int) -> bool:
    """Whether a group has its user alone, as many systems make one for each: a umask of 002 is usual then."""
    import grp

    try:
        user, group = pwd.getpwuid(uid), grp.getgrgid(gid)
    except KeyError:
        return gid == ROOT and uid == ROOT
    return user.pw_gid == gid and set(group.gr_mem) <= {user.pw_name}


# -- TCP on this machine ---------------------------------------------------------------------------------


def connect_checked(host: str, port: int, users: Collection[int], timeout: float) -> socket.socket:
    """A connection to a program of one of these users on this machine; Stranger if it is another's.

    The listening socket has to be the same before and after: another program may take the port in between.
    """
    last: OSError | None = None
    for *_, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        reached = ip_address(str(address[0]).partition("%")[0])
        if not reached.is_loopback:
            raise Stranger(
                f"http://{host}:{port} is on another machine and not encrypted: use https://, or reach it"
                f" through `ssh -L {port}:127.0.0.1:{port} {host}`."
            )
        before = listeners_at(reached, port)
        try:
            found = socket.create_connection((str(address[0]), port), timeout)
        except OSError as error:
            last = error
            continue
        try:
            _check_listeners(f"http://{host}:{port}", before, listeners_at(reached, port), users)
        except Stranger:
            found.close()
            raise
        return found
    raise last or ConnectionRefusedError(f"{host} has no address")


def _check_listeners(
    where: str, before: Collection[Listener], after: Collection[Listener], users: Collection[int]
) -> None:
    for each in (*before, *after):
        if each.uid not in users:
            raise _listens(where, each.uid)
    if not before or before != after:
        raise Stranger(
            f"Nothing was sent to {where}: this system does not say whose program listens there; use the"
            " manager's socket (--url unix:PATH, --data DIR) or https://."
        )


def _listens(where: str, uid: int) -> Stranger:
    return OtherUsersProgram(
        f"Nothing was sent to {where}: a program of {name_of(uid)} listens there, not yours."
    )
