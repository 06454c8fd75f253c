"""The user at the other end of a TCP connection within this machine, as the kernel knows it."""

from __future__ import annotations

import socket
import struct
from pathlib import Path

from starlette.types import Scope

SOCKETS = {socket.AF_INET: Path("/proc/net/tcp"), socket.AF_INET6: Path("/proc/net/tcp6")}
"""The sockets of this machine, with the users that have them."""
NOBODY = -1
"""No user: of a connection that its process has closed, which the tables give to root."""
OWNER, INODE = 7, 9
"""The places of a socket's user and inode in its row; a closed one has the inode 0."""


def peer_uid(scope: Scope) -> int | None:
    """The user whose process is at the other end of a connection within this machine; None: unknown.

    Whoever sends a request and closes the connection at once is NOBODY.
    """
    client, server = scope.get("client"), scope.get("server")
    return None if not client or not server else uid_between(tuple(client), tuple(server))


def uid_between(client: tuple[str, int], server: tuple[str, int | None]) -> int | None:
    """The same of a connection from `client` to `server`, host and port of each."""
    if not server[1]:
        return None
    family = socket.AF_INET6 if ":" in client[0] else socket.AF_INET
    try:
        wanted = f"{_hex(family, *client)} {_hex(family, *server)}"
        rows = SOCKETS[family].read_text().splitlines()[1:]
    except (OSError, ValueError):
        return None
    found = (row.split() for row in rows if wanted in row)
    owners = (int(fields[OWNER]) if int(fields[INODE]) else NOBODY for fields in found)
    return next(owners, None)


def _hex(family: socket.AddressFamily, host: str, port: int) -> str:
    """An address as the kernel writes it: 127.0.0.1:8470 is 0100007F:2116."""
    packed = socket.inet_pton(family, host)
    words = struct.unpack(f"={len(packed) // 4}I", packed)
    return f"{''.join(f'{word:08X}' for word in words)}:{port:04X}"
