"""Tables with one line for each row, quick enough for thousands: columns that fit, colours in a terminal.

Columns that matter less give way where the screen is narrow; long sentences are cut at the end. Rich is
loaded only for a terminal: its own table takes half a millisecond for a row.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from trainmaster.cli.support.console import WIDE, screen

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.segment import Segment
    from rich.table import Table

GAP = 2
MOST = 40
"""Columns that any cell but the last gets at most."""
LEAST_LAST = 24
"""Minimum width of the last cell; other columns are dropped before it gets narrower."""


class Coloured(NamedTuple):
    """A text in a style of rich."""

    text: str
    style: str


Cell = str | Coloured


def is_plain() -> bool:
    """Whether standard output goes to a file or a pipe, without colours."""
    return not (sys.stdout.isatty() or os.environ.get("FORCE_COLOR"))


def show(table: PlainTable | Table) -> None:
    """Write a table to standard output."""
    if isinstance(table, PlainTable) and is_plain():
        sys.stdout.write(table.text(WIDE))
    else:
        screen().print(table, markup=False, crop=False)


def width_of_output() -> int:
    return WIDE if is_plain() else screen().width


def fit_table(
    headings: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    width: int,
    gives_way: Sequence[str] = (),
    folds: bool = False,
) -> Table | PlainTable:
    """A table of these cells; `gives_way` names columns, first to go first."""
    columns = list(zip(*rows, strict=True)) or [() for _ in headings]
    widths = [
        min(max(len(heading), _widest(column)), MOST)
        for heading, column in zip(headings, columns, strict=True)
    ]
    kept = _kept(headings, widths, width, gives_way)
    kept_headings, kept_widths = [headings[at] for at in kept], [widths[at] for at in kept[:-1]]
    kept_columns = [columns[at] for at in kept]
    if folds:
        return _folding(kept_headings, kept_columns, kept_widths)
    return PlainTable(kept_headings, kept_columns, kept_widths)


def _folding(
    headings: Sequence[str], columns: Sequence[Sequence[Cell]], widths: Sequence[int]
) -> Table:
    """The same with the last column wrapped."""
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="bold")
    for heading, size in zip(headings, widths, strict=False):
        made.add_column(heading, no_wrap=True, width=size, overflow="ellipsis")
    made.add_column(headings[-1], overflow="fold")
    for row in zip(*columns, strict=True):
        made.add_row(*(Text(cell) if isinstance(cell, str) else Text(*cell) for cell in row))
    return made


def _kept(
    headings: Sequence[str], widths: Sequence[int], width: int, gives_way: Sequence[str]
) -> list[int]:
    """Numbers of the columns that there is room for, the last always among them."""
    kept = list(range(len(headings)))
    leaving = [headings.index(name) for name in gives_way if name in headings]
    while leaving:
        needed = sum(widths[at] + GAP for at in kept[:-1]) + min(widths[kept[-1]], LEAST_LAST)
        if needed <= width:
            break
        kept.remove(leaving.pop(0))
    return kept


class PlainTable:
    """Rows of one line each."""

    def __init__(
        self, headings: Sequence[str], columns: Sequence[Sequence[Cell]], widths: Sequence[int]
    ) -> None:
        self._headings, self._columns, self._widths = headings, columns, widths
        self.row_count = len(columns[0])

    def text(self, width: int) -> str:
        """All of it without colours, for a screen of this width."""
        columns = [
            _fitted((heading, *_texts(column)), size)
            for heading, column, size in self._sized(width)
        ]
        return _lines(zip(*columns, strict=True))

    def _sized(self, width: int) -> Iterator[tuple[str, Sequence[Cell], int]]:
        """Headings and columns with their widths: the last has what is left."""
        last = max(1, width - sum(self._widths) - GAP * len(self._widths))
        return zip(self._headings, self._columns, (*self._widths, last), strict=True)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        """With colours: lines without any are one segment."""
        from rich.segment import Segment

        columns, styles = [], []
        for heading, column, size in self._sized(options.max_width):
            columns.append(_fitted((heading, *_texts(column)), size))
            styles.append([None if isinstance(cell, str) else cell.style for cell in column])
        rows = zip(*columns, strict=True)
        yield Segment((" " * GAP).join(next(rows)).rstrip(), console.get_style("bold"))
        yield Segment.line()
        plain: list[Sequence[str]] = []
        for row, coloured in zip(rows, zip(*styles, strict=True), strict=True):
            if not any(coloured):
                plain.append(row)
                continue
            yield Segment(_lines(plain))
            plain = []
            for cell, style in zip(row[:-1], coloured, strict=False):
                yield Segment(cell, None if style is None else console.get_style(style))
                yield Segment(" " * GAP)
            last = coloured[-1]
            yield Segment(row[-1].rstrip(), None if last is None else console.get_style(last))
            yield Segment.line()
        yield Segment(_lines(plain))


def _lines(rows: Iterable[Sequence[str]]) -> str:
    return "".join([(" " * GAP).join(row).rstrip() + "\n" for row in rows])


def _texts(column: Iterable[Cell]) -> list[str]:
    return [cell if isinstance(cell, str) else cell.text for cell in column]


def _widest(column: Sequence[Cell]) -> int:
    texts = _texts(column)
    if "".join(texts).isascii():  # the usual case, and by far the quickest
        return max(map(len, texts), default=0)
    from rich.cells import cell_len

    return max(map(cell_len, texts))


def _fitted(texts: Sequence[str], width: int) -> list[str]:
    """Cut and padded to their column."""
    if "".join(texts).isascii():
        return [
            text.ljust(width) if len(text) <= width else f"{text[: width - 1]}…" for text in texts
        ]
    from rich.cells import cell_len, set_cell_size

    return [
        set_cell_size(text, width)
        if cell_len(text) <= width
        else f"{set_cell_size(text, width - 1)}…"
        for text in texts
    ]
