"""Integer units, used all through: milliseconds, thousandths of a GPU, bytes, parts per million.

Integers because float time makes timers re-arm endlessly: (t + 30.0) - t < 30.0 for some t.
"""

from __future__ import annotations

SECOND = 1_000
"""Milliseconds in a second: all times are whole milliseconds."""
MINUTE = 60 * SECOND
HOUR = 3_600 * SECOND
DAY = 24 * HOUR

WHOLE = 1_000
"""Thousandths in a GPU: all shares are whole thousandths."""

NOMINAL = 1_000_000
"""Speed of a job on its best placement, alone, in parts per million; work is ms x this."""

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30


def to_ms(seconds: float) -> int:
    """The nearest whole millisecond to a time in seconds."""
    return round(seconds * SECOND)


def to_seconds(ms: int) -> float:
    """Seconds for people and for JSON."""
    return ms / SECOND


def ceil_div(dividend: int, divisor: int) -> int:
    """The quotient rounded up: a finish is the ceiling, so no work is ever left over."""
    return -(-dividend // divisor)
