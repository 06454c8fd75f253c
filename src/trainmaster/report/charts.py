"""Charts by matplotlib: each is drawn once, and written for pages, slides and papers.

The SVG refers to the page's colours by name, so that it follows the reader's light or dark setting, and
carries the words that a pointer over a mark shows. The same data give the same bytes.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import wraps
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

from trainmaster.report import palette
from trainmaster.text.formatting import DAY_S, HOUR_S, MINUTE_S, duration

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDE_IN, HALF_IN = 12.3, 6.0
TITLE_IN = 0.4
"""Above every drawing: where its PNG has a title, which a page has elsewhere."""
PNG_DPI = 150
STAMPS = {"png": "Software", "svg": "Date", "pdf": "CreationDate"}
"""Metadata that would make two equal charts differ."""
INK, SOFT, HAIR, AXIS, CARD, IDLE = (palette.PAPER[name].light for name in palette.PAPER)
STYLE = Path(__file__).with_name("house.mplstyle")
COLOURS: dict[Any, Any] = {
    "text.color": INK,
    "figure.facecolor": CARD,
    "axes.edgecolor": AXIS,
    "grid.color": HAIR,
    **dict.fromkeys(("axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor"), SOFT),
}


@dataclass(frozen=True, slots=True)
class TimeUnit:
    """A unit of time, and the steps of an axis that look round in it."""

    symbol: str
    plural: str
    seconds: float
    steps: tuple[float, ...]


TIME_UNITS = (
    TimeUnit("s", "seconds", 1.0, (1, 2, 5, 10)),
    TimeUnit("min", "minutes", MINUTE_S, (1, 1.5, 2, 3, 5, 10)),
    TimeUnit("h", "hours", HOUR_S, (1, 1.2, 2, 2.4, 3, 5, 6, 10)),
    TimeUnit("d", "days", DAY_S, (1, 2, 5, 10)),
)
DURATIONS = {
    **{ms / 1_000: f"{ms} ms" for ms in (1, 10, 100)},
    **{float(s): f"{s} s" for s in (1, 10)},
    **{m * MINUTE_S: f"{m} min" for m in (1, 10)},
    **{h * HOUR_S: f"{h} h" for h in (1, 6)},
    **{d * DAY_S: f"{d:,} d" for d in (1, 7, 30, 100, 1_000, 10_000)},
}
"""Round lengths of time, and how they are written."""
RATIOS = tuple(factor * 10.0**power for power in range(-3, 9) for factor in (1, 2, 5))
FEWEST_TICKS = 3
CLOSEST_TICKS = 0.085
"""Part of a logarithmic axis that a label needs for itself."""


def time_unit(longest_s: float) -> TimeUnit:
    """The largest unit that a length holds at least twice."""
    fitting = [unit for unit in TIME_UNITS if longest_s >= 2 * unit.seconds]
    return fitting[-1] if fitting else TIME_UNITS[0]


@dataclass(frozen=True, slots=True)
class Mark:
    """Attributes that a page adds to a part of a drawing: classes, data for scripts, a tooltip."""

    css: str
    title: str = ""
    job: str | None = None

    def open_tag(self) -> str:
        job = "" if self.job is None else f' data-job="{escape(self.job)}"'
        title = f"<title>{escape(self.title)}</title>" if self.title else ""
        return f'<g class="{self.css}"{job}>{title}'


P = ParamSpec("P")


def styled(draw: Callable[P, Chart]) -> Callable[P, Chart]:
    """Draw in the house style; matplotlib is loaded when the first chart is drawn."""

    @wraps(draw)
    def styled_draw(*args: P.args, **kwargs: P.kwargs) -> Chart:
        import matplotlib as mpl

        with mpl.rc_context(COLOURS, STYLE):
            return draw(*args, **kwargs)

    return styled_draw


class Chart:
    """One drawing."""

    def __init__(self, label: str, width_in: float, height_in: float) -> None:
        from matplotlib.figure import Figure

        self.label = label
        self.figure: Figure = Figure((width_in, height_in + TITLE_IN), layout="constrained")
        below_title = (0, 0, 1, height_in / (height_in + TITLE_IN))
        self.figure.get_layout_engine().set(rect=below_title)  # type: ignore[call-arg, union-attr]
        self._marks: list[Mark | Sequence[Mark]] = []

    def panels(self, rows: int = 1, columns: int = 1, **how: Any) -> list[Axes]:
        """Axes row by row."""
        return list(self.figure.subplots(rows, columns, squeeze=False, **how).flat)

    def mark(self, artist: Artist, css: str, title: str = "") -> None:
        artist.set_gid(f"mark-{len(self._marks)}")
        self._marks.append(Mark(css, title))

    def mark_each(self, collection: Artist, marks: Sequence[Mark]) -> None:
        """Mark the members of a collection one by one."""
        collection.set_gid(f"mark-{len(self._marks)}")
        self._marks.append(marks)

    def legend(self, handles: Sequence[Artist], names: Sequence[str]) -> None:
        """Below the plot, as many in a line as the figure's width allows."""
        letters = max((len(name) for name in names), default=1) + 6
        columns = max(1, min(len(names), int(self.figure.get_figwidth() * 12 / letters)))
        self.figure.legend(
            handles, names, loc="outside lower left", ncols=columns, fontsize=9.5, frameon=False
        )

    def svg(self) -> str:
        """To be put into a page."""
        stream = io.StringIO()
        self._save(stream, "svg", metadata={"Date": None, "Creator": None})
        text = re.sub(
            r"^.*?(?=<svg )|<metadata>.*?</metadata>|\s*\n\s*", " ", stream.getvalue(), flags=re.S
        )
        text = re.sub(r"<[^<>]+>", _with_named_colours, text)
        text = re.sub(r' d="[^"]*"', _shortened, text)
        text = re.sub(r'<g id="mark-(\d+)">((?: <path[^>]*/>)*)', self._marked, text)
        text = re.sub(r'<g id="[^"]*">', "<g>", text)
        width, height = (72 * inches for inches in self.figure.get_size_inches())
        top = 72 * TITLE_IN
        box = f'viewBox="0 {top:g} {width:g} {height - top:g}" role="img" '
        box += f'aria-label="{escape(self.label)}"'
        text = re.sub(
            r'width="[\d.]+pt" height="[\d.]+pt" viewBox="[^"]*"', lambda _: box, text, count=1
        )
        return text.strip()

    def _marked(self, found: re.Match[str]) -> str:
        mark = self._marks[int(found[1])]
        if isinstance(mark, Mark):
            return f"{mark.open_tag()}{found[2]}"
        each = iter(mark)
        return "<g>" + re.sub(
            r"<path[^>]*/>", lambda path: f"{next(each).open_tag()}{path[0]}</g>", found[2]
        )

    def png(self, title: str) -> bytes:
        """To be shown alone: with a heading."""
        return self.written(title, "png")

    def drawing(self, kind: str) -> bytes:
        """As SVG or PDF for papers: the drawing alone, in the colours of light paper, without a date."""
        from matplotlib.transforms import Bbox

        width, height = self.figure.get_size_inches()
        below_title = Bbox.from_bounds(0, 0, width, height - TITLE_IN)
        stream = io.BytesIO()
        self._save(stream, kind, metadata={STAMPS[kind]: None}, bbox_inches=below_title)
        return stream.getvalue()

    def written(self, title: str, kind: str) -> bytes:
        """As a file of that kind, with a heading and without a date."""
        height_in = self.figure.get_figheight()
        style: Any = {"fontsize": 14, "fontweight": "bold", "color": INK, "parse_math": False}
        heading = self.figure.text(0.01, 1 - 0.1 / height_in, title, va="top", **style)
        stream = io.BytesIO()
        self._save(stream, kind, dpi=PNG_DPI, metadata={STAMPS[kind]: None})
        heading.remove()
        return stream.getvalue()

    def _save(self, stream: Any, kind: str, **how: Any) -> None:
        import matplotlib as mpl

        with mpl.rc_context(COLOURS, STYLE), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a name in a script that the font lacks
            layout = self.figure.get_layout_engine()
            if layout is not None:  # once for all formats
                layout.execute(self.figure)
                self.figure.set_layout_engine(None)
            self.figure.savefig(stream, format=kind, **how)


