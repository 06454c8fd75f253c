"""Loss, speed, and use of GPUs over time, as charts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nicegui import ui

from trainmaster.report.palette import POLICIES

Point = tuple[float, float | None]
GIB = 2**30
GREY = "#8a919c"
"""To be read on light and on dark paper."""
GAP = 3
"""Pieces of time without a point, after which a line is interrupted."""


def chart_options(name: str, unit: str, points: Sequence[Point], colour: str, **axis: Any) -> Any:
    """One line over time; its words are ours, so its tooltip names nothing that a user wrote."""
    return {
        "animation": False,
        "grid": {"left": 56, "right": 16, "top": 34, "bottom": 24},
        "title": {
            "text": f"{name}, {unit}" if unit else name,
            "left": 4,
            "top": 4,
            "textStyle": {"fontSize": 13, "fontWeight": 500, "color": GREY},
        },
        "tooltip": {"trigger": "axis", "renderMode": "richText", "confine": True},
        "xAxis": {
            "type": "time",
            "axisLabel": {"color": GREY, "hideOverlap": True},
            "axisLine": {"lineStyle": {"color": GREY}},
        },
        "yAxis": {
            "type": "value",
            "axisLabel": {"color": GREY},
            "splitLine": {"lineStyle": {"color": GREY, "opacity": 0.2}},
            **axis,
        },
        "series": [
            {
                "name": name,
                "type": "line",
                "showSymbol": len(points) < 2,
                "lineStyle": {"width": 1.5, "color": colour},
                "itemStyle": {"color": colour},
                "data": [[round(at * 1000), value] for at, value in points],
            }
        ],
    }


def with_gaps(points: Iterable[Point], every_s: float) -> list[Point]:
    """Without a line over times when it ran nowhere."""
    found: list[Point] = []
    for point in points:
        if found and point[0] - found[-1][0] > GAP * max(every_s, 1):
            found.append((found[-1][0] + every_s, None))
        found.append(point)
    return found


def charts_of(curves: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """What there is to draw of the API's curves: names and options."""
    reports, every_s = curves["progress"], curves["gpu_every_s"]
    loss = [(each["at_s"], each["loss"]) for each in reports]
    speed = [(each["at_s"], each["steps_per_s"]) for each in reports]
    gpu = curves["gpu"]
    util = [(p["at_s"], None if p["util"] is None else round(100 * p["util"], 1)) for p in gpu]
    memory = [(p["at_s"], round(p["memory_bytes"] / GIB, 3)) for p in gpu]
    drawn: tuple[tuple[str, str, Sequence[Point], dict[str, Any]], ...] = (
        ("Loss", "", loss, {"scale": True}),
        ("Speed", "steps/s", speed, {"min": 0}),
        ("GPU utilisation", "%", with_gaps(util, every_s), {"min": 0, "max": 100}),
        ("GPU memory", "GiB", with_gaps(memory, every_s), {"min": 0}),
    )
    return [
        (name, chart_options(name, unit, points, POLICIES[number].light, **axis))
        for number, (name, unit, points, axis) in enumerate(drawn)
        if any(value is not None for _, value in points)
    ]


class Curves:
    """Charts that stay while their lines grow."""

    def __init__(self) -> None:
        self._place = ui.element("div").classes("w-full grid grid-cols-1 md:grid-cols-2 gap-2")
        self._charts: dict[str, ui.echart] = {}
        self._said = ui.label().classes("text-sm opacity-70")

    def show(self, curves: Mapping[str, Any]) -> None:
        charts = charts_of(curves)
        for name, options in charts:
            if name in self._charts:
                self._charts[name].options.clear()
                self._charts[name].options.update(options)
                self._charts[name].update()
            else:
                with self._place:
                    self._charts[name] = ui.echart(options).classes("w-full h-44")
        said = [] if curves["progress"] else [NO_PROGRESS]
        self._said.set_text(" ".join(filter(None, [*said, curves["gpu_sentence"]])))


NO_PROGRESS = "It has reported no progress, so there are no curves of loss and speed."
