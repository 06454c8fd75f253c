"""Keeps a page as it is now: asks again while it is looked at, and says when the manager does not answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from nicegui import ui

from trainmaster.api.web.api_client import Refused
from trainmaster.text.control_characters import visible_line

Refresh = Callable[[], Awaitable[None]]


async def keep_fresh(refresh: Refresh, every_s: float) -> Refresh:
    """Now, and again and again; the answer asks at once, without ever raising."""
    trouble = ui.label().classes("w-full rounded px-3 py-2 bg-red-700 text-white break-words")
    trouble.set_visibility(False)
    trouble.move(target_index=0)

    async def ask() -> None:
        try:
            await refresh()
        except Refused as refusal:
            trouble.set_text(visible_line(str(refusal)))
            trouble.set_visibility(True)
        else:
            trouble.set_visibility(False)

    await ask()
    ui.timer(every_s, ask, immediate=False)
    return ask
