"""What a page follows while its window is open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nicegui import ui

from trainmaster.api.web.live_feed import LiveFeed, Show

TROUBLE = "trouble"


class Window:
    """The window whose page is being built: it watches while it is connected, and costs nothing after."""

    def __init__(self, feed: LiveFeed) -> None:
        self.feed = feed
        self._watched: dict[str, tuple[str, Show, dict[str, Any]]] = {}
        self._leaves: dict[str, Callable[[], None]] = {}
        self._is_open = False
        self._client = ui.context.client
        self._trouble = ui.label().classes("w-full text-sm text-negative")
        self._trouble.set_visibility(False)
        self._client.on_connect(self._open)
        self._client.on_disconnect(self._close)

    def watch(self, name: str, path: str, show: Show, **query: Any) -> None:
        """In place of what was watched under this name before."""
        self._watched[name] = path, show, query
        if self._is_open:
            self._leave(name)
            self._begin(name)

    def _open(self) -> None:
        self._is_open = True
        self._leaves[TROUBLE] = self.feed.watch_trouble(self._say)
        for name in self._watched:
            self._leave(name)
            self._begin(name)

    def _begin(self, name: str) -> None:
        path, show, query = self._watched[name]

        async def shown(value: Any) -> None:
            with self._client:
                done = show(value)
                if done is not None:
                    await done

        self._leaves[name] = self.feed.watch(path, shown, **query)

    def _say(self, trouble: str) -> None:
        with self._client:
            self._trouble.set_text(trouble)
            self._trouble.set_visibility(bool(trouble))

    def _leave(self, name: str) -> None:
        leave = self._leaves.pop(name, None)
        if leave is not None:
            leave()

    def _close(self) -> None:
        self._is_open = False
        for name in list(self._leaves):
            self._leave(name)
