"""Charts of distributions: completion times and finish-time fairness."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainmaster.report import axes, palette, svg
from trainmaster.report.axes import Axis
from trainmaster.report.series import Contender
from trainmaster.report.step_function import Steps, completion_times, rho_values, thinned_ranks
from trainmaster.report.svg import Panel
from trainmaster.text.formatting import RHO

PANEL = Panel(left=62, top=34, width=494, height=250)
HEIGHT = 336
FAIR_RHO = 1.0


@dataclass(frozen=True, slots=True)
class Drawn:
    """One policy's line."""

    contender: Contender
    steps: Steps


def jct_lines(contenders: Sequence[Contender]) -> tuple[Drawn, ...]:
    return _drawable([Drawn(each, completion_times(each.result)) for each in contenders])


def rho_lines(contenders: Sequence[Contender]) -> tuple[Drawn, ...]:
    return _drawable([Drawn(each, rho_values(each.result)) for each in contenders])


def jct_axis(lines: Sequence[Drawn]) -> Axis:
    return axes.log_duration_axis(*_range(lines), "Job completion time, log scale")


def rho_axis(lines: Sequence[Drawn]) -> Axis:
    low, high = _range(lines)
    title = f"{RHO}, log scale: completion time over that of a fair share"
    return axes.log_ratio_axis(min(low, FAIR_RHO / 2), max(high, FAIR_RHO * 2), title)


def jct_chart(lines: Sequence[Drawn]) -> str:
    if not lines:
        return svg.nothing_to_draw(svg.HALF, "No job finished.")
    return _chart(lines, jct_axis(lines), axes.share_axis("Part of all accepted jobs done"), ())


def rho_chart(lines: Sequence[Drawn]) -> str:
    if not lines:
        return svg.nothing_to_draw(svg.HALF, f"No job has a {RHO}.")
    x = rho_axis(lines)
    mark = svg.line(PANEL.x(x, FAIR_RHO), PANEL.top, PANEL.x(x, FAIR_RHO), PANEL.bottom, "mark")
    return _chart(lines, x, axes.share_axis("Part of the finished jobs"), (mark,))


def _chart(lines: Sequence[Drawn], x: Axis, y: Axis, marks: Sequence[str]) -> str:
    drawn = [
        svg.vertical_grid(PANEL, x),
        svg.bottom_axis(PANEL, x),
        svg.left_axis(PANEL, y),
        *marks,
    ]
    for each in reversed(lines):
        slot = each.contender.slot
        outline = _staircase(thinned_ranks(each.steps), x, y)
        stroke = svg.path(outline, "line", palette.policy_dash(slot))
        drawn.append(svg.group(f"series s{slot}", [stroke], each.contender.label))
    return svg.drawing(svg.HALF, HEIGHT, x.title, drawn)


def _staircase(steps: Steps, x: Axis, y: Axis) -> str:
    first = svg.number(PANEL.x(x, float(steps.xs[0])))
    corners = [f"M{first} {svg.number(PANEL.bottom)}"]
    for at, level in zip(steps.xs.tolist(), steps.ys.tolist(), strict=True):
        corners.append(f"H{svg.number(PANEL.x(x, at))}V{svg.number(PANEL.y(y, level))}")
    corners.append(f"H{svg.number(PANEL.right)}")
    return "".join(corners)


def _drawable(lines: Sequence[Drawn]) -> tuple[Drawn, ...]:
    return tuple(each for each in lines if not each.steps.is_empty)


def _range(lines: Sequence[Drawn]) -> tuple[float, float]:
    """Smallest positive and largest value: a log scale has no place for zero."""
    positive = [float(x) for each in lines for x in each.steps.xs[each.steps.xs > 0][:1]]
    return min(positive, default=1.0), max(float(each.steps.xs[-1]) for each in lines)