def _with_named_colours(tag: re.Match[str]) -> str:
    """In tags alone: a job may be called #0072b2."""
    return re.sub(r"#[0-9a-f]{6}\b", palette.by_name, tag[0])


def _shortened(path: re.Match[str]) -> str:
    """Coordinates to a tenth of a point."""
    return re.sub(r"(\.\d)\d+", r"\1", path[0])


@styled
def empty_chart(why: str, width_in: float = WIDE_IN) -> Chart:
    """A chart's place when it has no data, with the reason in words."""
    chart = Chart(why, width_in, 1.0)
    (panel,) = chart.panels()
    panel.set_axis_off()
    panel.text(0.5, 0.5, why, ha="center", va="center", color=SOFT, style="italic")
    return chart


def standalone(svg: str) -> str:
    """A page's drawing as a separate file, with the colours of light and dark paper in it."""
    box = re.search(r'viewBox="0 [\d.]+ ([\d.]+) ([\d.]+)"', svg)
    assert box is not None
    size = f'<svg data-by="trainmaster" width="{box[1]}pt" height="{box[2]}pt" '
    return (
        svg.replace("<svg ", size, 1).replace("<defs>", f"<style>{palette.css()}</style><defs>", 1)
        + "\n"
    )


# -- axes --------------------------------------------------------------------------------------------


