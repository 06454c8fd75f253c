"""Finds out who asks, before anything else looks at a request."""

from __future__ import annotations

import os

from starlette.types import ASGIApp, Receive, Scope, Send

from trainmaster.api.caller import Caller, Role
from trainmaster.api.peer import SCOPE, Peer, ourselves, user_name

ROOT = 0


class Identify:
    """Gives every request its caller."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope.setdefault("state", {})["caller"] = _caller(scope)
        await self._app(scope, receive, send)


def _caller(scope: Scope) -> Caller:
    peer: Peer | None = scope.get(SCOPE)
    if peer is None:  # over TCP everyone is the manager's own user until there are tokens
        return Caller(user_name(os.geteuid()), Role.ADMIN, None, "token")
    return local_caller(peer)


def local_caller(peer: Peer) -> Caller:
    """Who asks over the Unix socket: the manager's own user and root may do everything."""
    is_admin = peer.uid in (ourselves().uid, ROOT)
    role = Role.ADMIN if is_admin else Role.USER
    return Caller(user_name(peer.uid), role, peer.uid, "socket", peer.pid)
