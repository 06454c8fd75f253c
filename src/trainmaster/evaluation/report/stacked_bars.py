"""Stacked bars: why jobs of each size waited, a panel per contender."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainmaster.evaluation.report.dot_plot import WIDE
from trainmaster.report import axes, palette, svg
from trainmaster.report.svg import Panel
from trainmaster.text import formatting as wording
from trainmaster.text.formatting import HOUR_S

ROW, BAR = 24.0, 15.0
HEAD, FOOT = 30.0, 34.0
LEGEND = 26.0
NUMBERS = 74.0
COLUMNS = 3
CAUSES = ("fair share", "fragmentation", "contention")
"""In the order of the palette."""


@dataclass(frozen=True, slots=True)
class StackPanel:
    """One contender: job-seconds of waiting by cause, for each size."""

    title: str
    sizes: Mapping[str, tuple[float, float, float]]


def stacks(panels: Sequence[StackPanel], label: str) -> str:
    """Each bar is the whole waiting of its size, in parts; its length in job-hours stands beside it."""
    sizes = list(dict.fromkeys(size for panel in panels for size in panel.sizes))
    if not sizes:
        return svg.nothing_to_draw(WIDE, "Nobody waited.")
    gutter = 20 + 7.2 * max(len(size) for size in sizes)
    columns = min(COLUMNS, len(panels))
    pitch = WIDE / columns
    height = HEAD + ROW * len(sizes) + FOOT
    drawn = [_legend()]
    for place, panel in enumerate(panels):
        line, column = divmod(place, columns)
        frame = Panel(
            column * pitch + gutter,
            LEGEND + line * height + HEAD,
            pitch - gutter - NUMBERS - 14,
            ROW * len(sizes),
        )
        drawn.append(_panel(panel, sizes, frame))
    lines = -(-len(panels) // columns)
    return svg.drawing(WIDE, LEGEND + lines * height, label, drawn)


def _legend() -> str:
    drawn, x = [], 0.0
    for place, cause in enumerate(CAUSES[: len(palette.CAUSES)]):
        drawn.append(svg.rect(x, 2, 12, 12, f"cause{place}"))
        drawn.append(svg.text(x + 18, 12.5, cause, "tick"))
        x += 40 + 7.0 * len(cause)
    return "".join(drawn)


def _panel(panel: StackPanel, sizes: Sequence[str], frame: Panel) -> str:
    x = axes.share_axis("")
    drawn = [
        svg.text(frame.left, frame.top - 8, wording.shortened(panel.title, 34), "policy"),
        svg.vertical_grid(frame, x),
        svg.bottom_axis(frame, x),
    ]
    for place, size in enumerate(sizes):
        y = frame.top + place * ROW
        drawn.append(svg.text(frame.left - 8, y + ROW / 2 + 4.5, size, "tick end"))
        drawn.append(_bar(panel, size, Panel(frame.left, y, frame.width, ROW)))
    return "".join(drawn)


def _bar(panel: StackPanel, size: str, frame: Panel) -> str:
    parts = panel.sizes.get(size, (0.0, 0.0, 0.0))
    total = sum(parts)
    middle = frame.top + ROW / 2
    if total <= 0:
        return svg.text(frame.left + 6, middle + 4.5, "nobody waited", "absent")
    drawn, before = [], 0.0
    for place, (cause, seconds) in enumerate(zip(CAUSES, parts, strict=True)):
        width = frame.width * seconds / total
        hours = wording.significant(seconds / HOUR_S)
        said = (
            f"{panel.title}, {size}, {cause}: {hours} job-hours ({wording.share(seconds / total)})"
        )
        if width > 0:
            left = frame.left + before
            drawn.append(svg.rect(left, middle - BAR / 2, width, BAR, f"cause{place}", said))
        before += width
    hours = f"{wording.significant(total / HOUR_S)} h"
    drawn.append(svg.text(frame.right + NUMBERS, middle + 4.5, hours, "tick end"))
    return "".join(drawn)
