"""The user at the other end of a TCP connection within this machine, as the kernel knows it.

The kernel is asked for that one socket (sock_diag(7), inet_diag), which takes as long however many there are.
A kernel that cannot be asked so has a table of all of them.
"""

from __future__ import annotations

import socket
import struct
from pathlib import Path

from starlette.types import Scope

SOCKETS = {socket.AF_INET: Path("/proc/net/tcp"), socket.AF_INET6: Path("/proc/net/tcp6")}
"""The sockets of this machine, with the users that have them."""
NOBODY = -1
"""No user: of a connection that its process has closed, which the kernel gives to root."""
OWNER, INODE = 7, 9
"""The places of a socket's user and inode in its row; a closed one has the inode 0."""
NETLINK_SOCK_DIAG, BY_FAMILY = 4, 20
HEAD = struct.Struct("=IHHII")
ANY_STATE = ANY_DEVICE = ANY_COOKIE = 0xFFFFFFFF
ANSWERED = HEAD.size + 64
"""Where user and inode begin in an answer: after family, state, addresses, timers and queues."""
End = tuple[str, int | None]
"""Host and port."""
NOWHERE: End = ("", None)


def peer_uid(scope: Scope) -> int | None:
    """The user whose process is at the other end of a connection within this machine; None: unknown.

    Whoever sends a request and closes the connection at once is NOBODY.
    """
    client, server = scope.get("client"), scope.get("server")
    if not client or not server:
        return None
    found = kernel_uid(client, server)
    return _uid_in_table(client, server) if found is None else found


def kernel_uid(client: End, server: End) -> int | None:
    """The same by asking the kernel alone; None also where it cannot be asked."""
    family = socket.AF_INET6 if ":" in client[0] else socket.AF_INET
    try:
        ports = struct.pack("!HH", client[1] or 0, server[1] or 0)
        hosts = b"".join(
            socket.inet_pton(family, host).ljust(16, b"\0") for host in (client[0], server[0])
        )
        state = struct.pack("=BBBBI", family, socket.IPPROTO_TCP, 0, 0, ANY_STATE)
        which = ports + hosts + struct.pack("=III", 0, ANY_COOKIE, ANY_COOKIE)
        size = HEAD.size + len(state) + len(which)
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as line:
            line.send(HEAD.pack(size, BY_FAMILY, 1, 0, 0) + state + which)
            answer = line.recv(4096, socket.MSG_DONTWAIT)
        if HEAD.unpack_from(answer)[1] != BY_FAMILY:  # there is no such socket here
            return None
        uid, inode = struct.unpack_from("=II", answer, ANSWERED)
    except (OSError, ValueError, struct.error):
        return None
    return uid if inode else NOBODY


def _uid_in_table(client: End, server: End) -> int | None:
    family = socket.AF_INET6 if ":" in client[0] else socket.AF_INET
    try:
        wanted = f"{_hex(family, *client)} {_hex(family, *server)}"
        rows = SOCKETS[family].read_text().splitlines()[1:]
    except (OSError, ValueError):
        return None
    found = (row.split() for row in rows if wanted in row)
    owners = (int(fields[OWNER]) if int(fields[INODE]) else NOBODY for fields in found)
    return next(owners, None)


def _hex(family: socket.AddressFamily, host: str, port: int | None) -> str:
    """An address as the kernel writes it: 127.0.0.1:8470 is 0100007F:2116."""
    packed = socket.inet_pton(family, host)
    words = struct.unpack(f"={len(packed) // 4}I", packed)
    return f"{''.join(f'{word:08X}' for word in words)}:{port or 0:04X}"
