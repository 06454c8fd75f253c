"""Who asked for what: one line in the manager's log for each request that may change something."""

from __future__ import annotations

from typing import Any

import structlog
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trainmaster.api.host_check import SAFE_METHODS
from trainmaster.api.tcp_peer import peer_uid

log = structlog.get_logger("trainmaster.audit")


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
