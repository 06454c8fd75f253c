"""What needs a person, a line each: failures by class, long waits, jobs that hang or idle, bad nodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from nicegui import ui

from trainmaster.model.failure import UNKNOWN_REASON
from trainmaster.text.control_characters import visible_line
from trainmaster.text.formatting import plural, short_length

NAMED = 3


class Attention:
    def __init__(self) -> None:
        self._column = ui.column().classes("w-full gap-1").mark("attention")
        self._shown: Any = None

    def show(self, overview: dict[str, Any]) -> None:
        lines = list(lines_of(overview))
        if lines == self._shown:
            return
        self._shown = lines
        self._column.clear()
        with self._column:
            if not lines:
                with ui.row().classes("items-center gap-2"):
                    ui.icon("check_circle", color="positive")
                    ui.label("Nothing needs you.").classes("text-sm")
            for icon, colour, links, said in lines:
                _line(icon, colour, links, said)


Line = tuple[str, str, list[tuple[str, str]], str]


def lines_of(overview: dict[str, Any]) -> Iterator[Line]:
    """Icon, colour, links, and words that follow them."""
    for each in overview["failures"]:
        jobs = [(job, _job(job)) for job in each["jobs"][:NAMED]]
        runs = plural(each["runs"], "run")
        blame = "" if each["blame"] == "unknown" else f", {each['blame']}"
        title = (
            "Unknown reason"
            if each["reason"] == UNKNOWN_REASON
            else each["title"][:1].upper() + each["title"][1:]
        )
        said = f"{title}: {runs} failed in 24 h ({each['gpu_hours']:.2f} GPU-h{blame})"
        yield "error", "negative", jobs, said
    for each in overview["hung"]:
        yield "hourglass_disabled", "negative", [_named(each)], each["sentence"] or "It hangs."
    for each in overview["long_waits"]:
        why = f": {each['sentence']}" if each["sentence"] else ""
        waits = f"waits {short_length(each['seconds'])}{why}"
        yield "schedule", "warning", [_named(each)], waits
    for each in overview["idle"]:
        yield (
            "bedtime",
            "warning",
            [_named(each)],
            f"idle {short_length(each['seconds'])}: {each['sentence']}",
        )
    for each in overview["nodes"]:
        name = each["name"]
        link = f"/nodes/{quote(name.rpartition(':')[0] or name, safe='')}"
        why = f": {each['why']}" if each["why"] else ""
        colour = "warning" if each["state"] in ("draining", "maintenance") else "negative"
        yield "dns", colour, [(name, link)], f"{each['state']}{why}"


def _job(job: str) -> str:
    return f"/jobs/{quote(job, safe='')}"


def _named(each: dict[str, Any]) -> tuple[str, str]:
    name = f"{each['job']} {each['name']}".strip()
    return name, _job(each["job"])


def _line(icon: str, colour: str, links: list[tuple[str, str]], said: str) -> None:
    with ui.row().classes("w-full items-start gap-2 no-wrap"):
        ui.icon(icon, color=colour, size="18px").style("margin-top: 2px")
        with ui.element("div").classes("text-sm").style("min-width: 0; overflow-wrap: anywhere"):
            for name, target in links:
                ui.link(visible_line(name), target).classes("tm-link").style("margin-right: 8px")
            ui.label(visible_line(said)).style("display: inline")
