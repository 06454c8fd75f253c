"""SVG elements as strings; looks come from the page's style sheet."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape

from trainmaster.report.axes import Axis

WIDE = 1_180
HALF = 580


@dataclass(frozen=True, slots=True)
class Panel:
    """The rectangle inside the axes."""

    left: float
    top: float
    width: float
    height: float

    @property
    def right(self) -> float:
        return self.left + self.width

    @property
    def bottom(self) -> float:
        return self.top + self.height

    def x(self, axis: Axis, value: float) -> float:
        return self.left + self.width * axis.fraction(value)

    def y(self, axis: Axis, value: float) -> float:
        return self.bottom - self.height * axis.fraction(value)


def drawing(width: float, height: float, label: str, parts: Iterable[str]) -> str:
    body = "".join(parts)
    return (
        f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(label)}">'
        f"{body}</svg>"
    )


def text(x: float, y: float, words: str, css: str = "", hover: str = "") -> str:
    return f'<text x="{number(x)}" y="{number(y)}"{_css(css)}>{escape(words)}{_title(hover)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, css: str) -> str:
    ends = f'x1="{number(x1)}" y1="{number(y1)}" x2="{number(x2)}" y2="{number(y2)}"'
    return f"<line {ends}{_css(css)}/>"


def rect(x: float, y: float, width: float, height: float, css: str, hover: str = "") -> str:
    box = f'x="{number(x)}" y="{number(y)}" width="{number(width)}" height="{number(height)}"'
    return (
        f"<rect {box}{_css(css)}>{_title(hover)}</rect>" if hover else f"<rect {box}{_css(css)}/>"
    )


def path(outline: str, css: str, dash: str = "") -> str:
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<path d="{outline}"{_css(css)}{dashed}/>'


def group(css: str, parts: Iterable[str], hover: str = "") -> str:
    return f"<g{_css(css)}>{_title(hover)}{''.join(parts)}</g>"


def number(value: float) -> str:
    """A coordinate to a tenth of a pixel, as short as it can be written."""
    text_form = f"{value:.1f}"
    return text_form[:-2] if text_form.endswith(".0") else text_form


def vertical_grid(panel: Panel, axis: Axis) -> str:
    places = [panel.x(axis, tick.at) for tick in axis.ticks]
    return "".join(line(x, panel.top, x, panel.bottom, "grid") for x in places)


def bottom_axis(panel: Panel, axis: Axis) -> str:
    """Labels and title of a horizontal axis."""
    parts = [
        text(panel.x(axis, tick.at), panel.bottom + 18, tick.label, "tick mid")
        for tick in axis.ticks
    ]
    parts.append(line(panel.left, panel.bottom, panel.right, panel.bottom, "axis"))
    if axis.title:
        middle = panel.left + panel.width / 2
        parts.append(text(middle, panel.bottom + 40, axis.title, "name mid"))
    return "".join(parts)


def left_axis(panel: Panel, axis: Axis) -> str:
    """Grid, labels and title of a vertical axis; the title lies above it, to be read upright."""
    parts = []
    for tick in axis.ticks:
        y = panel.y(axis, tick.at)
        parts.append(line(panel.left, y, panel.right, y, "grid"))
        parts.append(text(panel.left - 8, y + 4.5, tick.label, "tick end"))
    if axis.title:
        parts.append(text(panel.left, panel.top - 12, axis.title, "name"))
    return "".join(parts)


def nothing_to_draw(width: float, why: str) -> str:
    """A chart's place when it has no data, with the reason in words."""
    return drawing(width, 90, why, [text(width / 2, 50, why, "empty mid")])


def _css(names: str) -> str:
    return f' class="{names}"' if names else ""


def _title(words: str) -> str:
    return f"<title>{escape(words)}</title>" if words else ""
