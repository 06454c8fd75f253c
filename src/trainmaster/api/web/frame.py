"""What is around every page: its name, where else to go, who looks, light and dark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from nicegui import ui

from trainmaster.api.web.viewer import Viewer

PLACES = (
    ("Overview", "/"),
    ("Jobs", "/jobs"),
    ("Nodes", "/nodes"),
    ("Queues", "/queues"),
    ("Usage", "/usage"),
    ("What-if", "/whatif"),
    ("Policy lab", "/lab"),
)


@contextmanager
def frame(viewer: Viewer, title: str) -> Iterator[None]:
    """The content of a page goes inside."""
    ui.page_title(f"{title} · Trainmaster")
    ui.colors(primary="#0072b2")
    ui.dark_mode(value=None)  # as the reader's system is
    with ui.header().classes("items-center px-4 py-1 gap-4"):
        ui.link("Trainmaster", "/").classes("text-lg font-bold text-white no-underline")
        with ui.row().classes("gap-3"):
            for name, path in PLACES:
                ui.link(name, path).classes("text-white no-underline")
        ui.space()
        ui.label(f"{viewer.user} ({viewer.role})").classes("text-sm")
    with ui.column().classes("w-full px-4 py-3 gap-4"):
        yield
