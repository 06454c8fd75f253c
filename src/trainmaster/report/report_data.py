"""All that the plots show, worked out once for the page, the images and the CSV files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainmaster.model.result import Result
from trainmaster.report import axes
from trainmaster.report.axes import Axis
from trainmaster.report.cdf_chart import Drawn, jct_lines, rho_lines
from trainmaster.report.gantt import GanttHour, gantt_hour
from trainmaster.report.series import Contender, line_up
from trainmaster.report.step_function import first_submit_s
from trainmaster.report.timeseries_chart import QUANTITIES, Quantity, Strip, strips_of


@dataclass(frozen=True, slots=True)
class Followed:
    """A quantity over time under every policy that recorded it."""

    quantity: Quantity
    strips: tuple[Strip, ...]


@dataclass(frozen=True, slots=True)
class Findings:
    """The comparison, ready to be drawn."""

    contenders: tuple[Contender, ...]
    origin_s: float
    """The first submission: where the time of every plot begins."""
    jct: tuple[Drawn, ...]
    rho: tuple[Drawn, ...]
    followed: tuple[Followed, ...]
    time: Axis
    """One axis for every quantity, as long as the longest curve."""
    hour: GanttHour | None


def find(results: Sequence[Result]) -> Findings:
    """Work out everything that is drawn."""
    contenders = line_up(results)
    origin_s = first_submit_s(results)
    followed = tuple(
        Followed(quantity, strips_of(quantity, contenders, origin_s)) for quantity in QUANTITIES
    )
    ends = [float(strip.steps.xs[-1]) for each in followed for strip in each.strips]
    return Findings(
        contenders=contenders,
        origin_s=origin_s,
        jct=jct_lines(contenders),
        rho=rho_lines(contenders),
        followed=followed,
        time=axes.elapsed_axis(max(ends, default=0.0), "Time since the first submission"),
        hour=gantt_hour(contenders),
    )
