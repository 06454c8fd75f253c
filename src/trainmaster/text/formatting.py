"""Numbers, durations and lists for users: 2.5 h, 12,345, 71 %, 8.4 times."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from trainmaster.model.units import DAY, GIB, HOUR, MIB, MINUTE, SECOND, WHOLE

MINUTE_S = 60.0
HOUR_S = 3_600.0
DAY_S = 86_400.0
UNITS = ((DAY_S, "d"), (HOUR_S, "h"), (MINUTE_S, "min"))
"""A length of time has the largest unit of which it has at least two."""
SHORT_UNITS = ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "m"), (60, "m", 1, "s"))
ABSENT = "\N{EN DASH}"
RHO = "\N{GREEK SMALL LETTER RHO}"
TIMES = "\N{MULTIPLICATION SIGN}"


def significant(value: float, digits: int = 3) -> str:
    """Three significant digits, thousands grouped, never an exponent."""
    if value == 0:
        return "0"
    whole_digits = len(str(int(abs(value)))) if abs(value) >= 1 else 0
    if whole_digits >= digits:
        return f"{value:,.0f}"
    text = f"{value:.{digits - whole_digits}f}"
    return text.rstrip("0").rstrip(".") if whole_digits == 0 else text


def duration(seconds: float | None) -> str:
    """A duration in its natural unit."""
    if seconds is None:
        return ABSENT
    if 0 < seconds < 1:
        return f"{significant(seconds * 1_000)} ms"
    unit_s, unit = next((each for each in UNITS if seconds >= 2 * each[0]), (1.0, "s"))
    return f"{_tidy(seconds / unit_s)} {unit}"


def clock(seconds: float) -> str:
    """A moment after the start: 3 d 04:12:05."""
    days, rest = divmod(round(seconds), int(DAY_S))
    hours, rest = divmod(rest, int(HOUR_S))
    minutes, left = divmod(rest, int(MINUTE_S))
    day = f"{days:,} d " if days else ""
    return f"{day}{hours:02}:{minutes:02}:{left:02}"


def length(ms: int) -> str:
    """A length of time in one or two whole units: `45 s`, `3 min`, `2 h 10 min`, `3 d 4 h`."""
    if ms < MINUTE:
        return f"{ms / SECOND:.0f} s" if ms >= SECOND else f"{ms / SECOND:.1f} s"
    if ms < HOUR:
        return f"{ms // MINUTE} min"
    large, small, unit, part, each = (
        (DAY, HOUR, "d", "h", 24) if ms >= DAY else (HOUR, MINUTE, "h", "min", 60)
    )
    rest = ms // small % each
    return f"{ms // large} {unit} {rest} {part}" if rest else f"{ms // large} {unit}"


def short_length(seconds: float) -> str:
    """A length of time for a column, by its two largest units: `3m12s`, `2d04h`."""
    whole = max(0, int(seconds))
    for size, unit, smaller, part in SHORT_UNITS:
        if whole >= size:
            return f"{whole // size}{unit}{whole % size // smaller:02}{part}"
    return f"{whole}s"


def exact_length(ms: int) -> str:
    """A length of time as people write it in a job file: `1m`, `1h30m`, `2d`, `0.5s`."""
    parts, rest = [], ms
    for size, unit in ((DAY, "d"), (HOUR, "h"), (MINUTE, "m")):
        count, rest = divmod(rest, size)
        parts += [f"{count}{unit}"] if count else []
    parts += [f"{rest / SECOND:g}s"] if rest or not parts else []
    return "".join(parts)


def about(ms: int) -> str:
    """A length of time to the nearest unit that is shown: 59 min 58 s is `1 h`."""
    unit = SECOND if ms < MINUTE - SECOND // 2 else MINUTE if ms < DAY - MINUTE // 2 else HOUR
    return length((ms + unit // 2) // unit * unit)


def when(ms: int, now: int) -> str:
    """`in 5 min`, `now`, `5 min ago`."""
    if abs(ms - now) < SECOND:
        return "now"
    return f"in {about(ms - now)}" if ms > now else f"{about(now - ms)} ago"


def utc_time(ms: int) -> str:
    """A date and time of day, in UTC."""
    return datetime.fromtimestamp(ms / SECOND, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def size(count: int) -> str:
    """A number of bytes in the largest unit of which it has at least one: `1.5 GiB`, `98 MiB`, `12 bytes`."""
    if count >= GIB:
        return f"{count / GIB:.1f} GiB"
    unit, name = (MIB, "MiB") if count >= MIB else (1 << 10, "KiB")
    return f"{count / unit:.0f} {name}" if count >= unit else plural(count, "byte")


def gpus(thousandths: int) -> str:
    """`8`, `0.5`."""
    return f"{thousandths / WHOLE:g}"


def gpu_count(thousandths: int) -> str:
    """`8 GPUs`, `1 GPU`, `0.5 GPU`."""
    return f"{gpus(thousandths)} GPU{'s' if thousandths > WHOLE else ''}"


def share(value: float | None) -> str:
    return ABSENT if value is None else f"{100 * value:.1f} %"


def count(value: int | None) -> str:
    return ABSENT if value is None else f"{value:,}"


def decimal(value: float | None) -> str:
    return ABSENT if value is None else significant(value)


def step_rate(steps_per_s: float) -> str:
    """`3.4 steps/s`, and `12 s/step` where a step takes longer than a second."""
    if steps_per_s >= 1:
        return f"{significant(steps_per_s)} steps/s"
    return f"{significant(1 / max(steps_per_s, 1e-9))} s/step"


def listing(names: list[str]) -> str:
    """Names as in a sentence: a, b and c."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def first_of(names: Sequence[str], most: int) -> str:
    """The first names of a list that may be long: a, b, …"""
    return ", ".join(names[:most]) + (", …" if len(names) > most else "")


def shortened(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def plural(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def as_sentence(text: str) -> str:
    """On one line and with its full stop."""
    line = " ".join(text.split())
    return line if line.endswith((".", "?", "!", "…")) else f"{line}."


def _tidy(value: float) -> str:
    """Three digits, so that a column lines up, but a whole number as such."""
    return f"{value:,.0f}" if value == int(value) else significant(value)
