"""Axes with round ticks: linear, logarithmic, and time in the unit that suits its length."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trainmaster.text import formatting as wording
from trainmaster.text.formatting import DAY_S, HOUR_S, MINUTE_S


@dataclass(frozen=True, slots=True)
class Tick:
    at: float
    label: str


@dataclass(frozen=True, slots=True)
class Axis:
    """The range of a plot in one direction, its ticks and its title."""

    low: float
    high: float
    ticks: tuple[Tick, ...]
    title: str
    is_log: bool = False

    def fraction(self, value: float) -> float:
        """Where a value lies between the axis' ends, 0 to 1."""
        if self.is_log:
            value = max(value, self.low)
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


@dataclass(frozen=True, slots=True)
class TimeUnit:
    """A unit of time and the steps that look round in it."""

    symbol: str
    plural: str
    seconds: float
    round_steps: tuple[float, ...]


TIME_UNITS = (
    TimeUnit("s", "seconds", 1.0, ()),
    TimeUnit("min", "minutes", MINUTE_S, (1, 2, 5, 10, 15, 20, 30)),
    TimeUnit("h", "hours", HOUR_S, (1, 2, 3, 5, 6, 10, 12, 24)),
    TimeUnit("d", "days", DAY_S, ()),
)
DURATION_LADDER = (
    *(Tick(ms / 1_000, f"{ms} ms") for ms in (1, 10, 100)),
    *(Tick(s, f"{s} s") for s in (1, 10)),
    *(Tick(m * MINUTE_S, f"{m} min") for m in (1, 10)),
    *(Tick(h * HOUR_S, f"{h} h") for h in (1, 6)),
    *(Tick(d * DAY_S, f"{d:,} d") for d in (1, 7, 30, 100, 1_000, 10_000)),
)
FINE_DURATION_LADDER = (
    *(Tick(s, f"{s} s") for s in (1, 2, 5, 10, 20, 30)),
    *(Tick(m * MINUTE_S, f"{m} min") for m in (1, 2, 5, 10, 20, 30)),
    *(Tick(h * HOUR_S, f"{h} h") for h in (1, 2, 3, 6, 12)),
    *(Tick(d * DAY_S, f"{d:,} d") for d in (1, 2, 4, 7, 14, 30, 60, 100, 200)),
)
FEWEST_RUNGS = 3
"""A scale with fewer ticks is hard to read: finer ones are taken."""
CLOSEST_LABELS = 0.085
"""Part of an axis that a label needs for itself."""


def time_unit(longest_s: float) -> TimeUnit:
    """The largest unit that a length holds at least twice."""
    fitting = [unit for unit in TIME_UNITS if longest_s >= 2 * unit.seconds]
    return fitting[-1] if fitting else TIME_UNITS[0]


def share_axis(title: str) -> Axis:
    ticks = tuple(Tick(part / 4, f"{25 * part} %") for part in range(5))
    return Axis(0.0, 1.0, ticks, title)


def count_axis(highest: float, title: str, wanted: int = 4) -> Axis:
    """From 0 to a round number at or above `highest`, in whole steps."""
    step = max(1.0, _round_step(highest / wanted))
    return _from_zero(max(highest, 1.0), step, 1.0, title)


def amount_axis(highest: float, title: str, wanted: int = 4) -> Axis:
    """From 0 to a round number at or above `highest`."""
    high = highest if highest > 0 else 1.0
    return _from_zero(high, _round_step(high / wanted), 1.0, title)


def duration_axis(highest_s: float, title: str, wanted: int = 4) -> Axis:
    """Lengths of time from 0, in one unit that the title names."""
    high = highest_s if highest_s > 0 else 1.0
    unit = time_unit(high)
    step = _time_step(high / unit.seconds / wanted, unit)
    return _from_zero(high, step, unit.seconds, f"{title} ({unit.plural})")


def elapsed_axis(span_s: float, title: str, wanted: int = 8) -> Axis:
    """Time from 0 to exactly `span_s`, in one unit that the title names."""
    span = span_s if span_s > 0 else 1.0
    unit = time_unit(span)
    step = _time_step(span / unit.seconds / wanted, unit)
    number = int(span / unit.seconds / step + 1e-9) + 1
    ticks = tuple(Tick(i * step * unit.seconds, _number(i * step)) for i in range(number))
    return Axis(0.0, span, ticks, f"{title} ({unit.plural})")


def log_duration_axis(lowest_s: float, highest_s: float, title: str) -> Axis:
    for ladder in (DURATION_LADDER, FINE_DURATION_LADDER):
        if sum(lowest_s <= tick.at <= highest_s for tick in ladder) >= FEWEST_RUNGS:
            return _log_axis(lowest_s, highest_s, title, ladder, wording.duration)
    rungs = _even_rungs(lowest_s, max(highest_s, 1.5 * lowest_s))
    return _log_axis(lowest_s, highest_s, title, rungs, wording.duration)


def _even_rungs(lowest_s: float, highest_s: float) -> tuple[Tick, ...]:
    """For a narrow range: even steps that look round in the unit that suits its upper end."""
    unit = time_unit(highest_s)
    step = _time_step((highest_s - lowest_s) / unit.seconds / 5, unit)
    first, last = (end / unit.seconds / step for end in (lowest_s / 1.5, highest_s * 1.5))
    numbers = [step * place for place in range(math.ceil(first), int(last) + 1)]
    return tuple(Tick(n * unit.seconds, f"{_number(n)} {unit.symbol}") for n in numbers)


def log_ratio_axis(lowest: float, highest: float, title: str) -> Axis:
    return _log_axis(lowest, highest, title, RATIO_LADDER, _number)


def _log_axis(
    lowest: float,
    highest: float,
    title: str,
    ladder: Sequence[Tick],
    label: Callable[[float], str],
) -> Axis:
    low = max(lowest, 0.001)
    high = max(highest, low)
    if high < 1.5 * low:
        low, high = low / 1.5, high * 1.5
    inside = [tick for tick in ladder if low <= tick.at <= high]
    if len(inside) < FEWEST_RUNGS:
        step = _round_step((high - low) / 5)
        multiples = range(math.ceil(low / step), int(high / step) + 1)
        inside = [Tick(step * i, label(step * i)) for i in multiples]
    bare = Axis(low, high, (), title, is_log=True)
    ticks: list[Tick] = []
    for tick in inside:
        if not ticks or bare.fraction(tick.at) - bare.fraction(ticks[-1].at) >= CLOSEST_LABELS:
            ticks.append(tick)
    return Axis(low, high, tuple(ticks), title, is_log=True)


def _from_zero(highest: float, step: float, scale: float, title: str) -> Axis:
    number = math.ceil(highest / scale / step - 1e-9)
    ticks = tuple(Tick(i * step * scale, _number(i * step)) for i in range(number + 1))
    return Axis(0.0, ticks[-1].at, ticks, title)


def _time_step(rough: float, unit: TimeUnit) -> float:
    fitting = [step for step in unit.round_steps if step >= rough]
    return fitting[0] if fitting and rough >= 0.5 else _round_step(rough)


def _round_step(rough: float) -> float:
    """The next of 1, 2, 5 times a power of ten."""
    if rough <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))


def _number(value: float) -> str:
    rounded = round(value, 9)
    return f"{rounded:,.0f}" if rounded == int(rounded) else f"{rounded:g}"


RATIO_LADDER = tuple(
    Tick(factor * 10.0**power, _number(factor * 10.0**power))
    for power in range(-3, 9)
    for factor in (1, 2, 5)
)
