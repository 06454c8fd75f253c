"""Tables with one line for each row, quick enough for thousands: columns that fit, colours in a terminal.

Columns that matter less give way where the screen is narrow, then the widest get narrower; long sentences
are cut at the end, and no line is wider than the screen. Rich is not used: it takes half a millisecond for a
row, and time to load.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from trainmaster.cli.support.console import WIDE, Styled, screen
from trainmaster.text.control_characters import visible_line

if TYPE_CHECKING:
    from rich.table import Table

GAP = 2
MOST = 40
"""Columns that any cell but the last gets at most."""
LEAST_LAST = 24
"""Minimum width of the last cell: first others are dropped, then cut as far as their headings."""
STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33"}
"""What a terminal is told, by the names that Rich has for it."""
WITHOUT_COLOUR = ("bold", "dim")


class Coloured(NamedTuple):
    """A text in one of these styles."""

    text: str
    style: str


Cell = str | Coloured


def is_terminal() -> bool:
    """Whether standard output goes to a screen, or is to look as if it did."""
    return sys.stdout.isatty() or bool(os.environ.get("FORCE_COLOR"))


def screen_width() -> int:
    """Columns of the screen; of a file or a pipe, as many as a table may need."""
    return shutil.get_terminal_size().columns if is_terminal() else WIDE


def styles() -> dict[str, str]:
    """The styles that standard output shows."""
    if not is_terminal() or os.environ.get("TERM") in ("dumb", "unknown"):
        return {}
    names = WITHOUT_COLOUR if os.environ.get("NO_COLOR") else tuple(STYLES)
    return {name: STYLES[name] for name in names}


def drawn(table: PlainTable | Table) -> Styled:
    """A table as standard output shows it."""
    if isinstance(table, PlainTable):
        return table.text(screen_width(), styles())
    console = screen()
    with console.capture() as captured:
        console.print(table)
    return Styled(captured.get())


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
    room = width - min(widths[-1], LEAST_LAST) - GAP * len(kept_widths)
    return PlainTable(kept_headings, kept_columns, _narrowed(kept_widths, kept_headings, room))


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
        made.add_row(
            *(
                Text(text, "" if isinstance(cell, str) else cell.style)
                for cell, text in zip(row, _texts(row), strict=True)
            )
        )
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


def _narrowed(widths: Sequence[int], headings: Sequence[str], room: int) -> list[int]:
    """Widths that fit into the room, taken from the widest, or else those of the headings."""
    fitting = list(widths)
    for _ in range(sum(widths) - room):
        at = max(range(len(fitting)), key=lambda at: (fitting[at] > len(headings[at]), fitting[at]))
        fitting[at] = max(fitting[at] - 1, len(headings[at]))
    return fitting


class PlainTable:
    """Rows of one line each."""

    def __init__(
        self, headings: Sequence[str], columns: Sequence[Sequence[Cell]], widths: Sequence[int]
    ) -> None:
        self._headings, self._columns, self._widths = headings, columns, widths
        self.row_count = len(columns[0])

    def text(self, width: int, styles: Mapping[str, str]) -> Styled:
        """All of it for a screen of this width that shows these styles."""
        columns, room = [], width
        for heading, column, wanted in zip(
            self._headings, self._columns, (*self._widths, width), strict=True
        ):
            size = min(wanted, room)
            if size <= 0:
                break
            room -= size + GAP
            fitted = _fitted((heading, *_texts(column)), size)
            columns.append(_styled(fitted, (Coloured(heading, "bold"), *column), styles))
        lines = [(" " * GAP).join(row).rstrip() + "\n" for row in zip(*columns, strict=True)]
        return Styled("".join(lines))


def _styled(
    texts: Sequence[str], cells: Sequence[Cell], styles: Mapping[str, str]
) -> Sequence[str]:
    """The texts of these cells in their styles; what they are padded with is left as it is."""
    if not styles:
        return texts
    return [
        text
        if isinstance(cell, str) or cell.style not in styles
        else f"\x1b[{styles[cell.style]}m{text.rstrip()}\x1b[0m{text[len(text.rstrip()) :]}"
        for text, cell in zip(texts, cells, strict=True)
    ]


def _texts(column: Iterable[Cell]) -> list[str]:
    return [visible_line(cell if isinstance(cell, str) else cell.text) for cell in column]


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
