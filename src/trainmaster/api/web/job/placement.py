"""Where a job is, drawn: racks, nodes, islands, and a square for each device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nicegui import ui

from trainmaster.api.web.parts.plain_text import shown
from trainmaster.text.formatting import plural

MOST_NODES = 32
OWN = "background:#0072b2"
SUSPENDED = "background:repeating-linear-gradient(45deg,#0072b2 0 3px,transparent 3px 6px)"
OTHER = "background:rgba(128,128,128,.45)"


def placement_drawing(placed: Mapping[str, Any]) -> None:
    nodes = placed["nodes"]
    if not nodes:
        ui.label("It holds no devices now.").classes("text-sm opacity-70")
        return
    by_domain: dict[str, list[Any]] = {}
    for node in nodes[:MOST_NODES]:
        by_domain.setdefault(" / ".join(node["domains"].values()), []).append(node)
    for domain, own in by_domain.items():
        with ui.column().classes("gap-1"):
            if domain:
                ui.label(shown(domain)).classes("text-sm font-medium")
            with ui.row().classes("gap-3"):
                for node in own:
                    _node(node, is_frozen=placed["is_frozen"])
    if len(nodes) > MOST_NODES:
        ui.label(f"and {plural(len(nodes) - MOST_NODES, 'more node')}").classes("text-sm")
    with ui.row().classes("gap-3 items-center text-xs opacity-70"):
        _square(SUSPENDED if placed["is_frozen"] else OWN, "")
        ui.label("suspended in memory here" if placed["is_frozen"] else "this job")
        _square(OTHER, "")
        ui.label("others")
        _square("", "")
        ui.label("free")
        if placed["span"]:
            ui.label(f"within one {placed['span']}")


def _node(node: Mapping[str, Any], *, is_frozen: bool) -> None:
    with ui.column().classes("gap-1 rounded border border-gray-500/30 p-2"):
        ui.label(f"{shown(node['name'], 60)} ({shown(node['type'], 40)})").classes("text-xs")
        with ui.row().classes("gap-2"):
            for island in node["islands"]:
                with ui.row().classes("gap-1"):
                    for device in island:
                        style, what = _look(device, is_frozen=is_frozen)
                        _square(style, f"{device['name']}: {what}")


def _look(device: Mapping[str, Any], *, is_frozen: bool) -> tuple[str, str]:
    share, others = device["share"], device["others"]
    beside = f", beside {plural(others, 'other job')}" if others else ""
    if share and is_frozen:
        return SUSPENDED, f"suspended in memory here{beside}"
    if share:
        rest = OTHER.removeprefix("background:") if others else "transparent"
        part = f"linear-gradient(to top,#0072b2 {share:.0%},{rest} {share:.0%})"
        return f"background:{part}", f"{share:g} of it is this job's{beside}"
    return (OTHER, plural(others, "other job")) if others else ("", "free")


def _square(style: str, title: str) -> None:
    square = ui.element("div").classes("w-4 h-4 rounded-sm border border-gray-500/60").style(style)
    if title:
        square.props["title"] = square.props["aria-label"] = shown(title)
