"""The database that a manager leads, in every answer: clients notice another manager at the same address."""

from __future__ import annotations

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trainmaster.api.headers import STORE_HEADER
from trainmaster.daemon.daemon import Daemon


class StoreHeader:
    """Adds the header; it is empty while the manager does not lead."""

    def __init__(self, app: ASGIApp, service: Daemon) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[STORE_HEADER] = self._service.store_name
            await send(message)

        await self._app(scope, receive, sent)
