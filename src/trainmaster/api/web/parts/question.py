"""A question before something is changed, and what became of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from nicegui import ui

from trainmaster.api.web.api_client import Refused
from trainmaster.text.control_characters import visible_line


async def is_wanted(question: str, what: str, yes: str, *, is_grave: bool = False) -> bool:
    """Whether the reader says yes; what they give instead of an answer is a no."""
    with ui.dialog() as dialog, ui.card().classes("w-96 max-w-full"):
        ui.label(visible_line(question)).classes("text-lg font-medium break-words")
        ui.label(visible_line(what)).classes("text-sm break-words")
        with ui.row().classes("w-full justify-end gap-2"):
            ui.button("Not now", color=None, on_click=lambda: dialog.submit(False)).props(
                "flat no-caps"
            )
            colour = "negative" if is_grave else "primary"
            ui.button(yes, color=colour, on_click=lambda: dialog.submit(True)).props("no-caps")
    answer = await dialog
    dialog.delete()
    return answer is True


async def is_done(do: Callable[[], Awaitable[Any]], said: str) -> bool:
    """Do it, and say so; or say why not."""
    try:
        await do()
    except Refused as refusal:
        say_refused(refusal)
        return False
    ui.notify(visible_line(said), type="positive")
    return True


def say_refused(refusal: Refused) -> None:
    ui.notify(visible_line(str(refusal)), type="negative", timeout=10_000, close_button=True)
