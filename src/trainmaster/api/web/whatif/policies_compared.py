"""Policies side by side: numbers with the best marked; JCT, waits by queue and utilisation as charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nicegui import ui

from trainmaster.api.web.parts.line_chart import GREY, Axes, LineChart, Series
from trainmaster.report.palette import policy_shade
from trainmaster.text.compared_numbers import NUMBERS
from trainmaster.text.control_characters import visible_line
from trainmaster.text.formatting import ABSENT, shortened

MOST_NAME = 40
Side = Mapping[str, Any]
"""A column as the API has it (`WhatIfSide`): its name, numbers by key, `queues` with their waits, `jct_curve`
and `used_curve`."""


class PoliciesCompared:
    """`show` replaces all of it."""

    def __init__(self) -> None:
        self._table = ui.element("div").classes("w-full overflow-x-auto")
        with ui.grid().classes("w-full grid-cols-1 lg:grid-cols-2 gap-4"):
            self._jct = LineChart(
                Axes("Part of the jobs that are done within this time", "log", "JCT in s", most=1)
            )
            self._waits = ui.echart({}).classes("w-full h-52")
            self._used = LineChart(
                Axes("Devices that jobs hold", is_step=True), "w-full h-52 lg:col-span-2"
            )

    def show(self, sides: Sequence[Side]) -> None:
        self._show_table(sides)
        self._jct.show([Series(each["name"], _positive(each["jct_curve"])) for each in sides])
        self._used.show(
            [
                Series(each["name"], [[at_s * 1000, used] for at_s, used in each["used_curve"]])
                for each in sides
            ]
        )
        self._waits.options.clear()
        self._waits.options.update(waits_by_queue(sides))
        self._waits.update()

    def _show_table(self, sides: Sequence[Side]) -> None:
        self._table.clear()
        shown = [n for n in NUMBERS if any(side.get(n.key) is not None for side in sides)]
        columns = f"minmax(8rem, auto) repeat({len(sides)}, minmax(7rem, auto))"
        with (
            self._table,
            ui.grid(columns=columns).classes("gap-x-6 gap-y-1 text-sm").props("role=table"),
        ):
            ui.label()
            for side in sides:
                ui.label(_short(side["name"])).classes("font-medium text-right break-words")
            for number in shown:
                ui.label(number.label).tooltip(number.hint) if number.hint else ui.label(
                    number.label
                )
                simulated = [each for each in sides if each.get("kind") != "real"]
                best = number.best([each.get(number.key) for each in simulated])
                for side in sides:
                    text = number.words(side.get(number.key))
                    is_best = text == best and text != ABSENT and side.get("kind") != "real"
                    ui.label(f"{text} \N{BLACK STAR}" if is_best else text).classes(
                        "text-right" + (" text-positive font-bold" if is_best else "")
                    ).mark(f"{number.key}")


def _positive(curve: Sequence[Sequence[float]]) -> list[list[float]]:
    """A logarithmic axis has no 0."""
    return [[max(jct_s, 0.001), part] for jct_s, part in curve]


def _short(name: str) -> str:
    return shortened(visible_line(name), MOST_NAME)


def waits_by_queue(sides: Sequence[Side]) -> dict[str, Any]:
    """Mean waits, a bar for each side in each queue; for ECharts."""
    queues = list(dict.fromkeys(each["queue"] for side in sides for each in side["queues"]))
    waits = [{each["queue"]: each["mean_wait_s"] for each in side["queues"]} for side in sides]
    return {
        "animation": False,
        "title": {
            "text": "Mean wait by queue, in s",
            "left": 0,
            "top": 0,
            "textStyle": {"fontSize": 13, "fontWeight": 500, "color": GREY},
        },
        "grid": {"left": 52, "right": 20, "top": 58, "bottom": 26},
        "legend": {"type": "scroll", "top": 22, "left": 0, "textStyle": {"color": GREY}},
        "tooltip": {"trigger": "axis", "renderMode": "richText", "confine": True},
        "xAxis": {
            "type": "category",
            "data": [_short(queue) for queue in queues],
            "axisLabel": {"color": GREY},
        },
        "yAxis": {
            "type": "value",
            "axisLabel": {"color": GREY},
            "splitLine": {"lineStyle": {"color": GREY, "opacity": 0.2}},
        },
        "series": [
            {
                "name": _short(side["name"]),
                "type": "bar",
                "barMaxWidth": 28,
                "itemStyle": {"color": policy_shade(slot).light},
                "data": [by.get(queue) for queue in queues],
            }
            for slot, (side, by) in enumerate(zip(sides, waits, strict=True))
        ],
    }
