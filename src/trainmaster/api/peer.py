"""The process at the other end of a Unix socket, as the kernel knows it."""

from __future__ import annotations

import os
import socket
import struct
from asyncio import BaseTransport
from dataclasses import dataclass

from starlette.types import ASGIApp, Receive, Scope, Send

SCOPE = "trainmaster.peer"
ROOT = 0
"""The user that may do everything."""
CREDENTIALS = struct.Struct("3i")


@dataclass(frozen=True, slots=True)
class Peer:
    """Its process, user and group when it connected."""

    pid: int
    uid: int
    gid: int


def peer_of(transport: BaseTransport) -> Peer | None:
    """Who is at the other end of a connection; None over TCP."""
    sock = transport.get_extra_info("socket")
    if sock is None or sock.family != socket.AF_UNIX:
        return None
    said = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    return Peer(*CREDENTIALS.unpack(said))


def ourselves() -> Peer:
    """This process, as it would connect."""
    return Peer(os.getpid(), os.geteuid(), os.getegid())


class FromPeer:
    """An application that is told which process asks."""

    def __init__(self, app: ASGIApp, peer: Peer) -> None:
        self._app = app
        self._peer = peer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app({**scope, SCOPE: self._peer}, receive, send)
