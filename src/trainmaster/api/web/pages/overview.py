"""The first page: what the cluster does now, and what needs a person."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

from nicegui import ui

from trainmaster.api.web.api_client import Refused
from trainmaster.api.web.frame import frame
from trainmaster.api.web.live_feed import feed_of
from trainmaster.api.web.overview.attention import Attention
from trainmaster.api.web.overview.gpu_grid import GpuGrid
from trainmaster.api.web.overview.tile import Tile
from trainmaster.api.web.parts.gpu_timeline import GpuTimeline
from trainmaster.api.web.parts.job_table import JobTable
from trainmaster.api.web.parts.queue_bars import QueueBars
from trainmaster.api.web.parts.window import Window
from trainmaster.api.web.viewer import Manager, Viewer
from trainmaster.text.formatting import short_length

MOST_LANES = 64
"""Devices of the timeline; a larger cluster shows some of its nodes, and others by choice."""
MOST_JOBS = 15
LEGEND = "hatched: suspended · ▸ migrated · ‖ resized · red edge: failed"
LIVE = "pending,running,suspended"
PLACES = "".join(
    f".tm-place-{place} {{ order: {place}; flex: none !important }} " for place in range(6)
)
PHONE = f"@media (max-width: 700px) {{ .tm-band {{ display: contents }} {PLACES}}}"
CARD = "gap-1 w-full"
CARD_STYLE = "border: 1px solid rgba(128, 128, 128, .28); border-radius: 6px; padding: 8px 12px; min-width: 0"


def add(manager: Manager) -> None:
    @ui.page("/")
    async def overview() -> None:
        viewer = await manager.viewer()
        with frame(viewer, "Overview"):
            OverviewPage(viewer).build()


@contextmanager
def card(title: str, place: int, grows: str) -> Iterator[ui.row]:
    """A box with a title; what is put into the row stands to the right of it. On a phone the boxes are in
    the order of their places."""
    with ui.column().classes(f"{CARD} tm-place-{place}").style(f"{CARD_STYLE}; flex: {grows}"):
        with ui.row().classes("w-full items-center gap-2") as head:
            ui.label(title).classes("text-sm font-bold")
        yield head


def scrolling(height: int) -> ui.element:
    """What is inside scrolls where it is higher."""
    return ui.element("div").classes("w-full").style(f"max-height: {height}px; overflow-y: auto")


class OverviewPage:
    """What one window shows."""

    def __init__(self, viewer: Viewer) -> None:
        self._viewer = viewer
        self._grid: dict[str, Any] | None = None
        self._timeline: dict[str, Any] | None = None
        self._is_mine = True
        self._nodes: list[str] = []
        self._chosen: str | None = None

    def build(self) -> None:
        ui.add_css(PHONE)
        self._window = Window(feed_of(self._viewer))
        with ui.row().classes("w-full gap-2"):
            self._tiles()
        self._daily = ui.link("", "/whatif").classes("tm-link text-sm").mark("daily")
        self._daily.set_visibility(False)
        with ui.row().classes("w-full gap-2 items-stretch tm-band"):
            self._gpu_card()
            with card("Needs attention", 1, "2 1 320px"), scrolling(232):
                self._attention = Attention()
        with ui.row().classes("w-full gap-2 items-stretch tm-band"):
            self._timeline_card()
            with card("Queues", 3, "2 1 320px"), scrolling(200):
                self._queues = QueueBars()
        self._job_card()
        self._window.watch("overview", "/overview", self._show_overview)
        self._window.watch("grid", "/grid", self._show_grid)
        self._follow_jobs()
        ui.timer(0.1, self._show_daily, once=True)

    async def _show_daily(self) -> None:
        """Whether another policy would have done better, once a day of history was compared."""
        try:
            said = await self._viewer.api.get("/whatif/daily")
        except Refused:  # an earlier manager, or a standby
            return
        self._daily.set_text(said["sentence"])
        self._daily.set_visibility(said["state"] == "ready")

    def _gpu_card(self) -> None:
        with card("GPUs", 4, "3 1 480px") as head:
            self._squares = GpuGrid()
        with head:
            ui.space()
            self._policy = ui.link("", "/lab").classes("tm-link text-sm")

    def _timeline_card(self) -> None:
        with card("Last 6 hours", 5, "3 1 480px") as head:
            self._bars = GpuTimeline()
        with head:
            ui.label(LEGEND).classes("text-xs opacity-70")
            ui.space()
            self._choice = ui.select([], on_change=self._choose).props("dense borderless")
            self._choice.set_visibility(False)

    def _job_card(self) -> None:
        empty = "No job of yours waits or runs: `trainmaster submit` sends one."
        with (
            card("Jobs", 2, "0 0 auto") as head,
            ui.element("div").classes("w-full overflow-x-auto"),
        ):
            self._jobs = JobTable(self._viewer, empty)
        with head:
            ui.space()
            toggle = ui.toggle({True: "Mine", False: "All"}, value=True)
            toggle.props("dense no-caps size=sm").on_value_change(
                lambda event: self._show_jobs_of(is_mine=bool(event.value))
            )
            ui.link("All pages", "/jobs").classes("tm-link text-sm")

    def _tiles(self) -> None:
        running, pending = "/jobs?state=running", "/jobs?state=pending"
        self._gpus = Tile("GPUs used", "/nodes", "gpus")
        self._util = Tile("Utilisation", "/nodes", "utilisation")
        self._running = Tile("Running", running, "running")
        self._pending = Tile("Waiting", pending, "pending")
        self._suspended = Tile("Suspended", "/jobs?state=suspended", "suspended")
        self._idle = Tile("Held but idle", "/nodes", "idle")
        self._lost = Tile("Work lost today", "/usage", "lost")

    def _show_overview(self, said: dict[str, Any]) -> None:
        self._policy.set_text(f"Policy: {said['policy']}")
        self._policy.props["href"] = f"/lab?policy={quote(said['policy'], safe='')}"
        free = said["gpus"] - said["gpus_used"]
        self._gpus.show(f"{said['gpus_used']:,} of {said['gpus']:,}", f"{free:,} free")
        measured = f"of {said['gpus_measured']:,} measured"
        if said["utilisation"] is None:
            self._util.show("–", "no held GPU is measured")
        else:
            self._util.show(f"{said['utilisation']:.0%}", measured)
        self._running.show(f"{said['running']:,}")
        self._pending.show(f"{said['pending']:,}", _oldest(said["oldest_wait"]))
        self._suspended.show(f"{said['suspended']:,}")
        if said["gpus_measured"]:
            self._idle.show(f"{said['gpus_idle']:,}", "for 5 min and longer")
        else:
            self._idle.show("–", "no held GPU is measured")
        self._lost.show(f"{said['lost_gpu_hours']:.2f}", "GPU-hours")
        self._attention.show(said)
        self._queues.show(said["queues"], said["gpus"], is_obeyed=said["obeys_queues"])

    def _show_grid(self, said: dict[str, Any]) -> None:
        self._grid = said
        self._squares.show(said)
        nodes = [node["name"] for node in said["nodes"]]
        if nodes != self._nodes:
            self._nodes = nodes
            total = sum(node["devices"] for node in said["nodes"])
            self._chosen = None if total <= MOST_LANES else nodes[0]
            self._choice.set_options(nodes, value=self._chosen)
            self._choice.set_visibility(self._chosen is not None)
            self._follow_timeline()
        elif self._timeline is not None:
            self._draw_timeline()

    def _choose(self, event: Any) -> None:
        if event.value != self._chosen and event.value is not None:
            self._chosen = event.value
            self._follow_timeline()

    def _follow_timeline(self) -> None:
        self._window.watch("timeline", "/timeline", self._show_timeline, node=self._chosen)

    def _show_timeline(self, said: dict[str, Any]) -> None:
        self._timeline = said
        self._draw_timeline()

    def _draw_timeline(self) -> None:
        assert self._grid is not None
        assert self._timeline is not None
        lanes = [
            f"{node['name']}:{number}"
            for node in self._grid["nodes"]
            if self._chosen in (None, node["name"])
            for number in range(node["devices"])
        ]
        self._bars.show(self._timeline, lanes, _suspended(self._grid))

    def _show_jobs_of(self, *, is_mine: bool) -> None:
        self._is_mine = is_mine
        self._follow_jobs()

    def _follow_jobs(self) -> None:
        user = {"user": self._viewer.user} if self._is_mine else {}
        filters = {"state": LIVE, **user}

        async def show(answer: dict[str, Any]) -> None:
            await self._jobs.show(answer, time.time(), filters)

        self._window.watch("jobs", "/jobs", show, limit=MOST_JOBS, fold="true", **filters)


def _oldest(wait: dict[str, Any] | None) -> str:
    if wait is None:
        return ""
    why = f": {wait['sentence']}" if wait["sentence"] else ""
    return f"job {wait['job']}, {short_length(wait['seconds'])}{why}"


def _suspended(grid: dict[str, Any]) -> dict[str, list[str]]:
    """By job: the devices that it is suspended on, in memory."""
    names = [
        f"{node['name']}:{number}" for node in grid["nodes"] for number in range(node["devices"])
    ]
    found: dict[str, list[str]] = {}
    for device, job, _, how in grid["held"]:
        if how == 1 and job is not None:
            found.setdefault(grid["jobs"][job]["id"], []).append(names[device])
    return found
