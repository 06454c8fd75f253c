"""Who looks at a page: a client of the API with the session of their browser."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass

import httpx
from nicegui import ui

from trainmaster.api.headers import SESSION_HEADER
from trainmaster.api.web.api_client import ANSWER_S, ApiClient

TOKEN = "TRAINMASTER_PAGE_TOKEN"
"""Of everybody who looks, where the page is tried without its manager's sessions."""


@dataclass(frozen=True, slots=True)
class Viewer:
    """A person with a browser."""

    user: str
    role: str
    api: ApiClient
    policy: str = ""
    """The one in force."""
    trouble: str = ""
    """Why nothing can be changed now."""

    @property
    def may_change(self) -> bool:
        return self.role != "viewer"

    @property
    def is_operator(self) -> bool:
        return self.role in ("operator", "admin")


class Manager:
    """Where the manager answers, for everybody who looks."""

    def __init__(self, url: str, socket: str | None = None) -> None:
        transport = httpx.AsyncHTTPTransport(uds=socket) if socket else None
        self._connections = httpx.AsyncClient(base_url=url, transport=transport, timeout=ANSWER_S)

    async def viewer(self) -> Viewer:
        """Of the page that is being built."""
        request = ui.context.client.request
        token = os.environ.get(TOKEN)
        shown = {"Authorization": f"Bearer {token}"} if token else {}
        if SESSION_HEADER in request.headers and not token:
            shown = {SESSION_HEADER: request.headers[SESSION_HEADER]}
        api = ApiClient(self._connections, shown)
        caller, status = await asyncio.gather(api.get("/caller"), api.get("/status"))
        policy, trouble = status["policy"] or "", status["trouble"] or ""
        return Viewer(caller["user"], caller["role"], api, policy, trouble)
