"""The Unix socket of the page process: whoever asks there is who its session says, and never its peer.

The page process runs as the manager's user, who is an admin over the manager's own socket. Here it has no
rights of its own: a request without a session is one of nobody, and only the API answers.
"""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from trainmaster.api.responses import PAGES, error

SCOPE = "trainmaster.only_session"
API = "/api/"


def is_only_session(scope: Scope) -> bool:
    """Whether a request came over this socket."""
    return SCOPE in scope


class OnlySessions:
    """An application that is told that only a session counts."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not scope["path"].startswith(API):
            await error(404, PAGES[404])(scope, receive, send)
            return
        await self._app({**scope, SCOPE: True}, receive, send)
