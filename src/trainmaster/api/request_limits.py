"""How many requests are answered at once; those that follow something are counted apart."""

from __future__ import annotations

import re
from collections import Counter

from starlette.types import ASGIApp, Receive, Scope, Send

from trainmaster.api.responses import LATER, error
from trainmaster.config.limits import Limits

FORWARD = re.compile(r".*/jobs/[^/]+/ports/[0-9]+")
STATUS = {"requests": 503, "submissions": 503, "followers": 429, "forwards": 429}
LASTING = frozenset({"followers", "forwards"})
"""Requests that last as long as the client likes."""


class RequestLimits:
    """Refuses a request where as many of its kind are being answered as the limit allows."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self._app = app
        self._limits = limits
        self._running: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        kind = kind_of(scope)
        most: int = getattr(self._limits, kind)
        if self._running[kind] >= most:
            said = f"{most:,} {kind} are being served already (the limit {kind}): try again later."
            await error(STATUS[kind], said, LATER)(scope, receive, send)
            return
        self._running[kind] += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._running[kind] -= 1


def kind_of(scope: Scope) -> str:
    """The limit that a request counts against."""
    path, query = scope["path"], scope["query_string"]
    if path.endswith("/changes") or (path.endswith("/logs") and b"follow=" in query):
        return "followers"
    if scope["method"] == "POST" and FORWARD.fullmatch(path):
        return "forwards"
    return "submissions" if scope["method"] == "POST" and path.endswith("/jobs") else "requests"
