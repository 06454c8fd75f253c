"""Who asked for what: one line in the manager's log for each request that may change something."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import structlog
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trainmaster.api.host_check import SAFE_METHODS

log = structlog.get_logger("trainmaster.audit")

SOCKETS = Path("/proc/net/tcp")
"""The sockets of this machine over IPv4, with the users that have them."""


class AuditLog:
    """Writes the line when the request has been answered."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in SAFE_METHODS:
            await self._app(scope, receive, send)
            return
        status = 0
        uid = peer_uid(scope)  # now: it may be gone when it is answered

        async def sent(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, sent)
        finally:
            log.info("request", **_said(scope, uid, status))


def _said(scope: Scope, uid: int | None, status: int) -> dict[str, Any]:
    host, port = scope.get("client") or ("", 0)
    return {
        "peer": f"{host}:{port}",
        "uid": uid,
        "user": Headers(scope=scope).get("trainmaster-user", "")[:100] or None,
        "verb": scope["method"],
        "path": scope["path"][:200],
        "status": status,
    }


def peer_uid(scope: Scope) -> int | None:
    """The user whose process is at the other end of a connection within this machine; None: unknown."""
    client, server = scope.get("client"), scope.get("server")
    if not client or not server or not server[1]:
        return None
    try:
        wanted = f"{_hex(*client)} {_hex(*server)}"
        rows = SOCKETS.read_text().splitlines()[1:]
    except (OSError, ValueError):
        return None
    found = (row.split() for row in rows if wanted in row)
    return next((int(fields[7]) for fields in found if len(fields) > 7), None)


def _hex(host: str, port: int) -> str:
    """An address as the kernel writes it: 127.0.0.1:8470 is 0100007F:2116."""
    parts = bytes(int(part) for part in host.split("."))
    return f"{struct.unpack('=I', parts)[0]:08X}:{port:04X}" if len(parts) == 4 else "-"
