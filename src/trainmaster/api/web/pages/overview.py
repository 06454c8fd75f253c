"""The first page: what the cluster does now, and what needs a person."""

from __future__ import annotations

from nicegui import ui

from trainmaster.api.web.frame import frame
from trainmaster.api.web.viewer import Manager


def add(manager: Manager) -> None:
    @ui.page("/")
    async def overview() -> None:
        viewer = await manager.viewer()
        status = await viewer.api.get("/status")
        with frame(viewer, "Overview"):
            ui.label(f"{status['role']}")
