"""Policies side by side: their metrics with the best marked, and how their jobs fared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nicegui import ui

from trainmaster.api.web.parts.line_chart import Axes, LineChart, Series
from trainmaster.api.web.parts.sheet import Column, Sheet
from trainmaster.text.control_characters import visible_line
from trainmaster.text.formatting import count, plural

CHARTS = (
    (
        "jct",
        Axes(
            "Jobs that have ended by, %",
            x="log",
            x_name="completion time, s",
            most=100,
            is_step=True,
        ),
        100,
    ),
    (
        "wait",
        Axes("Jobs that waited at most, %", x="log", x_name="wait, s", most=100, is_step=True),
        100,
    ),
    ("utilisation", Axes("Utilisation, %", x="value", x_name="hours", most=100), 100),
    ("queue_length", Axes("Jobs that wait", x="value", x_name="hours", is_step=True), 1),
)
LEAST_S = 1.0
"""A logarithm has no 0: what took less is drawn there."""
HOUR_S = 3600.0


class PolicyComparison:
    """Of a result of the policy lab."""

    def __init__(self, result: Mapping[str, Any]) -> None:
        said = (
            f"{plural(result['jobs'], 'job')} of {result['trace']} on {result['cluster']}"
            f" ({count(result['gpus'])} GPUs). The best of each row is marked."
        )
        ui.label(visible_line(said)).classes("text-sm opacity-70 break-words")
        self._table(result)
        with ui.element("div").classes("w-full grid grid-cols-1 md:grid-cols-2 gap-4"):
            for key, axes, scale in CHARTS:
                lines = [_series(run, key, axes, scale) for run in result["runs"]]
                LineChart(axes, "w-full h-64").show(lines)
        warnings = dict.fromkeys(said for run in result["runs"] for said in run["warnings"])
        for warning in warnings:
            ui.label(visible_line(warning)).classes("text-sm opacity-70 break-words")

    def _table(self, result: Mapping[str, Any]) -> None:
        """A row for each metric, a column for each policy."""
        policies: Sequence[str] = result["policies"]
        columns = [Column("metric", "metric")]
        columns += [
            Column(f"p{n}", name, is_number=True, is_marked=True) for n, name in enumerate(policies)
        ]
        columns.append(Column("hint", "what it is", wraps=True))
        sheet = Sheet(columns, key="metric", empty="There is nothing to compare.")
        sheet.show(_row(metric) for metric in result["metrics"])


def _row(metric: Mapping[str, Any]) -> Mapping[str, Any]:
    cells: dict[str, Any] = {"metric": metric["label"], "hint": metric["hint"]}
    for n, words in enumerate(metric["words"]):
        cells[f"p{n}"] = (metric["values"][n] or 0, words)
        cells[f"p{n}__best"] = metric["best"][n]
    return cells


def _series(run: Mapping[str, Any], key: str, axes: Axes, scale: float) -> Series:
    if axes.x == "log":
        points = [[max(LEAST_S, x), round(scale * y, 3)] for x, y in run[key]]
    else:
        points = [[round(x / HOUR_S, 4), round(scale * y, 3)] for x, y in run[key]]
    return Series(run["policy"], points)
