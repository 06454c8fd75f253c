"""All jobs, with filters, page by page."""

from __future__ import annotations

import time
from typing import Any

from nicegui import ui

from trainmaster.api.web.frame import frame
from trainmaster.api.web.live_feed import feed_of
from trainmaster.api.web.parts.job_table import JobTable
from trainmaster.api.web.parts.window import Window
from trainmaster.api.web.viewer import Manager, Viewer
from trainmaster.model.job_state import JobState

PAGE = 100
LIVE = "pending,running,suspended"
STATES = {
    "": "Any state",
    LIVE: "Not ended",
    "failed,timed_out": "Failed or timed out",
    **{state.value: state.label.capitalize() for state in JobState},
}


def add(manager: Manager) -> None:
    @ui.page("/jobs")
    async def jobs(
        state: str | None = None,
        user: str = "",
        queue: str = "",
        text: str = "",
        mine: bool = False,
    ) -> None:
        """Those that have not ended, unless something else, or a name, is looked for."""
        viewer = await manager.viewer()
        if state is None:
            state = "" if text else LIVE
        with frame(viewer, "Jobs"):
            JobsPage(viewer, state, user, queue, text, is_mine=mine).build()


class JobsPage:
    """What one window shows."""

    def __init__(
        self, viewer: Viewer, state: str, user: str, queue: str, text: str, *, is_mine: bool
    ) -> None:
        self._viewer = viewer
        self._asked = {"state": state, "user": user, "queue": queue, "text": text}
        self._is_mine = is_mine
        self._pages: list[str | None] = [None]
        """Where each page up to this one begins."""
        self._next: str | None = None

    def build(self) -> None:
        self._window = Window(feed_of(self._viewer))
        with ui.row().classes("w-full items-center gap-3"):
            states = STATES | (
                {} if self._asked["state"] in STATES else {self._asked["state"]: "Chosen"}
            )
            self._field(ui.select(states, label="State"), "state").classes("w-44")
            text = self._field(ui.input("Name or id").props("clearable debounce=400"), "text")
            text.classes("w-52")
            user = self._field(ui.input("User").props("clearable debounce=400"), "user")
            user.classes("w-36")
            queue = self._field(ui.input("Queue").props("clearable debounce=400"), "queue")
            queue.classes("w-36")
            mine = ui.switch("Mine", value=self._is_mine)
            mine.on_value_change(lambda event: self._change_mine(bool(event.value)))
            user.bind_enabled_from(mine, "value", backward=lambda value: not value)
            ui.space()
            self._counts = ui.label().classes("text-sm opacity-70")
        self._notes = ui.column().classes("w-full gap-1")
        with ui.element("div").classes("w-full overflow-x-auto"):
            self._table = JobTable(self._viewer, "No job matches.")
        with ui.row().classes("w-full items-center gap-2"):
            self._back = ui.button("Newer", icon="chevron_left", on_click=self._go_back)
            self._onward = ui.button("Older", icon="chevron_right", on_click=self._go_on)
            self._where = ui.label().classes("text-sm opacity-70")
            for button in (self._back, self._onward):
                button.props("flat dense no-caps")
        self._follow()

    def _field(self, field: Any, name: str) -> Any:
        field.props("dense outlined").set_value(self._asked[name])
        field.on_value_change(lambda event: self._change(name, event.value or ""))
        return field

    def _filters(self) -> dict[str, Any]:
        asked = {name: value for name, value in self._asked.items() if value}
        return asked | ({"user": self._viewer.user} if self._is_mine else {})

    def _query(self) -> dict[str, Any]:
        begin = self._pages[-1]
        found = self._filters() | {"limit": PAGE, "fold": "true"}
        return found if begin is None else found | {"before": begin}

    def _change(self, name: str, value: str) -> None:
        self._asked[name] = value
        self._restart()

    def _change_mine(self, is_mine: bool) -> None:
        self._is_mine = is_mine
        self._restart()

    def _restart(self) -> None:
        self._pages = [None]
        self._follow()

    def _go_on(self) -> None:
        if self._next is not None:
            self._pages.append(self._next)
            self._follow()

    def _go_back(self) -> None:
        if len(self._pages) > 1:
            self._pages.pop()
            self._follow()

    def _follow(self) -> None:
        self._window.watch("jobs", "/jobs", self._show, **self._query())

    async def _show(self, answer: dict[str, Any]) -> None:
        await self._table.show(answer, time.time(), self._filters())
        self._next = answer["next"]
        counted = [(state, answer["counts"].get(state.value, 0)) for state in JobState]
        self._counts.set_text(
            ", ".join(f"{count:,} {state.label}" for state, count in counted if count)
        )
        self._back.set_enabled(len(self._pages) > 1)
        self._onward.set_enabled(self._next is not None)
        self._where.set_text(f"Page {len(self._pages)}")
        self._say(answer["notes"])

    def _say(self, notes: list[str]) -> None:
        if notes == getattr(self, "_said", None):
            return
        self._said = notes
        self._notes.clear()
        with self._notes:
            for note in notes:
                ui.label(note).classes("text-sm text-warning")
