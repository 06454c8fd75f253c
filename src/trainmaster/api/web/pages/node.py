"""One node, or one of its devices: what is there, what runs on it, how busy it is and what failed on it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from nicegui import ui

from trainmaster.api.web.api_client import ApiClient, Refused
from trainmaster.api.web.frame import frame
from trainmaster.api.web.pages.nodes import speed_words
from trainmaster.api.web.parts.gpu_timeline import GpuTimeline
from trainmaster.api.web.parts.job_sheet import JobSheet
from trainmaster.api.web.parts.line_chart import Axes, LineChart, Series
from trainmaster.api.web.parts.question import is_done, is_wanted
from trainmaster.api.web.parts.refreshed import Refresh, keep_fresh
from trainmaster.api.web.parts.sheet import Column, Sheet
from trainmaster.api.web.parts.tiles import Tiles
from trainmaster.api.web.viewer import Manager, Viewer
from trainmaster.model.units import GIB
from trainmaster.text.control_characters import visible_line
from trainmaster.text.formatting import share, size

EVERY_S = 5.0
CURVES_EVERY_S = 20.0
HOURS_S = 6 * 3600
MOST_JOBS = 64
"""Of a node whose jobs are looked up one by one."""
DEVICES = (
    Column("device", "device"),
    Column("jobs", "jobs"),
    Column("util", "utilisation", is_number=True),
    Column("memory", "memory", is_number=True),
    Column("temperature", "°C", is_number=True),
    Column("power", "power", is_number=True),
    Column("links", "NVLink to"),
    Column("remarks", "remarks", wraps=True),
)
FAILURES = (
    Column("name", "device"),
    Column("trials", "failed runs", is_number=True),
    Column("jobs", "jobs", is_number=True),
    Column("gpu_hours", "GPU-hours", is_number=True),
    Column("reasons", "reasons", wraps=True),
)
CHARTS = (
    ("util", Axes("Utilisation, %", most=100), 100),
    ("memory_bytes", Axes("Memory in use, GiB"), 1 / GIB),
    ("temperature_c", Axes("Temperature, °C", least=None), 1),
    ("power_w", Axes("Power, W"), 1),
)
LEGEND = "hatched: suspended · ▸ migrated · ‖ resized · red edge: failed"
NO_CURVES = "Nothing was read of GPUs here: CPU slots and GPUs of other machines have no curves."
ACTIONS = {
    "drain": (
        "Drain",
        "Nothing more is started there. What runs there is moved where that is possible, or stays until it"
        " ends.",
    ),
    "undrain": ("Undrain", "Jobs may be started there again."),
    "block": ("Block", "It is set aside: nothing more is started there. What runs there goes on."),
    "unblock": ("Unblock", "It is used again."),
    "test": (
        "Test",
        "The self-test runs on its idle devices, some seconds for each; what is broken is set aside.",
    ),
    "forget": (
        "Forget",
        "It is removed for good. It must be away, and no job may still have anything there.",
    ),
}


def add(manager: Manager) -> None:
    @ui.page("/nodes/{name}")
    async def node(name: str) -> None:
        await show(await manager.viewer(), name, None)

    @ui.page("/nodes/{name}/{device}")
    async def device(name: str, device: str) -> None:
        await show(await manager.viewer(), name, device)


async def show(viewer: Viewer, name: str, number: str | None) -> None:
    """The page of a node, or of one of its devices."""
    own = name if number is None else f"{name}:{number}"
    with frame(viewer, own):
        with ui.row().classes("w-full items-center gap-2"):
            ui.link("Nodes", "/nodes")
            ui.label(visible_line(f"/ {own}")).classes("text-lg font-medium")
            buttons = ui.row().classes("gap-1")
        page = NodePage(viewer, name, own)
        if viewer.is_operator:
            with buttons:
                _buttons(viewer, own, number is None, page)
        page.ask = await keep_fresh(page.refresh, EVERY_S)
        ui.timer(CURVES_EVERY_S, page.refresh_past, immediate=True)


def _buttons(viewer: Viewer, own: str, is_node: bool, page: NodePage) -> None:
    for action, (label, what) in ACTIONS.items():
        if not is_node and action in ("drain", "undrain", "forget"):
            continue

        async def do(action: str = action, label: str = label, what: str = what) -> None:
            grave = action in ("drain", "block", "forget")
            if not await is_wanted(f"{label} {own}?", what, label, is_grave=grave):
                return

            async def send() -> None:
                answer = await viewer.api.send("POST", f"/nodes/{_path(own)}/{action}")
                if action == "test":
                    page.say_tests(answer["tests"])

            await is_done(send, f"{label}: {own}.")
            await page.ask()

        made = ui.button(label, on_click=do).props("outline dense no-caps padding='2px 8px'")
        page.buttons[action] = made


def _path(name: str) -> str:
    return quote(name, safe="")


class NodePage:
    """What changes on the page while it is looked at."""

    def __init__(self, viewer: Viewer, name: str, own: str) -> None:
        self._viewer, self._name, self._own = viewer, name, own
        self._is_node = name == own
        self.buttons: dict[str, ui.button] = {}
        self.ask: Refresh = self.refresh
        self._tiles = Tiles("State", "Type", "Speed", "Devices used", "CPUs", "Memory", "Host")
        self._remarks = ui.column().classes("gap-1")
        self._tests = ui.column().classes("gap-1")
        self._tests.set_visibility(False)
        _heading("Devices")
        columns = [
            Column(each.name, each.label, to=f"/nodes/{_path(name)}/{{}}")
            if each.name == "device"
            else each
            for each in DEVICES
        ]
        self._devices = Sheet(columns, key="device", empty="It has none.")
        _heading("Jobs here")
        self._jobs = JobSheet("No job is here that you may see.")
        _heading("Who held them in the last six hours")
        ui.label(LEGEND).classes("text-xs opacity-70")
        self._timeline = GpuTimeline()
        _heading("How busy they were")
        self._curves = Curves(viewer.api, name, own)
        _heading("Failed runs here")
        self._failures = Sheet(
            FAILURES, key="name", empty="No run has failed here that you may see."
        )
        self._said: object = None
        self._row: Mapping[str, Any] | None = None

    async def refresh(self) -> None:
        answer = await self._viewer.api.get("/nodes")
        failures = await self._viewer.api.get("/failures")
        row = next((each for each in answer["nodes"] if each["name"] == self._name), None)
        devices = [] if row is None else row["devices"]
        if not self._is_node:
            devices = [each for each in devices if each["name"] == self._own]
        if row is None or (not devices and not self._is_node):
            raise Refused(
                404,
                "not_found",
                f"There is no {'node' if self._is_node else 'device'} {self._own}.",
            )
        self._row = row
        self._show(row, devices)
        here = (
            each
            for each in failures["devices"]
            if each["name"] == self._own
            or (self._is_node and each["name"].rpartition(":")[0] == self._name)
        )
        self._failures.show({**each, "reasons": ", ".join(each["reasons"])} for each in here)
        ids = dict.fromkeys(job for each in devices for job in each["jobs"])
        if self._is_node:
            ids |= dict.fromkeys((*row["frozen"], *row["leaving"]))
        self._jobs.show_jobs(await _jobs(self._viewer.api, list(ids)))

    async def refresh_past(self) -> None:
        """The timeline and the curves."""
        row = self._row
        if row is None:
            return
        try:
            timeline = await self._viewer.api.get("/timeline", node=self._name)
            await self._curves.refresh()
        except Refused:  # the page says so already
            return
        lanes = [each["name"] for each in row["devices"]] if self._is_node else [self._own]
        self._timeline.show(timeline, lanes, dict.fromkeys(row["frozen"], lanes))

    def _show(self, row: Mapping[str, Any], devices: Sequence[Mapping[str, Any]]) -> None:
        used = sum(bool(each["jobs"]) for each in devices)
        self._tiles.show(
            {
                "State": row["state"],
                "Type": row["type"],
                "Speed": speed_words(row),
                "Devices used": f"{used} of {len(devices)}",
                "CPUs": f"{row['cpus']:g}",
                "Memory": size(row["memory_bytes"]),
                "Host": row["host"] or "this machine",
            }
        )
        self._devices.show(map(_device_cells, devices))
        remarks = list(row["remarks"])
        if remarks != self._said:
            self._said = remarks
            self._remarks.set_visibility(bool(remarks))
            self._remarks.clear()
            with self._remarks:
                for remark in remarks:
                    ui.label(visible_line(remark)).classes("text-sm break-words")
        is_aside = any(each["set_aside"] for each in devices) or row["state"] == "set aside"
        shown = {
            "drain": row["state"] == "up",
            "undrain": row["state"] == "draining",
            "block": not all(each["set_aside"] for each in devices),
            "unblock": is_aside,
            "forget": row["state"] == "away",
        }
        for action, is_shown in shown.items():
            if action in self.buttons:
                self.buttons[action].set_visibility(is_shown)

    def say_tests(self, tests: Sequence[Mapping[str, Any]]) -> None:
        self._tests.clear()
        self._tests.set_visibility(bool(tests))
        with self._tests:
            for each in tests:
                said = f"{each['device']}: {each['verdict']}. {each['sentence']}"
                ui.label(visible_line(said)).classes("text-sm break-words")


def _heading(text: str) -> None:
    ui.label(text).classes("text-base font-medium")


async def _jobs(api: ApiClient, ids: Sequence[str]) -> list[Any]:
    """Those that the reader may see."""

    async def one(id: str) -> Any:
        try:
            return await api.get(f"/jobs/{_path(id)}")
        except Refused:  # another user's, or it has just gone
            return None

    found = [await one(id) for id in ids[:MOST_JOBS]]
    return [each for each in found if each is not None]


def _device_cells(row: Mapping[str, Any]) -> Mapping[str, Any]:
    gpu = row["gpu"] or {}
    used, memory = gpu.get("memory_used_bytes"), gpu.get("memory_bytes")
    aside = row["set_aside"]
    remarks = [f"Set aside: {aside['why']}"] if aside else []
    remarks += [gpu["trouble"]] if gpu.get("trouble") else []
    if gpu.get("xid_events"):
        remarks.append(f"XID {gpu['last_xid']} ({gpu['xid_events']} since the manager started).")
    if gpu.get("ecc_errors"):
        remarks.append(f"{gpu['ecc_errors']} uncorrected memory errors.")
    if gpu.get("mig"):
        remarks.append(f"MIG {gpu['mig']}.")
    number = row["name"].rpartition(":")[2]
    return {
        "device": number,
        "jobs": ", ".join(row["jobs"]),
        "util": (gpu.get("util") or 0, share(gpu.get("util")) if gpu else ""),
        "memory": (used or 0, "" if used is None else f"{size(used)} of {size(memory or 0)}"),
        "temperature": gpu.get("temperature_c"),
        "power": (gpu.get("power_w") or 0, _watts(gpu)),
        "links": ", ".join(name.rpartition(":")[2] for name in gpu.get("nvlink", ())),
        "remarks": " ".join(remarks),
    }


def _watts(gpu: Mapping[str, Any]) -> str:
    if gpu.get("power_w") is None:
        return ""
    most = gpu.get("power_limit_w")
    return f"{gpu['power_w']} W" if most is None else f"{gpu['power_w']} of {most} W"


class Curves:
    """Use, memory, temperature and power of the GPUs."""

    def __init__(self, api: ApiClient, name: str, own: str) -> None:
        self._api, self._name, self._own = api, name, own
        self._none = ui.label(NO_CURVES).classes("text-sm opacity-70")
        self._grid = ui.element("div").classes("w-full grid grid-cols-1 md:grid-cols-2 gap-3")
        with self._grid:
            self._charts = {key: LineChart(axes) for key, axes, _ in CHARTS}
        self._grid.set_visibility(False)

    async def refresh(self) -> None:
        since = time.time() - HOURS_S
        answer = await self._api.get(f"/nodes/{_path(self._name)}/curves", since=since)
        times = [at * 1000 for at in answer["times_s"]]
        gpus = [each for each in answer["gpus"] if self._own in (self._name, each["device"])]
        first = next(
            (
                n
                for n, _ in enumerate(times)
                if any(gpu["memory_bytes"][n] is not None for gpu in gpus)
            ),
            0,
        )
        self._none.set_visibility(not gpus)
        self._grid.set_visibility(bool(gpus))
        for key, _, scale in CHARTS:
            lines = [Series(gpu["device"], _scaled(times, gpu[key], scale, first)) for gpu in gpus]
            self._charts[key].show(lines)


def _scaled(
    times: Sequence[float], values: Sequence[float | None], scale: float, first: int
) -> list[list[float | None]]:
    pairs = list(zip(times, values, strict=True))[first:]
    return [[at, None if value is None else round(value * scale, 2)] for at, value in pairs]
