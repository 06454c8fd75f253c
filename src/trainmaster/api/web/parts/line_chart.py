"""Lines or bars over time or over another number, readable on light and on dark paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nicegui import ui

from trainmaster.report.palette import policy_dash, policy_shade
from trainmaster.text.control_characters import visible_line
from trainmaster.text.formatting import shortened

GREY = "#8a919c"
Points = Sequence[Sequence[float | None]]


@dataclass(frozen=True, slots=True)
class Series:
    """One line: pairs of numbers; times are in milliseconds since 1970."""

    name: str
    points: Points
    is_area: bool = False


@dataclass(frozen=True, slots=True)
class Axes:
    """What the numbers are."""

    title: str
    x: str = "time"
    """An axis of ECharts: time, value or log."""
    x_name: str = ""
    least: float | None = 0
    most: float | None = None
    kind: str = "line"
    is_step: bool = False
    is_stacked: bool = False


def _dash(slot: int) -> Any:
    parts = policy_dash(slot).split()
    return [int(each) for each in parts] if parts else "solid"


def options(axes: Axes, lines: Sequence[Series]) -> dict[str, Any]:
    """For ECharts; names are plain text, since no HTML is made of them."""
    has_legend = len(lines) > 1
    return {
        "animation": False,
        "title": {
            "text": axes.title,
            "left": 0,
            "top": 0,
            "textStyle": {"fontSize": 13, "fontWeight": 500, "color": GREY},
        },
        "grid": {
            "left": 52,
            "right": 20,
            "top": 58 if has_legend else 34,
            "bottom": 40 if axes.x_name else 26,
        },
        "legend": {
            "show": has_legend,
            "type": "scroll",
            "top": 22,
            "left": 0,
            "textStyle": {"color": GREY},
        },
        "tooltip": {"trigger": "axis", "renderMode": "richText", "confine": True},
        "xAxis": {
            "type": axes.x,
            "name": axes.x_name,
            "nameLocation": "middle",
            "nameGap": 24,
            "nameTextStyle": {"color": GREY},
            "axisLabel": {"color": GREY, "hideOverlap": True},
            "axisLine": {"lineStyle": {"color": GREY}},
            "splitLine": {"show": False},
        },
        "yAxis": {
            "type": "value",
            "min": axes.least,
            "max": axes.most,
            "axisLabel": {"color": GREY},
            "splitLine": {"lineStyle": {"color": GREY, "opacity": 0.2}},
        },
        "series": [_series(axes, each, slot) for slot, each in enumerate(lines)],
    }


def _series(axes: Axes, line: Series, slot: int) -> dict[str, Any]:
    colour = policy_shade(slot).light
    made: dict[str, Any] = {
        "name": shortened(visible_line(line.name), 40),
        "type": axes.kind,
        "showSymbol": len(line.points) < 3,
        "itemStyle": {"color": colour},
        "lineStyle": {"width": 1.5, "color": colour, "type": _dash(slot)},
        "data": [list(each) for each in line.points],
        "barMaxWidth": 24,
    }
    if axes.is_step:
        made["step"] = "end"
    if axes.is_stacked:
        made["stack"] = "all"
    if line.is_area:
        made["areaStyle"] = {"color": colour, "opacity": 0.15}
    return made


class LineChart:
    """A chart that stays while its lines change."""

    def __init__(self, axes: Axes, classes: str = "w-full h-52") -> None:
        self._axes = axes
        self._chart = ui.echart(options(axes, [])).classes(classes)

    def show(self, lines: Sequence[Series], span: tuple[float, float] | None = None) -> None:
        """`span`: from where to where the first axis goes; None: as far as there are points."""
        made = options(self._axes, lines)
        if span is not None:
            made["xAxis"] |= {"min": span[0], "max": span[1]}
        if made != self._chart.options:
            self._chart.options.clear()
            self._chart.options.update(made)
            self._chart.update()

    def set_visibility(self, is_shown: bool) -> None:
        self._chart.set_visibility(is_shown)
