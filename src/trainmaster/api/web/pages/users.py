"""Users: what they may have, have and used, and what became of their jobs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from nicegui import ui

from trainmaster.api.web.frame import frame
from trainmaster.api.web.parts.budget_words import budget_words, of_most
from trainmaster.api.web.parts.job_sheet import JobSheet
from trainmaster.api.web.parts.reason_sheet import ReasonSheet
from trainmaster.api.web.parts.refreshed import keep_fresh
from trainmaster.api.web.parts.sheet import Column, Sheet
from trainmaster.api.web.parts.tiles import Tiles
from trainmaster.api.web.parts.usage_over_time import UsageOverTime
from trainmaster.api.web.viewer import Manager, Viewer
from trainmaster.text.control_characters import visible_line
from trainmaster.text.formatting import ABSENT

EVERY_S = 5.0
USAGE_EVERY_S = 60.0
MONTH_S = 30 * 86_400
MOST_JOBS = 200
LIVE = "pending,running,suspended"
COLUMNS = (
    Column("user", "user", to="/users/{}"),
    Column("gpus", "GPUs", is_number=True),
    Column("running", "running jobs", is_number=True),
    Column("jobs", "jobs", is_number=True),
    Column("budget", "budget"),
    Column("gpu_hours", "GPU-hours of 30 days", is_number=True),
    Column("lost_gpu_hours", "lost", is_number=True),
)


def add(manager: Manager) -> None:
    @ui.page("/users")
    async def users() -> None:
        viewer = await manager.viewer()
        with frame(viewer, "Users"):
            ui.label(
                "Users with limits of their own, or who used GPUs in the last 30 days."
            ).classes("text-sm opacity-70")
            sheet = Sheet(COLUMNS, key="user", empty="There are none.")

            async def refresh() -> None:
                limits, usage = await asyncio.gather(
                    viewer.api.get("/user-limits"),
                    viewer.api.get("/usage", by="user", since=time.time() - MONTH_S),
                )
                stated = {each["user"]: each for each in limits["limits"] if each["user"] != "*"}
                used = {each["user"]: each for each in usage["rows"]}
                names = sorted({*stated, *used})
                sheet.show(_cells(name, stated.get(name), used.get(name)) for name in names)

            await keep_fresh(refresh, USAGE_EVERY_S)

    @ui.page("/users/{name}")
    async def user(name: str) -> None:
        viewer = await manager.viewer()
        with frame(viewer, f"User {name}"):
            with ui.row().classes("w-full items-center gap-2"):
                ui.link("Users", "/users")
                ui.label(visible_line(f"/ {name}")).classes("text-lg font-medium")
            if viewer.role == "user" and viewer.user != name:
                await _others_jobs(viewer, name)
                return
            page = UserPage(viewer, name)
            await keep_fresh(page.refresh, EVERY_S)
            await keep_fresh(page.refresh_usage, USAGE_EVERY_S)


async def _others_jobs(viewer: Viewer, name: str) -> None:
    """All that users see of each other."""
    ui.label("You see of other users' jobs only that they wait or hold GPUs.").classes("text-sm")
    sheet = JobSheet("They have none.", "user", "name", "waits", "why")

    async def refresh() -> None:
        answer = await viewer.api.get("/jobs", user=name, state=LIVE, limit=MOST_JOBS)
        sheet.show_jobs(answer["jobs"])

    await keep_fresh(refresh, EVERY_S)


def _cells(
    name: str, limits: Mapping[str, Any] | None, used: Mapping[str, Any] | None
) -> Mapping[str, Any]:
    limits, used = limits or {}, used or {}
    return {
        "user": name,
        "gpus": (limits.get("gpus", 0), _of(limits, "gpus", "max_gpus")),
        "running": (limits.get("running", 0), _of(limits, "running", "max_running")),
        "jobs": (limits.get("jobs", 0), _of(limits, "jobs", "max_jobs")),
        "budget": budget_words(limits.get("budget")) if limits.get("budget") else "",
        "gpu_hours": (used.get("gpu_hours", 0), f"{used.get('gpu_hours', 0):,.2f}"),
        "lost_gpu_hours": (used.get("lost_gpu_hours", 0), f"{used.get('lost_gpu_hours', 0):,.2f}"),
    }


def _of(limits: Mapping[str, Any], used: str, most: str) -> str:
    return of_most(limits[used], limits[most]) if limits else ""


class UserPage:
    """What changes on the page of a user."""

    def __init__(self, viewer: Viewer, name: str) -> None:
        self._api, self._name = viewer.api, name
        self._sees_failures = viewer.is_operator or viewer.user == name
        self._tiles = Tiles("GPUs", "Running", "Jobs not ended", "GPU-hours of 30 days", "Lost")
        self._budget = ui.label().classes("text-sm break-words")
        self._limits = ui.label("The limits are those of everybody without their own.")
        self._limits.classes("text-sm break-words")
        ui.label("Jobs that have not ended").classes("text-base font-medium")
        self._jobs = JobSheet("They have none.", "user")
        ui.label("GPU-hours of the last 30 days").classes("text-base font-medium")
        self._usage = UsageOverTime()
        ui.label("How their jobs ended").classes("text-base font-medium")
        self._outcomes = Sheet(
            (
                Column("outcome", "state"),
                Column("jobs", "jobs", is_number=True),
                Column("gpu_hours", "GPU-hours", is_number=True),
            ),
            key="outcome",
            empty="They used no GPU time in the last 30 days.",
        )
        if self._sees_failures:
            ui.label("Failed runs by reason").classes("text-base font-medium")
            self._reasons = ReasonSheet()

    async def refresh(self) -> None:
        answer = await self._api.get("/jobs", user=self._name, state=LIVE, limit=MOST_JOBS)
        jobs = answer["jobs"]
        self._jobs.show_jobs(jobs)
        rows = (await self._api.get("/user-limits"))["limits"]
        own = next((each for each in rows if each["user"] == self._name), None)
        general = next((each for each in rows if each["user"] == "*"), None)
        limits = own or general or {}
        running = [each for each in jobs if each["state"] == "running"]
        gpus = None if own is None else own["gpus"]
        if own is None and all(each["gpus_now"] is not None for each in running):
            gpus = sum(each["gpus_now"] for each in running)
        count = len(jobs) if own is None else own["jobs"]
        more = "+" if own is None and answer["next"] else ""
        runs = len(running) if own is None else own["running"]
        self._tiles.show(
            {
                "GPUs": ABSENT if gpus is None else of_most(gpus, limits.get("max_gpus")),
                "Running": of_most(runs, limits.get("max_running")),
                "Jobs not ended": of_most(count, limits.get("max_jobs")) + more,
            }
        )
        budget = None if own is None else own["budget"]
        self._budget.set_text(f"Budget: {budget_words(budget)}.")
        self._limits.set_visibility(own is None and general is not None)

    async def refresh_usage(self) -> None:
        now = time.time()
        since = now - MONTH_S
        outcomes = await self._api.get("/usage", by="outcome", since=since, user=self._name)
        total = outcomes["total"]
        self._tiles.show(
            {
                "GPU-hours of 30 days": f"{total['gpu_hours']:,.2f}",
                "Lost": f"{total['lost_gpu_hours']:,.2f}",
            }
        )
        self._outcomes.show(
            {**row, "gpu_hours": (row["gpu_hours"], f"{row['gpu_hours']:,.2f}")}
            for row in outcomes["rows"]
        )
        if self._sees_failures:
            reasons = await self._api.get("/failures", since=since, user=self._name)
            self._reasons.show_reasons(reasons)
        await self._usage.show(self._api, since, now, user=self._name)
