"""Tables of a few measured points, read between and beyond them by one rule, in integers."""

from __future__ import annotations

from collections.abc import Mapping

Table = Mapping[int, int]
"""A few counts, each with its value."""


def between(table: Table, count: int) -> int:
    """The value at a count: linear between two known ones; flat before the first and after the last."""
    known = table.get(count)
    if known is not None:
        return known
    below = max((each for each in table if each < count), default=None)
    above = min((each for each in table if each > count), default=None)
    if below is None or above is None:
        edge = above if below is None else below
        assert edge is not None, "an empty table has no values"
        return table[edge]
    rise = table[above] - table[below]
    return table[below] + rise * (count - below) // (above - below)
