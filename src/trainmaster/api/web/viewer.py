"""Who looks at a page: a client of the API with the session of their browser."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx
from nicegui import ui

from trainmaster.api.headers import SESSION_HEADER
from trainmaster.api.web.api_client import ANSWER_S, ApiClient

CONNECTIONS = httpx.Limits(max_connections=None, max_keepalive_connections=20)
"""As many as there are open pages that follow something; the manager has the limits."""
TROUBLE_S = 10.0


class Trouble:
    """Why the manager can change nothing now: the same for all, so that one page asks for the others too."""

    def __init__(self) -> None:
        self.said = ""
        """Empty: nothing is wrong."""
        self._asked_s = 0.0

    def take(self, status: Mapping[str, Any]) -> None:
        """From the answer to `/status`."""
        self.said = status["trouble"] or ""
        self._asked_s = time.monotonic()

    async def look(self, api: ApiClient) -> str:
        """As of a few seconds ago at most."""
        if time.monotonic() - self._asked_s > TROUBLE_S:
            self._asked_s = time.monotonic()  # others need not ask meanwhile
            self.take(await api.get("/status"))
        return self.said


@dataclass(frozen=True, slots=True)
class Viewer:
    """A person with a browser."""

    user: str
    role: str
    api: ApiClient
    policy: str
    """The one in force; empty: not known."""
    trouble: Trouble

    @property
    def may_change(self) -> bool:
        return self.role != "viewer"

    @property
    def is_operator(self) -> bool:
        return self.role in ("operator", "admin")


class Manager:
    """Where the manager answers, for everybody who looks."""

    def __init__(self, socket: str) -> None:
        """A socket on which only sessions count."""
        self._connections = httpx.AsyncClient(
            base_url="http://localhost",
            transport=httpx.AsyncHTTPTransport(uds=socket, limits=CONNECTIONS),
            timeout=ANSWER_S,
        )
        self._trouble = Trouble()

    async def viewer(self) -> Viewer:
        """Of the page that is being built."""
        session = ui.context.client.request.headers.get(SESSION_HEADER, "")
        api = ApiClient(self._connections, session)
        caller, status = await asyncio.gather(api.get("/caller"), api.get("/status"))
        self._trouble.take(status)
        return Viewer(caller["user"], caller["role"], api, status["policy"] or "", self._trouble)
