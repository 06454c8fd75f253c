"""Lists that fit the screen: columns that matter less give way, and long sentences are cut at the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.segment import Segment
    from rich.table import Table
    from rich.text import Text

GAP = 2
MOST = 40
"""Columns that any other cell gets at most."""
LEAST_LAST = 24
"""Columns that the last cell gets at least, before others give way to it."""


def fitting(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int,
    gives_way: Sequence[str] = (),
    folds: bool = False,
) -> Table | Lines:
    """A table of cells in rich's markup; `gives_way` names columns, first to go first."""
    from rich.text import Text

    cells = [[Text.from_markup(cell) for cell in row] for row in rows]
    widths = [
        min(max(len(heading), *(row[at].cell_len for row in cells), 0), MOST)
        for at, heading in enumerate(headings)
    ]
    kept = _kept(headings, widths, width, gives_way)
    if folds:
        return _folding(headings, cells, widths, kept)
    rows_kept = [[row[at] for at in kept] for row in cells]
    return Lines([headings[at] for at in kept], rows_kept, [widths[at] for at in kept[:-1]])


def _folding(
    headings: Sequence[str], cells: list[list[Text]], widths: Sequence[int], kept: Sequence[int]
) -> Table:
    from rich.table import Table

    made = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False)
    for at in kept[:-1]:
        made.add_column(
            headings[at], header_style="bold", no_wrap=True, width=widths[at], overflow="ellipsis"
        )
    made.add_column(headings[kept[-1]], header_style="bold", overflow="fold")
    for row in cells:
        made.add_row(*(row[at] for at in kept))
    return made


class Lines:
    """Rows of one line each. Rich's own table takes half a millisecond for one: too long for thousands."""

    def __init__(
        self, headings: Sequence[str], rows: Sequence[Sequence[Text]], widths: Sequence[int]
    ) -> None:
        self._headings, self._rows, self._widths = headings, rows, widths
        self.row_count = len(rows)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        from rich.segment import Segment
        from rich.text import Text

        taken = sum(self._widths) + GAP * len(self._widths)
        widths = (*self._widths, max(1, options.max_width - taken))
        heading = [Text(each, style="bold", end="") for each in self._headings]
        gap, end = Segment(" " * GAP), Segment.line()
        for row in (heading, *self._rows):
            for at, (cell, width) in enumerate(zip(row, widths, strict=True)):
                is_last = at == len(row) - 1
                cell.truncate(width, overflow="ellipsis", pad=not is_last)
                if cell.style or cell.spans:
                    yield from cell.render(console)
                else:
                    yield Segment(cell.plain)
                if not is_last:
                    yield gap
            yield end


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
