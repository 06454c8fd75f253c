"""What-if: the past, or the present queue, under other policies, on more nodes, with other quotas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nicegui import ui

from trainmaster.api.web.api_client import Refused
from trainmaster.api.web.frame import frame
from trainmaster.api.web.parts.question import say_refused
from trainmaster.api.web.parts.sheet import Column, Sheet
from trainmaster.api.web.viewer import Manager, Viewer
from trainmaster.api.web.whatif.policies_compared import PoliciesCompared
from trainmaster.text.control_characters import visible_line
from trainmaster.text.formatting import duration

EVERY_S = 0.5
MOST_POLICIES = 4
TIMES = {
    3600.0: "the last hour",
    86_400.0: "the last day",
    7 * 86_400.0: "the last week",
    31 * 86_400.0: "the last month",
}
QUEUE_NOW = "the present queue"


def add(manager: Manager) -> None:
    @ui.page("/whatif")
    async def whatif() -> None:
        viewer = await manager.viewer()
        with frame(viewer, "What-if"):
            daily = await viewer.api.get("/whatif/daily")
            ui.label(visible_line(daily["sentence"])).classes("text-sm break-words").mark("daily")
            if not viewer.is_operator:
                ui.label(
                    "Operators ask what another policy would do: the answer names the jobs of all users."
                )
                return
            policies = [each["name"] for each in (await viewer.api.get("/policies"))["policies"]]
            queues = [each["name"] for each in (await viewer.api.get("/queues"))["queues"]]
            page = WhatIfPage(viewer, policies, queues)
            await page.look_at_newest()


class WhatIfPage:
    """The question, how far it is, and the answer."""

    def __init__(self, viewer: Viewer, policies: Sequence[str], queues: Sequence[str]) -> None:
        self._viewer = viewer
        self._id: str | None = None
        with ui.card().props("flat bordered").classes("w-full"):
            self._form(policies, queues)
        with ui.row().classes("w-full items-center gap-3 flex-nowrap") as self._running:
            self._bar = ui.linear_progress(0, show_value=False, size="10px").classes("max-w-96")
            self._bar.props('aria-label="Progress"')
            self._says = ui.label().classes("text-sm break-words")
            self._stop = ui.button("Cancel", on_click=self._cancel)
            self._stop.props("flat dense no-caps")
        self._running.set_visibility(False)
        self._trouble = ui.label().classes("text-negative break-words").props("role=alert")
        with ui.column().classes("w-full gap-4") as self._answer:
            self._title = ui.label().classes("text-sm opacity-70 break-words")
            self._headline = ui.label().classes("text-lg font-medium break-words").mark("headline")
            self._compared = PoliciesCompared()
            self._jobs_title = ui.label("Winners and losers").classes("text-base font-medium")
            self._jobs = ui.column().classes("w-full")
            self._notes = ui.column().classes("gap-1")
        self._answer.set_visibility(False)
        self._timer = ui.timer(EVERY_S, self._look, active=False)

    def _form(self, policies: Sequence[str], queues: Sequence[str]) -> None:
        with ui.row().classes("w-full items-end gap-4"):
            times = {0.0: QUEUE_NOW, **TIMES}
            self._time = ui.select(times, value=86_400.0, label="What").classes("w-44")
            others = [each for each in policies if each != self._viewer.policy]
            self._policies = ui.select(
                [*others, *([self._viewer.policy] if self._viewer.policy in policies else [])],
                multiple=True,
                label=f"Under, instead of {self._viewer.policy}",
            ).classes("w-64")
            self._policies.props("use-chips")
            self._nodes = ui.number("More nodes", value=0, min=0, max=10_000, precision=0)
            self._nodes.classes("w-28")
            self._queue = ui.select(
                ["", *queues], value="", label="Queue", with_input=True, new_value_mode="add-unique"
            ).classes("w-40")
            self._guaranteed = ui.number("Guaranteed GPUs", min=0).classes("w-36")
            self._maximum = ui.number("Most GPUs", min=0).classes("w-28")
            ui.button("Compare", on_click=self._ask).props("no-caps")

    async def look_at_newest(self) -> None:
        """Somebody's newest, or the one in progress, as before the page was left."""
        found = (await self._viewer.api.get("/whatif"))["whatifs"]
        own = next((each for each in found if each["user"] == self._viewer.user), None)
        if own is not None and own["state"] in ("waiting", "running", "done"):
            self._follow(own["id"])
            await self._look()

    async def _ask(self) -> None:
        self._trouble.set_text("")
        try:
            row = await self._viewer.api.send("POST", "/whatif", self._question())
        except Refused as refusal:
            say_refused(refusal)
            return
        self._answer.set_visibility(False)
        self._follow(row["id"])

    def _question(self) -> dict[str, Any]:
        asked: dict[str, Any] = {
            "policies": [{"name": name} for name in self._policies.value or ()],
            "more_nodes": int(self._nodes.value or 0),
        }
        if self._time.value:
            asked["since_s"] = self._time.value
        else:
            asked["queue_now"] = True
        terms = {"guaranteed_gpus": self._guaranteed.value, "maximum_gpus": self._maximum.value}
        stated = {key: float(value) for key, value in terms.items() if value is not None}
        if self._queue.value and stated:
            asked["set_queues"] = {self._queue.value: stated}
        return asked

    def _follow(self, id: str) -> None:
        self._id = id
        self._bar.set_value(0)
        self._says.set_text("")
        self._running.set_visibility(True)
        self._timer.activate()

    async def _cancel(self) -> None:
        if self._id is not None:
            try:
                await self._viewer.api.send("DELETE", f"/whatif/{self._id}")
            except Refused as refusal:
                say_refused(refusal)

    async def _look(self) -> None:
        if self._id is None:
            return
        try:
            row = await self._viewer.api.get(f"/whatif/{self._id}")
        except Refused as refusal:
            self._ended(str(refusal))
            return
        self._bar.set_value(row["progress"])
        self._says.set_text(visible_line(f"{row['title']}: {row['says'] or row['state']}"))
        if row["state"] == "done":
            self._ended("")
            self._show(row)
        elif row["state"] not in ("waiting", "running"):
            self._ended(row["says"])

    def _ended(self, trouble: str) -> None:
        self._timer.deactivate()
        self._running.set_visibility(False)
        self._trouble.set_text(visible_line(trouble))

    def _show(self, row: Mapping[str, Any]) -> None:
        result = row["result"]
        self._title.set_text(visible_line(f"{row['title']}, {result['jobs_counted']} jobs"))
        self._headline.set_text(visible_line(result["headline"]))
        self._answer.set_visibility(True)
        sides = list(named(result["sides"]))
        self._compared.show(sides)
        self._show_jobs(result, sides)
        self._notes.clear()
        with self._notes:
            for note in result["notes"]:
                ui.label(visible_line(note)).classes("text-sm opacity-70 break-words")

    def _show_jobs(self, result: Mapping[str, Any], sides: Sequence[Mapping[str, Any]]) -> None:
        self._jobs.clear()
        others = [at for at, side in enumerate(sides) if side["kind"] == "other"]
        self._jobs_title.set_visibility(bool(others))
        if not others:
            return
        columns = (
            Column("job", "job", to="/jobs/{}"),
            Column("name", "name"),
            Column("user", "user", to="/users/{}"),
            Column("queue", "queue", to="/queues/{}"),
            Column("gpus", "GPUs", is_number=True),
            *(Column(f"jct{at}", side["name"], is_number=True) for at, side in enumerate(sides)),
            *(
                Column(f"change{at}", f"change, {sides[at]['name']}", is_number=True)
                for at in others
            ),
        )
        with self._jobs:
            Sheet(columns, key="job", empty="No job wins or loses.").show(
                _cells(job, others) for job in result["jobs"]
            )


def named(sides: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """The policy in force by its name, and that it is."""
    for side in sides:
        is_own = side["kind"] == "in-force"
        yield {**side, "name": f"{side['name']} (in force)" if is_own else side["name"]}


def _cells(job: Mapping[str, Any], others: Sequence[int]) -> dict[str, Any]:
    cells: dict[str, Any] = {key: job[key] for key in ("job", "name", "user", "queue")}
    cells["gpus"] = (job["gpus"], f"{job['gpus']:g}")
    for at, side in enumerate(job["sides"]):
        cells[f"jct{at}"] = (side["jct_s"], duration(side["jct_s"]))
    for at in others:
        change = job["changes_s"][at]
        cells[f"change{at}"] = (change, signed(change))
    return cells


def signed(seconds: float | None) -> str:
    if not seconds:
        return duration(seconds)
    sign = "\N{MINUS SIGN}" if seconds < 0 else "+"
    return f"{sign}{duration(abs(seconds))}"
