"""The picture of all devices: a square each, by rack and node, in the colours of their jobs."""

from __future__ import annotations

from itertools import count
from typing import Any
from urllib.parse import quote

from nicegui import ui
from nicegui.events import GenericEventArguments

from trainmaster.api.web.parts.job_colours import hue
from trainmaster.text.control_characters import visible_line

Square = tuple[Any, ...]


class GpuGrid(ui.element, component="gpu_grid.js"):
    """Only what has changed since is sent to the browser."""

    def __init__(self, height: int = 230) -> None:
        super().__init__()
        self._props["height"] = height
        self._nodes: list[Any] = []
        self._squares: list[Square] = []
        self._jobs: dict[str, Any] = {}
        self._numbers = count(1)
        self._is_ready = False
        self.on("ready", self._ready)
        self.on("open", _open)

    def show(self, grid: dict[str, Any]) -> None:
        """An answer of `GET /grid`."""
        nodes = [[n["name"], n["rack"], n["state"], n["devices"]] for n in grid["nodes"]]
        racks = {node[1] for node in nodes}
        if len(racks) < 2:
            nodes = [[name, "", state, devices] for name, _, state, devices in nodes]
        squares, jobs = squares_of(grid), jobs_of(grid)
        before = self._nodes, self._squares, self._jobs
        self._nodes, self._squares, self._jobs = nodes, squares, jobs
        if not self._is_ready:
            return
        if [each[:2] for each in nodes] != [each[:2] for each in before[0]]:
            self._send_all()
            return
        news = {
            "nodes": _changed(before[0], nodes),
            "squares": _changed(before[1], squares),
            "jobs": {job: said for job, said in jobs.items() if before[2].get(job) != said},
        }
        if any(news.values()):
            self.run_method("change", {**news, "number": next(self._numbers)})

    def _ready(self) -> None:
        self._is_ready = True
        if self._nodes:
            self._send_all()

    def _send_all(self) -> None:
        said = {"nodes": self._nodes, "squares": self._squares, "jobs": self._jobs}
        self.run_method("show", {**said, "number": next(self._numbers)})


def squares_of(grid: dict[str, Any]) -> list[Square]:
    """By device: the jobs there, each with its share and how it is there; why it is set aside; what was
    measured."""
    total = sum(node["devices"] for node in grid["nodes"])
    pieces: list[list[Any]] = [[] for _ in range(total)]
    ids = [job["id"] for job in grid["jobs"]]
    for device, job, share, how in grid["held"]:
        pieces[device].append((None if job is None else ids[job], share, how))
    aside = dict(grid["set_aside"])
    measured = {each[0]: tuple(each[1:]) for each in grid["measured"]}
    return [
        (here, aside.get(device, ""), *measured.get(device, ()))
        for device, here in enumerate(pieces)
    ]


def jobs_of(grid: dict[str, Any]) -> dict[str, Any]:
    return {
        job["id"]: [visible_line(job["name"]), visible_line(job["user"]), hue(job["id"])]
        for job in grid["jobs"]
    }


def _changed(before: list[Any], after: list[Any]) -> list[tuple[int, Any]]:
    return [
        (index, each)
        for index, each in enumerate(after)
        if index >= len(before) or each != before[index]
    ]


def _open(event: GenericEventArguments) -> None:
    """A job that is alone there, else the device."""
    said = event.args
    if said["job"] is not None:
        ui.navigate.to(f"/jobs/{quote(said['job'], safe='')}")
    else:
        ui.navigate.to(f"/nodes/{quote(said['node'], safe='')}#{said['number']}")
