"""Charts over time: one strip per policy, above each other, on the same scales."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trainmaster.model.result import Curve, Result
from trainmaster.report import axes, svg
from trainmaster.report.axes import Axis
from trainmaster.report.series import Contender
from trainmaster.report.step_function import (
    SMOOTH_POINTS,
    Steps,
    from_curve,
    mean,
    smoothed,
    thinned,
)
from trainmaster.report.svg import Panel
from trainmaster.text import formatting as wording

LEFT, WIDTH = 62.0, 1_094.0
TOP, STRIP, GAP = 24.0, 78.0, 34.0


@dataclass(frozen=True, slots=True)
class Quantity:
    """Something followed over time."""

    slug: str
    title: str
    explained: str
    curve: Callable[[Result], Curve]
    worded: Callable[[float | None], str]
    is_share: bool

    def axis(self, strips: Sequence[Strip]) -> Axis:
        if self.is_share:
            return axes.Axis(0.0, 1.0, (axes.Tick(0.0, "0"), axes.Tick(1.0, "100 %")), "")
        highest = max((float(each.steps.ys.max()) for each in strips), default=1.0)
        return axes.count_axis(highest, "", wanted=3)


@dataclass(frozen=True, slots=True)
class Strip:
    """One policy's curve over the time since the first submission."""

    contender: Contender
    steps: Steps

    @property
    def is_dense(self) -> bool:
        """Too many steps to follow by eye: a mean is drawn over them."""
        return len(self.steps.xs) > SMOOTH_POINTS


def _jobs(value: float | None) -> str:
    return "not recorded" if value is None else f"{wording.significant(value)} jobs"


QUANTITIES = (
    Quantity(
        "utilisation",
        "Utilisation over time",
        "Part of the cluster's GPUs that make progress.",
        lambda result: result.utilisation,
        wording.share,
        is_share=True,
    ),
    Quantity(
        "queue_length",
        "Queue length over time",
        "Jobs that wait, suspended ones included.",
        lambda result: result.queue_length,
        _jobs,
        is_share=False,
    ),
    Quantity(
        "fragmentation",
        "Fragmentation over time",
        "Part of the free GPUs that lie on partly used nodes.",
        lambda result: result.fragmentation,
        wording.share,
        is_share=True,
    ),
)


def strips_of(
    quantity: Quantity, contenders: Sequence[Contender], origin_s: float
) -> tuple[Strip, ...]:
    """A strip for each policy that recorded the quantity."""
    strips = (Strip(each, from_curve(quantity.curve(each.result), origin_s)) for each in contenders)
    return tuple(strip for strip in strips if not strip.steps.is_empty)


def strips_chart(quantity: Quantity, strips: Sequence[Strip], x: Axis) -> str:
    if not strips:
        return svg.nothing_to_draw(svg.WIDE, "Not recorded.")
    y = quantity.axis(strips)
    drawn: list[str] = []
    bottom = TOP
    for row, strip in enumerate(strips):
        panel = Panel(LEFT, TOP + row * (STRIP + GAP), WIDTH, STRIP)
        drawn.append(_strip(strip, panel, x, y, quantity))
        bottom = panel.bottom
    drawn.append(svg.bottom_axis(Panel(LEFT, bottom - STRIP, WIDTH, STRIP), x))
    return svg.drawing(svg.WIDE, bottom + 52, quantity.title, drawn)


def _strip(strip: Strip, panel: Panel, x: Axis, y: Axis, quantity: Quantity) -> str:
    outline = _outline(thinned(strip.steps), panel, x, y)
    start = svg.number(panel.x(x, float(strip.steps.xs[0])))
    floor = svg.number(panel.bottom)
    parts = [
        svg.vertical_grid(panel, x),
        svg.left_axis(panel, y),
        svg.path(f"{outline}V{floor}H{start}Z", "area"),
        svg.path(outline, "line faint" if strip.is_dense else "line"),
    ]
    if strip.is_dense:
        parts.append(svg.path(_polyline(smoothed(strip.steps), panel, x, y), "line"))
    parts.append(svg.text(panel.left, panel.top - 8, strip.contender.label, "policy"))
    average = f"mean {quantity.worded(mean(strip.steps))}"
    parts.append(svg.text(panel.right, panel.top - 8, average, "tick end"))
    return svg.group(f"series s{strip.contender.slot}", parts)


def _outline(steps: Steps, panel: Panel, x: Axis, y: Axis) -> str:
    first = (panel.x(x, float(steps.xs[0])), panel.y(y, float(steps.ys[0])))
    corners = [f"M{svg.number(first[0])} {svg.number(first[1])}"]
    for at, level in zip(steps.xs[1:].tolist(), steps.ys[1:].tolist(), strict=True):
        corners.append(f"H{svg.number(panel.x(x, at))}V{svg.number(panel.y(y, level))}")
    return "".join(corners)


def _polyline(steps: Steps, panel: Panel, x: Axis, y: Axis) -> str:
    points = zip(steps.xs.tolist(), steps.ys.tolist(), strict=True)
    corners = (f"{svg.number(panel.x(x, at))} {svg.number(panel.y(y, v))}" for at, v in points)
    return "M" + "L".join(corners)
