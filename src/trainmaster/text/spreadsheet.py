"""Tables as CSV that a spreadsheet opens without running anything."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""A cell that begins so is a formula to a spreadsheet."""


class Writable(Protocol):
    def write(self, text: str, /) -> object: ...


class _Lines:
    def __init__(self) -> None:
        self.parts: list[str] = []

    def write(self, text: str, /) -> object:
        self.parts.append(text)
        return None


def write_csv(out: Writable, columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> None:
    """A header, and a line for each row."""
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([cell(row.get(column)) for column in columns] for row in rows)


def csv_text(columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> str:
    lines = _Lines()
    write_csv(lines, columns, rows)
    return "".join(lines.parts)


def cell(value: object) -> object:
    """Text that would be a formula begins with an apostrophe; numbers are as they are."""
    is_formula = isinstance(value, str) and value.startswith(FORMULA)
    return f"'{value}" if is_formula else value
