"""The policy lab: choose a trace, a cluster and policies, and see which policy does best."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from nicegui import events, ui

from trainmaster.api.web.api_client import Refused
from trainmaster.api.web.frame import frame
from trainmaster.api.web.lab.policy_comparison import PolicyComparison
from trainmaster.api.web.parts.question import say_refused
from trainmaster.api.web.parts.refreshed import keep_fresh
from trainmaster.api.web.parts.sheet import Column, Sheet
from trainmaster.api.web.viewer import Manager, Viewer
from trainmaster.text.control_characters import visible_line
from trainmaster.text.formatting import shortened

EVERY_S = 1.0
LIST_EVERY_S = 3.0
MOST_TRACE = 16 << 20
LIKE = {"philly": "Microsoft Philly", "alibaba": "Alibaba, parts of GPUs"}
NOT_HELIOS = (
    "Nothing is drawn like Helios: there is no table of its run times. Upload its cluster_log.csv"
    " instead."
)
FORMATS = (
    "Recognised: native CSV and the public traces of Philly, Helios, Alibaba, Tiresias and Gavel; 16 MiB and"
    " 50,000 jobs at most."
)
USUAL = ("fifo", "las", "trainmaster")
COLUMNS = (
    Column("id", "comparison", to="/lab/{}"),
    Column("title", "what", wraps=True),
    Column("user", "user"),
    Column("state", "state"),
    Column("progress", "done", is_number=True),
)


def add(manager: Manager) -> None:
    @ui.page("/lab")
    async def lab() -> None:
        viewer = await manager.viewer()
        with frame(viewer, "Policy lab"):
            if not viewer.may_change:
                ui.label("To compare policies takes the role user: ask an admin of this manager.")
                return
            policies = (await viewer.api.get("/policies"))["policies"]
            Form(viewer, policies)
            ui.label("Comparisons").classes("text-base font-medium")
            sheet = Sheet(COLUMNS, key="id", empty="There are none yet.")

            async def refresh() -> None:
                rows = (await viewer.api.get("/lab"))["comparisons"]
                sheet.show(
                    {**row, "progress": (row["progress"], f"{100 * row['progress']:.0f} %")}
                    for row in rows
                )

            await keep_fresh(refresh, LIST_EVERY_S)

    @ui.page("/lab/{id}")
    async def comparison(id: str) -> None:
        viewer = await manager.viewer()
        with frame(viewer, "Policy lab"):
            page = ComparisonPage(viewer, id)
            await keep_fresh(page.refresh, EVERY_S)


class Form:
    """What to compare."""

    def __init__(self, viewer: Viewer, policies: list[Mapping[str, Any]]) -> None:
        self._viewer = viewer
        self._content: str | None = None
        self._name = "trace"
        names = {each["name"]: each["name"] for each in policies}
        with ui.card().props("flat bordered").classes("w-full gap-3"):
            ui.label("Compare policies on a trace").classes("text-base font-medium")
            with ui.element("div").classes(
                "w-full grid grid-cols-1 md:grid-cols-2 gap-x-8 gap-y-2"
            ):
                with ui.column().classes("gap-1 min-w-0"):
                    self._kind = ui.toggle(
                        {"like": "Make a trace", "upload": "Upload one"}, value="like"
                    )
                    self._kind.props("dense no-caps")
                    with ui.column().classes("w-full gap-1") as made:
                        self._like = ui.select(LIKE, value="philly", label="Like the cluster")
                        with ui.row().classes("w-full gap-3 no-wrap"):
                            self._jobs = _number("Jobs", 1000, least=1)
                            self._load = _number("Load", 0.9, least=0.01)
                            self._seed = _number("Seed", 0)
                        self._like.classes("w-full")
                        ui.label(NOT_HELIOS).classes("text-xs opacity-70")
                    with ui.column().classes("w-full gap-1") as sent:
                        upload = ui.upload(
                            label="Trace file",
                            max_file_size=MOST_TRACE,
                            max_files=1,
                            auto_upload=True,
                        )
                        upload.on_upload(self._uploaded).on("rejected", self._rejected)
                        upload.classes("w-full").props("flat bordered accept='*'")
                        ui.label(FORMATS).classes("text-xs opacity-70")
                    made.bind_visibility_from(self._kind, "value", value="like")
                    sent.bind_visibility_from(self._kind, "value", value="upload")
                with ui.column().classes("gap-1 min-w-0"):
                    self._cluster = ui.input(
                        "Cluster: nodes x GPUs, or racks x nodes x GPUs", value="8x8"
                    )
                    chosen = [name for name in USUAL if name in names]
                    self._policies = ui.select(
                        names, value=chosen, multiple=True, label="Policies, 8 at most"
                    ).props("use-chips")
                    with ui.row().classes("w-full gap-3 no-wrap"):
                        self._perf = ui.select(
                            {"default": "as measured", "ideal": "none"},
                            value="default",
                            label="Cost of placement and preemption",
                        )
                        self._estimates = ui.select(
                            {"exact": "exact", "noisy:0.3": "30 % off", "none": "none"},
                            value="exact",
                            label="Run time estimates",
                        )
                    for each in (self._cluster, self._policies, self._perf, self._estimates):
                        each.classes("w-full")
            self._begin = ui.button("Compare", on_click=self._compare).props("no-caps")

    async def _uploaded(self, event: events.UploadEventArguments) -> None:
        try:
            self._content = (await event.file.read()).decode("utf-8-sig")
        except UnicodeDecodeError:
            ui.notify("The trace is not UTF-8 text: unpack it first.", type="negative")
            return
        self._name = event.file.name

    def _rejected(self) -> None:
        ui.notify("The trace is larger than 16 MiB: compare a part of it.", type="negative")

    async def _compare(self) -> None:
        if self._kind.value == "upload" and self._content is None:
            ui.notify("Choose a trace file first.", type="warning")
            return
        if not self._policies.value:
            ui.notify("Choose a policy at least.", type="warning")
            return
        self._begin.disable()
        try:
            made = await self._viewer.api.send("POST", "/lab", self._question())
        except Refused as refusal:
            say_refused(refusal)
        else:
            ui.navigate.to(f"/lab/{made['id']}")
        finally:
            self._begin.enable()

    def _question(self) -> Mapping[str, Any]:
        trace: dict[str, Any] = {"name": shortened(self._name, 200), "content": self._content}
        if self._kind.value == "like":
            trace = {
                "like": self._like.value,
                "jobs": round(self._jobs.value or 0),
                "load": float(self._load.value or 0),
                "seed": round(self._seed.value or 0),
            }
        return {
            "trace": trace,
            "cluster": self._cluster.value.strip(),
            "policies": [{"name": name} for name in self._policies.value],
            "perf": self._perf.value,
            "estimates": self._estimates.value,
        }


def _number(label: str, value: float, least: float = 0) -> ui.number:
    return ui.number(label, value=value, min=least).classes("w-full")


class ComparisonPage:
    """How far one is, and what came of it."""

    def __init__(self, viewer: Viewer, id: str) -> None:
        self._api, self._id = viewer.api, quote(id, safe="")
        self._is_done = False
        with ui.row().classes("w-full items-center gap-2"):
            ui.link("Policy lab", "/lab")
            self._title = ui.label().classes("text-lg font-medium break-words")
        with ui.row().classes("w-full items-center gap-3") as self._waiting:
            self._bar = ui.linear_progress(0, show_value=False).classes("max-w-96")
            self._says = ui.label().classes("text-sm break-words")
            self._cancel = ui.button("Cancel", on_click=self._end, color="negative")
            self._cancel.props("outline dense no-caps padding='2px 8px'")
        self._result = ui.column().classes("w-full gap-4")

    async def refresh(self) -> None:
        if self._is_done:
            return
        found = await self._api.get(f"/lab/{self._id}")
        self._title.set_text(visible_line(f"/ {found['title']}"))
        state = found["state"]
        self._is_done = state in ("done", "failed", "cancelled")
        self._bar.set_value(found["progress"])
        says = {"waiting": "It waits until another one has ended.", "running": found["says"]}
        self._says.set_text(visible_line(says.get(state, found["says"] or "")))
        self._bar.set_visibility(not self._is_done)
        self._cancel.set_visibility(not self._is_done)
        self._waiting.set_visibility(state != "done")
        if found["result"] is not None:
            with self._result:
                ui.button("Full report (ZIP)", icon="download", on_click=self._save).props(
                    "outline dense no-caps padding='2px 8px'"
                )
                PolicyComparison(found["result"])

    async def _end(self) -> None:
        try:
            await self._api.send("DELETE", f"/lab/{self._id}")
        except Refused as refusal:
            say_refused(refusal)
        await self.refresh()

    async def _save(self) -> None:
        try:
            content = await self._api.content(f"/lab/{self._id}/report")
        except Refused as refusal:
            say_refused(refusal)
        else:
            ui.download.content(content, "report.zip", "application/zip")
