"""Queues: what each may have, has, borrows and lacks."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from nicegui import ui

from trainmaster.api.web.api_client import Refused
from trainmaster.api.web.frame import frame
from trainmaster.api.web.parts.budget_words import budget_words
from trainmaster.api.web.parts.job_sheet import JobSheet
from trainmaster.api.web.parts.question import is_done
from trainmaster.api.web.parts.queue_bars import QueueBars
from trainmaster.api.web.parts.refreshed import Refresh, keep_fresh
from trainmaster.api.web.parts.sheet import Column, Sheet
from trainmaster.api.web.parts.tiles import Tiles
from trainmaster.api.web.parts.usage_over_time import UsageOverTime
from trainmaster.api.web.viewer import Manager, Viewer
from trainmaster.text.control_characters import visible_line

EVERY_S = 5.0
USAGE_EVERY_S = 60.0
MONTH_S = 30 * 86_400
MOST_WAITING = 200
COLUMNS = (
    Column("name", "queue", to="/queues/{}"),
    Column("parent", "in", to="/queues/{}"),
    Column("weight", "weight", is_number=True),
    Column("guaranteed", "guaranteed", is_number=True),
    Column("maximum", "maximum", is_number=True),
    Column("gpus", "GPUs used", is_number=True),
    Column("borrowed", "borrowed", is_number=True),
    Column("starved", "starved", is_number=True),
    Column("running", "running", is_number=True),
    Column("pending", "waiting", is_number=True),
    Column("suspended", "suspended", is_number=True),
    Column("budget", "budget"),
)
NOTHING = {"gpus": 0, "borrowed_gpus": 0, "starved_gpus": 0}
TERMS = (
    *("parent", "weight", "guaranteed_gpus", "maximum_gpus", "allow_unpreemptible"),
    *("max_gpus_per_user", "max_running_per_user", "max_jobs_per_user"),
)
BUDGET = ("gpu_hours", "per", "starting", "when_used_up")


def add(manager: Manager) -> None:
    @ui.page("/queues")
    async def queues() -> None:
        viewer = await manager.viewer()
        with frame(viewer, "Queues"):
            says = ui.label().classes("text-sm opacity-70")
            bars = QueueBars()
            sheet = Sheet(COLUMNS, key="name", empty="There are no queues.")

            async def refresh() -> None:
                rows = (await viewer.api.get("/queues"))["queues"]
                overview = await viewer.api.get("/overview")
                says.set_text(_policy_words(overview["policy"], is_obeyed=overview["obeys_queues"]))
                bars.show(overview["queues"], overview["gpus"], is_obeyed=overview["obeys_queues"])
                held = {each["name"]: each for each in overview["queues"]}
                sheet.show(_cells(row, held.get(row["name"])) for row in rows)

            await keep_fresh(refresh, EVERY_S)

    @ui.page("/queues/{name}")
    async def queue(name: str) -> None:
        viewer = await manager.viewer()
        with frame(viewer, f"Queue {name}"):
            with ui.row().classes("w-full items-center gap-2"):
                ui.link("Queues", "/queues")
                ui.label(visible_line(f"/ {name}")).classes("text-lg font-medium")
                buttons = ui.row()
            page = QueuePage(viewer, name)
            ask = await keep_fresh(page.refresh, EVERY_S)
            ui.timer(USAGE_EVERY_S, page.refresh_usage, immediate=True)
            if viewer.is_operator:
                with buttons:
                    _change_button(viewer, page, ask)


def _policy_words(name: str, *, is_obeyed: bool) -> str:
    said = f"The policy {name} "
    if is_obeyed:
        return visible_line(said + "divides GPUs by weights and guarantees of queues.")
    return visible_line(said + "does not look at weights and guarantees; maxima and limits hold.")


def _cells(row: Mapping[str, Any], held: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """`held`: of the queue with those inside it; None: it holds nothing and asks for nothing."""
    most = row["maximum_gpus"]
    held = held or NOTHING
    return {
        **row,
        "guaranteed": row["guaranteed_gpus"],
        "maximum": ("" if most is None else most),
        "gpus": held["gpus"],
        "borrowed": held["borrowed_gpus"],
        "starved": held["starved_gpus"],
        "budget": "" if row["budget"] is None else budget_words(row["budget"]),
    }


class QueuePage:
    """What changes on the page of a queue."""

    def __init__(self, viewer: Viewer, name: str) -> None:
        self._viewer, self._name = viewer, name
        self.row: Mapping[str, Any] | None = None
        self._tiles = Tiles(
            *("Weight", "Guaranteed", "Maximum", "GPUs used", "Borrowed", "Starved"),
            *("Running", "Waiting", "Suspended"),
        )
        self._limits = ui.label().classes("text-sm break-words")
        with ui.row().classes("w-full items-center gap-3"):
            self._budget = ui.label().classes("text-sm break-words")
            self._bar = ui.linear_progress(0, show_value=False).classes("max-w-64")
        ui.label("Jobs that wait").classes("text-base font-medium")
        self._waiting = JobSheet("No job waits in this queue.", "queue")
        ui.label("Jobs that run").classes("text-base font-medium")
        self._running = JobSheet("No job of this queue runs.", "queue", "waits")
        own = "" if viewer.is_operator or viewer.role == "viewer" else ", of your own jobs"
        ui.label(f"GPU-hours of the last 30 days{own}").classes("text-base font-medium")
        self._usage = UsageOverTime()

    async def refresh(self) -> None:
        rows = (await self._viewer.api.get("/queues"))["queues"]
        self.row = row = next((each for each in rows if each["name"] == self._name), None)
        if row is None:
            raise Refused(404, "not_found", f"There is no queue {self._name}.")
        bars = (await self._viewer.api.get("/overview"))["queues"]
        cells = _cells(row, next((each for each in bars if each["name"] == self._name), None))
        most = row["maximum_gpus"]
        self._tiles.show(
            {
                "Weight": str(row["weight"]),
                "Guaranteed": f"{row['guaranteed_gpus']:g}",
                "Maximum": "none" if most is None else f"{most:g}",
                "GPUs used": f"{cells['gpus']:g}",
                "Borrowed": f"{cells['borrowed']:g}",
                "Starved": f"{cells['starved']:g}",
                "Running": str(row["running"]),
                "Waiting": str(row["pending"]),
                "Suspended": str(row["suspended"]),
            }
        )
        self._limits.set_text(_limit_words(row))
        budget = row["budget"]
        warning = "" if budget is None or budget["warning"] is None else f" {budget['warning']}"
        self._budget.set_text(visible_line(f"Budget: {budget_words(budget)}.{warning}"))
        self._bar.set_visibility(budget is not None)
        if budget is not None:
            self._bar.set_value(min(1.0, budget["used_ratio"]))
        jobs = await self._viewer.api.get(
            "/jobs", queue=self._name, state="pending,suspended", limit=MOST_WAITING
        )
        self._waiting.show_jobs(jobs["jobs"])
        jobs = await self._viewer.api.get(
            "/jobs", queue=self._name, state="running", limit=MOST_WAITING
        )
        self._running.show_jobs(jobs["jobs"])

    async def refresh_usage(self) -> None:
        now = time.time()
        await self._usage.show(self._viewer.api, now - MONTH_S, now, queue=self._name)


def _limit_words(row: Mapping[str, Any]) -> str:
    stated = (
        ("GPUs", row["max_gpus_per_user"]),
        ("running jobs", row["max_running_per_user"]),
        ("jobs that have not ended", row["max_jobs_per_user"]),
    )
    said = [f"{most:g} {what}" for what, most in stated if most is not None]
    each = f"Each user may have at most {', '.join(said)} in it." if said else "No limits per user."
    within = f" It lies in {row['parent']}." if row["parent"] else ""
    return visible_line(each + within)


def _change_button(viewer: Viewer, page: QueuePage, ask: Refresh) -> None:
    def change() -> None:
        row = page.row
        if row is None:
            return
        with ui.dialog(value=True) as dialog, ui.card().classes("w-96 max-w-full"):
            ui.label(visible_line(f"Change the queue {row['name']}")).classes("text-lg font-medium")
            weight = ui.number("Weight", value=row["weight"], min=1, precision=0).classes("w-full")
            least = ui.number("Guaranteed GPUs", value=row["guaranteed_gpus"], min=0).classes(
                "w-full"
            )
            most = ui.number("Maximum of GPUs (empty: none)", value=row["maximum_gpus"], min=0)
            most.classes("w-full").props("clearable")
            ui.label("Guarantees are got back from jobs that run, as the policy does it.").classes(
                "text-sm"
            )

            async def save() -> None:
                changed = {
                    "weight": round(weight.value or 1),
                    "guaranteed_gpus": float(least.value or 0),
                    "maximum_gpus": None if most.value is None else float(most.value),
                }

                async def send() -> None:
                    await viewer.api.send(
                        "PUT", f"/queues/{quote(row['name'], safe='')}", _terms(row, changed)
                    )

                if await is_done(send, f"Changed {row['name']}."):
                    dialog.close()
                await ask()

            with ui.row().classes("w-full justify-end gap-2"):
                ui.button("Not now", color=None, on_click=dialog.close).props("flat no-caps")
                ui.button("Change", on_click=save).props("no-caps")
        dialog.on("hide", dialog.delete)

    ui.button("Change", on_click=change).props("outline dense no-caps padding='2px 8px'")


def _terms(row: Mapping[str, Any], changed: Mapping[str, Any]) -> Mapping[str, Any]:
    """All settings of a queue: those that are not sent would have their defaults."""
    terms = {name: row[name] for name in TERMS} | dict(changed)
    if row["budget"] is not None:
        terms["budget"] = _without_none({name: row["budget"][name] for name in BUDGET})
    return _without_none(terms)


def _without_none(terms: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in terms.items() if value is not None}
