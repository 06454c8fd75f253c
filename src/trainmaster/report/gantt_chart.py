"""The Gantt charts of the busiest hour as SVG."""

from __future__ import annotations

from html import escape

from trainmaster.model.units import to_seconds
from trainmaster.report import axes, palette, svg
from trainmaster.report.axes import Axis
from trainmaster.report.gantt import Bar, Gantt, Stay
from trainmaster.report.step_function import Window
from trainmaster.report.svg import Panel
from trainmaster.text import formatting as wording

LEFT, WIDTH, TOP = 72.0, 1_084.0, 6.0
THIN_ABOVE = 64
THINNEST_WITH_GAP = 4.0
SMALLEST_LABEL = 12.0
WINDOW_TITLE = "Time into the hour"


def gantt_chart(chart: Gantt, window: Window, origin_s: float) -> str:
    if not chart.stays:
        return svg.nothing_to_draw(svg.WIDE, "No GPU was held in this hour.")
    lane = lane_height(chart)
    panel = Panel(LEFT, TOP, WIDTH, lane * chart.gpus)
    x = axes.elapsed_axis(to_seconds(window.length_ms), WINDOW_TITLE)
    drawn = [svg.rect(LEFT, TOP, WIDTH, panel.height, "idle"), svg.vertical_grid(panel, x)]
    drawn.append(svg.bottom_axis(panel, x))
    drawn.extend(_stay(stay, panel, x, lane, window, origin_s) for stay in chart.stays)
    drawn.extend(_rows(chart, panel, lane))
    label = f"GPUs held under {chart.contender.label}"
    return svg.drawing(svg.WIDE, panel.bottom + 52, label, drawn)


def lane_height(chart: Gantt) -> float:
    """Pixels for one GPU: tall on a small cluster, a thin line of its node's row on a large one."""
    if chart.gpus <= THIN_ABOVE:
        return max(8.0, min(22.0, 320.0 / chart.gpus))
    return max(3.4, 640.0 / chart.gpus)


def _rows(chart: Gantt, panel: Panel, lane: float) -> list[str]:
    drawn = []
    free_from = panel.top
    for row in chart.rows:
        top, height = panel.top + row.first_gpu * lane, row.gpus * lane
        drawn.append(svg.line(panel.left, top, panel.right, top, "row"))
        if top + height / 2 - SMALLEST_LABEL / 2 >= free_from - 1:
            name = wording.shortened(row.label, 9)
            drawn.append(
                svg.text(panel.left - 8, top + height / 2 + 4, name, "fine end", row.label)
            )
            free_from = top + height / 2 + SMALLEST_LABEL / 2
    return drawn


def _stay(stay: Stay, panel: Panel, x: Axis, lane: float, window: Window, origin_s: float) -> str:
    drawn = []
    for bar in stay.bars:
        left = panel.x(x, to_seconds(bar.start_ms - window.start_ms))
        right = panel.x(x, to_seconds(bar.end_ms - window.start_ms))
        top, height = panel.top + bar.top * lane, bar.depth * lane
        gap = 0.5 if lane > THINNEST_WITH_GAP else 0.0
        drawn.append(svg.rect(left, top + gap, max(right - left - gap, 0.8), height - 2 * gap, ""))
        if stay.away_ms is not None and stay.stint.end_ms <= window.end_ms:
            drawn.append(svg.rect(max(right - 2.5, left), top + gap, 2.5, height - 2 * gap, "left"))
        drawn.append(_name(stay, bar, left, right, top, height))
    colour = stay.colour % len(palette.JOBS)
    job = escape(stay.stint.job_id)
    hover = f"<title>{escape(described(stay, origin_s))}</title>"
    return f'<g class="stay j{colour}" data-job="{job}">{hover}{"".join(drawn)}</g>'


def _name(stay: Stay, bar: Bar, left: float, right: float, top: float, height: float) -> str:
    """The job's id inside its first bar, where it fits."""
    if bar != stay.bars[0] or height < SMALLEST_LABEL:
        return ""
    if right - left < 14 + 6.6 * len(stay.stint.job_id):
        return ""
    return svg.text(left + 5, top + height / 2 + 4, stay.stint.job_id, "job")


def described(stay: Stay, origin_s: float) -> str:
    """What a pointer over a bar is told."""
    stint = stay.stint
    length_s = to_seconds(stint.end_ms - stint.start_ms)
    start_s, end_s = to_seconds(stint.start_ms) - origin_s, to_seconds(stint.end_ms) - origin_s
    when = f"{wording.clock(start_s)} to {wording.clock(end_s)} ({wording.duration(length_s)})"
    gpus = wording.plural(len(stint.gpus), "GPU")
    after = ""
    if stay.away_ms:
        after = f"\nthen off its GPUs for {wording.duration(to_seconds(stay.away_ms))}"
    elif stay.away_ms is not None:
        after = "\nthen moved at once"
    return f"{stint.job_id}\n{when}\n{gpus}{after}"
