"""GPU-hours over time, as bars: by the hour for some days, by the day for more."""

from __future__ import annotations

from typing import Any

from trainmaster.api.web.api_client import ApiClient
from trainmaster.api.web.parts.line_chart import Axes, LineChart, Series

FEW_DAYS_S = 3 * 86_400


def bucket(since_s: float, until_s: float) -> str:
    return "hour" if until_s - since_s <= FEW_DAYS_S else "day"


class UsageOverTime:
    """Of everybody, a queue or a user."""

    def __init__(self) -> None:
        axes = Axes("GPU-hours", kind="bar", is_stacked=True)
        self._chart = LineChart(axes, "w-full h-48")

    async def show(self, api: ApiClient, since_s: float, until_s: float, **only: Any) -> None:
        by = bucket(since_s, until_s)
        report = await api.get("/usage", by=by, since=since_s, **only)
        kept, lost = [], []
        for row in report["rows"]:
            at_ms = row["begin_s"] * 1000
            kept.append([at_ms, round(row["gpu_hours"] - row["lost_gpu_hours"], 4)])
            lost.append([at_ms, row["lost_gpu_hours"]])
        lines = [Series("work that was kept", kept), Series("lost work", lost)]
        self._chart.show(lines, (since_s * 1000, until_s * 1000))
