"""A few numbers that matter, each with its name."""

from __future__ import annotations

from collections.abc import Mapping

from nicegui import ui

from trainmaster.text.control_characters import visible_line


class Tiles:
    """Numbers side by side; `show` changes them in place."""

    def __init__(self, *names: str) -> None:
        self._values: dict[str, ui.label] = {}
        with ui.row().classes("w-full gap-3"):
            for name in names:
                with ui.card().props("flat bordered").classes("px-3 py-2 gap-0 min-w-28"):
                    ui.label(name).classes("text-xs opacity-70")
                    self._values[name] = ui.label().classes("text-lg font-medium")

    def show(self, values: Mapping[str, str]) -> None:
        for name, value in values.items():
            self._values[name].set_text(visible_line(value))
