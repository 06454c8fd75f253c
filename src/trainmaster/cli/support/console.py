"""Output in the terminal: tables, JSON, notes."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

WIDE = 200
"""Columns of output that goes to a file or a pipe: a table is not cut to a screen's width."""
NOTHING = "-"


def screen() -> Console:
    """Standard output for tables."""
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=WIDE)
    return console


def remark(kind: str, lines: Iterable[str]) -> None:
    """Warnings and notes, each on a line of standard error."""
    for line in lines:
        sys.stderr.write(f"{kind}: {' '.join(line.split())}\n")


def write_json(answer: object) -> None:
    """As JSON; rows are objects of their fields."""
    sys.stdout.write(json.dumps(answer, indent=2, ensure_ascii=False, default=vars) + "\n")


def show_answer(answer: object, as_json: bool, sentence: str) -> None:
    """What the manager answered, as JSON or as a sentence."""
    if as_json:
        write_json(answer)
    else:
        screen().print(sentence, markup=False)


def show_table(
    headings: Sequence[str], rows: Iterable[Sequence[object]], *, folds: bool = False
) -> None:
    """A plain table: bold headings where there are any, no lines; `folds` wraps the last column."""
    from rich.markup import escape
    from rich.table import Table

    made = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=any(headings))
    for heading in headings:
        made.add_column(heading, header_style="bold", no_wrap=True, overflow="ellipsis")
    if folds:
        made.columns[-1].no_wrap, made.columns[-1].overflow = False, "fold"
    for row in rows:
        made.add_row(*(escape(cell(each)) for each in row))
    screen().print(made)


def cell(value: object) -> str:
    """A value in a table: a list by its members, `-` for nothing."""
    if isinstance(value, int | float):
        return f"{value:g}"
    return (", ".join(value) if isinstance(value, list) else str(value or "")) or NOTHING


def show_pairs(pairs: Mapping[str, str]) -> None:
    """Names and values, one pair per line."""
    from rich.markup import escape
    from rich.table import Table

    made = Table.grid(padding=(0, 2, 0, 0))
    for name, value in pairs.items():
        made.add_row(f"[bold]{escape(name)}[/]", escape(value))
    screen().print(made)
