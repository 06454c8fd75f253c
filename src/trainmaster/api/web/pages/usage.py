"""GPU-hours and what they cost: by queue, user, outcome and GPU type, and what was lost to what."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from nicegui import ui

from trainmaster.api.web.api_client import ApiClient, Refused
from trainmaster.api.web.frame import frame
from trainmaster.api.web.parts.question import say_refused
from trainmaster.api.web.parts.reason_sheet import ReasonSheet
from trainmaster.api.web.parts.refreshed import keep_fresh
from trainmaster.api.web.parts.sheet import Column, Sheet
from trainmaster.api.web.parts.tiles import Tiles
from trainmaster.api.web.parts.usage_over_time import UsageOverTime, bucket
from trainmaster.api.web.viewer import Manager, Viewer
from trainmaster.text.formatting import share

EVERY_S = 60.0
DAY_S = 86_400
RANGES = {1: "24 hours", 7: "7 days", 30: "30 days", 90: "90 days", 365: "a year"}
SUMS = {
    "queue": ("queue", "Queues", "/queues/{}"),
    "user": ("user", "Users", "/users/{}"),
    "outcome": ("outcome", "Outcomes", ""),
    "gpu-type": ("gpu_type", "GPU types", ""),
}
PREEMPTION = "preemption"


def add(manager: Manager) -> None:
    @ui.page("/usage")
    async def usage() -> None:
        viewer = await manager.viewer()
        with frame(viewer, "Usage"):
            page = UsagePage(viewer)
            page.ask = await keep_fresh(page.refresh, EVERY_S)


class UsagePage:
    """What was used in the time that is chosen."""

    def __init__(self, viewer: Viewer) -> None:
        self._api = viewer.api
        self.ask: Any = None
        self._bucket = "day"
        with ui.row().classes("w-full items-center gap-3"):
            self._days = ui.toggle(RANGES, value=30, on_change=self._changed).props("dense no-caps")
            said = "" if viewer.is_operator or viewer.role == "viewer" else "Of your own jobs."
            ui.label(said).classes("text-sm opacity-70")
        self._tiles = Tiles(
            "GPU-hours", "Cost", "Lost", "Lost to preemption", "Lost to failures", "Jobs"
        )
        self._unpriced = ui.label().classes("text-sm opacity-70")
        with ui.row().classes("w-full items-center gap-1"):
            ui.label("Over time").classes("text-base font-medium")
            self._csv("usage", "usage-over-time.csv", lambda: {"by": self._bucket})
        self._over_time = UsageOverTime()
        self._sheets: dict[str, Sheet] = {}
        with ui.element("div").classes("w-full grid grid-cols-1 xl:grid-cols-2 gap-4"):
            for by, (name, title, to) in SUMS.items():
                with ui.column().classes("gap-1 min-w-0"):
                    self._heading(title, "usage", f"usage-by-{by}.csv", by=by)
                    self._sheets[by] = Sheet(
                        _columns(name, to), key=name, empty="Nothing was used."
                    )
            with ui.column().classes("gap-1 min-w-0"):
                self._heading(
                    "Lost work, by what it was lost to", "usage", "lost-work.csv", by="lost-to"
                )
                self._lost = Sheet(LOST, key="lost_to", empty="No work was lost.")
            with ui.column().classes("gap-1 min-w-0"):
                self._heading("Failed runs, by reason", "failures", "failures.csv")
                whose = "jobs" if viewer.is_operator else "your own jobs"
                said = f"Their whole run time, of {whose} that were submitted in this time."
                ui.label(said).classes("text-xs opacity-70")
                self._reasons = ReasonSheet()

    def _heading(self, title: str, path: str, file: str, **query: Any) -> None:
        with ui.row().classes("items-center gap-1"):
            ui.label(title).classes("text-base font-medium")
            self._csv(path, file, lambda: query)

    def _csv(self, path: str, file: str, query: Any) -> None:
        CsvButton(self._api, f"/{path}", file, lambda: {"since": self._since, **query()})

    @property
    def _since(self) -> float:
        return time.time() - int(self._days.value) * DAY_S

    async def _changed(self) -> None:
        if self.ask is not None:
            await self.ask()

    async def refresh(self) -> None:
        since, now, days = self._since, time.time(), self._days.value
        self._bucket = bucket(since, now)
        # one after the other: each has the manager read what was charged in all that time
        reports = [await self._api.get("/usage", by=by, since=since) for by in SUMS]
        lost = await self._api.get("/usage", by="lost-to", since=since)
        failures = await self._api.get("/failures", since=since)
        if self._days.value != days:  # another time was chosen meanwhile
            return
        for by, report in zip(SUMS, reports, strict=True):
            self._sheets[by].show(_cells(row, report["total"]) for row in report["rows"])
        self._show_total(reports[0], lost)
        self._lost.show(map(_lost_cells, lost["rows"]))
        self._reasons.show_reasons(failures)
        await self._over_time.show(self._api, since, now)

    def _show_total(self, report: Mapping[str, Any], lost: Mapping[str, Any]) -> None:
        total = report["total"]
        rows = {row["lost_to"]: row["lost_gpu_hours"] for row in lost["rows"]}
        known = (PREEMPTION, "resize", "suspension", "not recorded")
        failed = sum(hours for name, hours in rows.items() if name not in known)
        is_priced = bool(total["cost"]) or not total["unpriced_gpu_hours"]
        cost = f"{total['cost']:,.2f} {report['currency']}".strip()
        self._tiles.show(
            {
                "GPU-hours": f"{total['gpu_hours']:,.2f}",
                "Cost": cost if is_priced else "no prices",
                "Lost": f"{total['lost_gpu_hours']:,.2f} GPU-h",
                "Lost to preemption": f"{rows.get(PREEMPTION, 0):,.2f} GPU-h",
                "Lost to failures": f"{failed:,.2f} GPU-h",
                "Jobs": f"{total['jobs']:,}",
            }
        )
        left = total["unpriced_gpu_hours"]
        has_note = is_priced and left >= 0.005
        self._unpriced.set_text(f"{left:,.2f} GPU-hours had no price, and are not in the cost.")
        self._unpriced.set_visibility(has_note)


LOST = (
    Column("lost_to", "lost to"),
    Column("jobs", "jobs", is_number=True),
    Column("lost_gpu_hours", "GPU-hours", is_number=True),
)


def _columns(name: str, to: str) -> tuple[Column, ...]:
    return (
        Column(name, name.replace("_", " ").replace("gpu", "GPU"), to=to),
        Column("jobs", "jobs", is_number=True),
        Column("gpu_hours", "GPU-hours", is_number=True),
        Column("part", "of all", is_number=True),
        Column("lost_gpu_hours", "lost", is_number=True),
        Column("cost", "cost", is_number=True),
    )


def _cells(row: Mapping[str, Any], total: Mapping[str, Any]) -> Mapping[str, Any]:
    part = row["gpu_hours"] / total["gpu_hours"] if total["gpu_hours"] else None
    hours = {
        name: (row[name], f"{row[name]:,.2f}") for name in ("gpu_hours", "lost_gpu_hours", "cost")
    }
    return {**row, **hours, "part": (part or 0, share(part))}


def _lost_cells(row: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**row, "lost_gpu_hours": (row["lost_gpu_hours"], f"{row['lost_gpu_hours']:,.2f}")}


class CsvButton:
    """Asks for the table as it is when it is pressed."""

    def __init__(
        self, api: ApiClient, path: str, file: str, query: Callable[[], Mapping[str, Any]]
    ) -> None:
        self._api, self._path, self._file, self._query = api, path, file, query
        made = ui.button("CSV", icon="download", on_click=self._save)
        made.props("flat dense no-caps size=sm").tooltip(f"Save as {file}")

    async def _save(self) -> None:
        try:
            text = await self._api.get(self._path, format="csv", **self._query())
        except Refused as refusal:
            say_refused(refusal)
        else:
            ui.download.content(text, self._file, "text/csv")
