"""Numbers in the words of people: 2.5 h, 12,345, 71 %, 8.4 times."""

from __future__ import annotations

MINUTE_S = 60.0
HOUR_S = 3_600.0
DAY_S = 86_400.0
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
    """A length of time in the unit that a person would choose."""
    if seconds is None:
        return ABSENT
    if 0 < seconds < 1:
        return f"{significant(seconds * 1_000)} ms"
    if seconds < 2 * MINUTE_S:
        return f"{_tidy(seconds)} s"
    if seconds < 2 * HOUR_S:
        return f"{_tidy(seconds / MINUTE_S)} min"
    if seconds < 2 * DAY_S:
        return f"{_tidy(seconds / HOUR_S)} h"
    return f"{_tidy(seconds / DAY_S)} d"


def clock(seconds: float) -> str:
    """A moment after the start: 3 d 04:12:05."""
    days, rest = divmod(round(seconds), int(DAY_S))
    hours, rest = divmod(rest, int(HOUR_S))
    minutes, left = divmod(rest, int(MINUTE_S))
    day = f"{days:,} d " if days else ""
    return f"{day}{hours:02}:{minutes:02}:{left:02}"


def share(value: float | None) -> str:
    return ABSENT if value is None else f"{100 * value:.1f} %"


def count(value: int | None) -> str:
    return ABSENT if value is None else f"{value:,}"


def decimal(value: float | None) -> str:
    return ABSENT if value is None else significant(value)


def listing(names: list[str]) -> str:
    """Names as in a sentence: a, b and c."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def shortened(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def plural(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _tidy(value: float) -> str:
    """Three digits, so that a column lines up, but a whole number as such."""
    return f"{value:,.0f}" if value == int(value) else significant(value)
