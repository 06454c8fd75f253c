"""A part of a page that is drawn again when what it shows has changed, and is left alone otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, ParamSpec

from nicegui import ui

P = ParamSpec("P")


class Redrawn(Generic[P]):
    """Where it is made, it lies: `part.show(...)` calls `draw(...)` inside it."""

    def __init__(self, draw: Callable[P, None], classes: str = "w-full gap-2") -> None:
        self._draw = draw
        self._place = ui.column().classes(classes)
        self._shown: object = None

    def show(self, *args: P.args, **kwargs: P.kwargs) -> None:
        if self._shown != (args, kwargs):
            self._shown = (args, kwargs)
            self._place.clear()
            with self._place:
                self._draw(*args, **kwargs)
            self._place.set_visibility(bool(self._place.default_slot.children))
