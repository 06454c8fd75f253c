"""Lists that fit the screen: columns that matter less give way, and long sentences are cut at the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

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
) -> Table:
    """A table of cells in rich's markup; `gives_way` names columns, first to go first."""
    from rich.table import Table
    from rich.text import Text

    cells = [[Text.from_markup(cell) for cell in row] for row in rows]
    widths = [
        min(max(len(heading), *(row[at].cell_len for row in cells), 0), MOST)
        for at, heading in enumerate(headings)
    ]
    kept = _kept(headings, widths, width, gives_way)
    made = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False)
    for at in kept[:-1]:
        made.add_column(
            headings[at], header_style="bold", no_wrap=True, width=widths[at], overflow="ellipsis"
        )
    made.add_column(
        headings[kept[-1]], header_style="bold", overflow="fold" if folds else "ellipsis"
    )
    for row in cells:
        last = row[kept[-1]]
        if not folds:
            last.no_wrap, last.overflow = True, "ellipsis"
        made.add_row(*(row[at] for at in kept[:-1]), last)
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
