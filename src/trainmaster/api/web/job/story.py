"""What happened to a job, as a timeline, the newest first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nicegui import ui

from trainmaster.api.web.parts.plain_text import shown
from trainmaster.text.formatting import utc_time

FIRST = 30
"""Entries that are drawn at first."""
PLAY, PAUSE, RESIZE = "play_arrow", "pause", "open_in_full"
LOOKS = {
    "submitted": ("add", "grey-6"),
    "launch ordered": (PLAY, "grey-7"),
    "started": (PLAY, "green-8"),
    "thaw ordered": (PLAY, "grey-7"),
    "resumed": (PLAY, "green-8"),
    "released": (PLAY, "grey-7"),
    "held": (PAUSE, "orange-9"),
    "freeze ordered": (PAUSE, "orange-7"),
    "halt ordered": (PAUSE, "orange-7"),
    "suspended": (PAUSE, "orange-9"),
    "moved": ("swap_horiz", "blue-8"),
    "resize ordered": (RESIZE, "purple-5"),
    "resized": (RESIZE, "purple-7"),
    "replica lost": (RESIZE, "purple-7"),
    "saved": ("save", "teal-7"),
    "failed": ("close", "red-8"),
    "lost": ("close", "red-8"),
    "hung": ("hourglass_bottom", "red-6"),
    "end ordered": ("stop", "blue-grey-6"),
    "stopped": ("stop", "blue-grey-6"),
    "withdrawn": ("stop", "blue-grey-6"),
    "succeeded": ("check", "teal-8"),
}
"""By what happened: an icon and a colour."""
USUAL = ("circle", "grey-6")


def story_timeline(story: Sequence[Mapping[str, Any]]) -> None:
    entries = list(reversed(story))
    with ui.column().classes("w-full gap-0 text-sm") as timeline:
        for each in entries[:FIRST]:
            _entry(each)
    if len(entries) > FIRST:

        def show_all() -> None:
            more.delete()
            with timeline:
                for each in entries[FIRST:]:
                    _entry(each)

        more = ui.button(f"Show {len(entries) - FIRST:,} earlier", on_click=show_all)
        more.props("flat dense no-caps")


def _entry(entry: Mapping[str, Any]) -> None:
    """On a line that leads from one to the next."""
    icon, colour = LOOKS.get(entry["what"], USUAL)
    with ui.row(wrap=False).classes("w-full gap-3 items-stretch"):
        with ui.column().classes("gap-0 items-center"):
            ui.icon(icon, color=colour, size="18px")
            ui.element("div").classes("grow w-px bg-gray-500/40 min-h-3")
        with ui.column().classes("gap-0 pb-2 min-w-0"):
            ui.label(shown(entry["sentence"])).classes("break-words")
            ui.label(utc_time(round(entry["at_s"] * 1000))).classes("text-xs opacity-70")