def set_share(axis: Any, title: str = "", parts: int = 4) -> None:
    """From 0 to 100 %."""
    values = [part / parts for part in range(parts + 1)]
    axis.axes.set(**{f"{axis.axis_name}lim": (0, 1.005)})
    axis.set_ticks(values, [f"{100 * value:g} %" for value in values])
    axis.set_label_text(title)


def set_linear(
    axis: Any, high: float, title: str, *, wanted: int = 4, ends_round: bool = True,
    unit: float = 1.0, steps: Sequence[float] = (1, 2, 5, 10), is_whole: bool = False,
) -> None:  # fmt: skip
    """From 0 to a round number at or above `high`, or to `high` itself."""
    from matplotlib.ticker import MaxNLocator

    high = high if high > 0 else unit
    places = MaxNLocator(wanted, steps=list(steps), integer=is_whole).tick_values(0, high / unit)
    end = float(places[-1]) * unit if ends_round else high
    kept = [float(place) for place in places if 0 <= place * unit <= end * (1 + 1e-9)]
    axis.set_ticks([place * unit for place in kept], [f"{round(place, 9):,g}" for place in kept])
    axis.axes.set(**{f"{axis.axis_name}lim": (0, end)})
    axis.set_label_text(title)


def set_duration(
    axis: Any, high_s: float, title: str, *, wanted: int = 4, ends_round: bool = True
) -> None:
    """Lengths of time from 0, in one unit that the title names."""
    unit = time_unit(high_s)
    set_linear(
        axis, high_s, f"{title} ({unit.plural})", wanted=wanted, ends_round=ends_round,
        unit=unit.seconds, steps=unit.steps,
    )  # fmt: skip


def set_log(
    axis: Any, low: float, high: float, title: str,
    ladder: Iterable[float] = RATIOS, words: Callable[[float], str] = "{:,g}".format,
) -> None:  # fmt: skip
    """Logarithmic, with the round values of the ladder, or evenly spaced ones where those are too few."""
    from math import log

    from matplotlib.ticker import MaxNLocator

    if high < 1.5 * low:
        low, high = low / 1.5, max(low, high) * 1.5
    inside = [value for value in ladder if low <= value <= high]
    if len(inside) < FEWEST_TICKS:
        even = MaxNLocator(5, steps=[1, 2, 5, 10]).tick_values(low, high)
        inside = [float(value) for value in even if low <= value <= high and value > 0]
    ticks: list[float] = []
    for value in inside:
        if not ticks or log(value / ticks[-1]) >= CLOSEST_TICKS * log(high / low):
            ticks.append(value)
    axis.axes.set(**{f"{axis.axis_name}scale": "log", f"{axis.axis_name}lim": (low, high)})
    axis.set_ticks(ticks, [words(value) for value in ticks])
    axis.set_ticks([], minor=True)
    axis.set_label_text(title)


def set_log_duration(axis: Any, low_s: float, high_s: float, title: str) -> None:
    set_log(axis, low_s, high_s, title, DURATIONS, lambda s: DURATIONS.get(s) or duration(s))


def dashes(slot: int) -> Any:
    """A line style that distinguishes policies of similar colours."""
    lengths = tuple(float(length) / 2 for length in palette.policy_dash(slot).split())
    return (0, lengths) if lengths else "-"
