"""What each queue holds: within its guarantee, borrowed beyond it, and what it lacks."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from nicegui import ui

STYLE = """
.tm-bar { position: relative; height: 14px; border-radius: 3px; background: rgba(128, 128, 128, .16);
  overflow: hidden; }
.tm-bar > div { position: absolute; top: 0; bottom: 0; }
.tm-used { background: #0072b2; }
.tm-borrowed { background: #56b4e9; }
.tm-starved { background: repeating-linear-gradient(45deg, #d55e00 0 3px, transparent 3px 7px); }
.tm-guaranteed { width: 2px; background: currentColor; opacity: .75; }
"""


class QueueBars:
    def __init__(self) -> None:
        ui.add_css(STYLE)
        self._column = ui.column().classes("w-full gap-1")
        self._shown: Any = None

    def show(self, queues: list[dict[str, Any]], gpus: int, *, is_obeyed: bool) -> None:
        """`queues` of `GET /overview`, on so many devices."""
        if (queues, gpus, is_obeyed) == self._shown:
            return
        self._shown = queues, gpus, is_obeyed
        self._column.clear()
        with self._column:
            if not queues:
                ui.label("No queue is defined, and no job has named one.").classes(
                    "text-sm opacity-70"
                )
            for queue in queues:
                _bar(queue, _full(queues, gpus))
            if queues and not is_obeyed and any(queue["guaranteed_gpus"] for queue in queues):
                ui.label("The policy in force does not heed guarantees.").classes(
                    "text-sm opacity-70"
                )


def _full(queues: list[dict[str, Any]], gpus: int) -> float:
    wanted = (each["gpus"] + each["starved_gpus"] for each in queues)
    return max([gpus, *wanted, *(each["guaranteed_gpus"] for each in queues)]) or 1


def _bar(queue: dict[str, Any], full: float) -> None:
    own = queue["gpus"] - queue["borrowed_gpus"]
    with ui.element("div").classes("w-full").props(f'data-queue="{quote(queue["name"], safe="")}"'):
        with ui.row().classes("w-full items-baseline justify-between gap-2 no-wrap"):
            link = ui.link(queue["name"], f"/jobs?queue={quote(queue['name'], safe='')}")
            link.classes("tm-link text-sm ellipsis").style("min-width: 0")
            ui.label(words(queue)).classes("text-xs opacity-80").style("text-align: right")
        with ui.element("div").classes("tm-bar w-full"):
            _part("tm-used", 0, own, full)
            _part("tm-borrowed", own, queue["borrowed_gpus"], full)
            _part("tm-starved", queue["gpus"], queue["starved_gpus"], full)
            if queue["guaranteed_gpus"]:
                left = min(99.5, 100 * queue["guaranteed_gpus"] / full)
                ui.element("div").classes("tm-guaranteed").style(f"left: {left:.2f}%")


def _part(kind: str, begin: float, gpus: float, full: float) -> None:
    if gpus:
        where = f"left: {100 * begin / full:.2f}%; width: {100 * gpus / full:.2f}%"
        ui.element("div").classes(kind).style(where)


def words(queue: dict[str, Any]) -> str:
    """`5 used (2 borrowed) of 3 guaranteed, 1 starved, 4 wanted`."""
    said = f"{queue['gpus']:g} used"
    if queue["guaranteed_gpus"]:
        borrowed = f" ({queue['borrowed_gpus']:g} borrowed)" if queue["borrowed_gpus"] else ""
        said += f"{borrowed} of {queue['guaranteed_gpus']:g} guaranteed"
    if queue["maximum_gpus"] is not None:
        said += f", {queue['maximum_gpus']:g} at most"
    if queue["starved_gpus"]:
        said += f", {queue['starved_gpus']:g} starved"
    return said + (f", {queue['waiting_gpus']:g} wanted" if queue["waiting_gpus"] else "")
