"""The picture of the last hours: who held each device when, where jobs were suspended, moved or resized."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from nicegui import ui
from nicegui.events import GenericEventArguments

from trainmaster.api.web.parts.job_colours import hue
from trainmaster.text.control_characters import visible_line

SHORTEST_S = 60.0
"""The axis is at least as long as this."""
MARGIN = 0.05


class GpuTimeline(ui.element, component="gpu_timeline.js"):
    def __init__(self, height: int = 180) -> None:
        super().__init__()
        self._props["height"] = height
        self._said: dict[str, Any] | None = None
        self._is_ready = False
        self.on("ready", self._ready)
        self.on("open", _open)

    def show(
        self, timeline: dict[str, Any], lanes: Sequence[str], suspended: Mapping[str, Sequence[str]]
    ) -> None:
        """An answer of `GET /timeline`, on these devices; `suspended` are those suspended in memory now."""
        bars = list(bars_of(timeline, lanes, suspended))
        until = timeline["until_s"]
        first = min((bar["from"] for bar in bars), default=until)
        first = max(timeline["since_s"], min(first, until - SHORTEST_S))
        since = max(timeline["since_s"], first - MARGIN * (until - first))
        self._said = {"lanes": list(lanes), "bars": bars, "since": since, "until": until}
        self._send()

    def _ready(self) -> None:
        self._is_ready = True
        self._send()

    def _send(self) -> None:
        if self._is_ready and self._said is not None:
            self.run_method("show", self._said)


def bars_of(
    timeline: dict[str, Any], lanes: Sequence[str], suspended: Mapping[str, Sequence[str]]
) -> Iterator[dict[str, Any]]:
    """What jobs held, and between two such times of the same job on a device how it was suspended there."""
    rows = {name: number for number, name in enumerate(lanes)}
    last: dict[tuple[str, str], dict[str, Any]] = {}
    for span in sorted(timeline["spans"], key=lambda each: each["from_s"]):
        for device in span["devices"]:
            if device not in rows:
                continue
            bar = _bar(span, rows[device])
            before = last.get((span["job"], device)) if span["job"] else None
            if before is not None and before["ended"] == "suspended":
                yield before | {"from": before["to"], "to": bar["from"], "held": False}
            if span["job"]:
                last[span["job"], device] = bar
            yield bar
    for (job, device), bar in last.items():
        is_there = bar["ended"] == "suspended" and device in suspended.get(job, ())
        if is_there:
            yield bar | {"from": bar["to"], "to": timeline["until_s"], "held": False}


def _bar(span: dict[str, Any], lane: int) -> dict[str, Any]:
    return {
        "lane": lane,
        "from": span["from_s"],
        "to": span["to_s"],
        "job": span["job"],
        "name": visible_line(span["name"]),
        "user": visible_line(span["user"]),
        "hue": 0 if span["job"] is None else hue(span["job"]),
        "ended": span["ended"],
        "held": True,
    }


def _open(event: GenericEventArguments) -> None:
    ui.navigate.to(f"/jobs/{quote(event.args, safe='')}")
