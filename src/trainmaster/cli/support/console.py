"""Output in the terminal: texts, tables, JSON, notes; the only place where commands write.

What jobs and other people named or wrote must not reach a terminal as it is: everything here shows control
characters as codes (`\\x1b`). Only a job's own output is raw (`output_lines.py`, `terminal.py`).
"""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NewType

from trainmaster.text.control_characters import visible, visible_json

if TYPE_CHECKING:
    from rich.console import Console

WIDE = 200
"""Columns of output that goes to a file or a pipe: a table is not cut to a screen's width."""
NOTHING = "-"
Styled = NewType("Styled", str)
"""Text with escape sequences of ours in it, and no others: its parts were cleaned before."""


def write(text: str) -> None:
    """Text to standard output."""
    sys.stdout.write(visible(text))


def say(text: str) -> None:
    """A line to standard output, at once."""
    write(f"{text}\n")
    sys.stdout.flush()


def write_error(text: str) -> None:
    """Text to standard error, at once."""
    sys.stderr.write(visible(text))
    sys.stderr.flush()


def write_styled(text: Styled) -> None:
    """Text that was drawn for the screen to standard output."""
    sys.stdout.write(text)


def plainly(text: str) -> Styled:
    """A sentence between texts that were drawn."""
    return Styled(visible(text))


def write_data(piece: bytes) -> None:
    """A piece of a file to standard output: as it is to a pipe or a file, cleaned on a terminal."""
    if sys.stdout.isatty():
        write(piece.decode("utf-8", "replace"))
    else:
        sys.stdout.buffer.write(piece)


def is_private(file: int) -> bool:
    """Whether what is written there is for its user alone: a terminal, or a file that is closed to others.

    Not a pipe or a socket, such as systemd's journal: it has other readers.
    """
    found = os.fstat(file).st_mode
    return os.isatty(file) or (stat.S_ISREG(found) and not found & 0o077)


class Output:
    """Standard output for what writes to a file: CSV, traces."""

    write = staticmethod(write)


class ErrorOutput:
    """Standard error for what logs to a file."""

    write = staticmethod(write_error)

    def flush(self) -> None:
        """Every write is flushed."""


def screen() -> Console:
    """Standard output for tables."""
    from trainmaster.cli.support.clean_console import CleanConsole

    console = CleanConsole(highlight=False, soft_wrap=False)
    if not console.is_terminal:
        console = CleanConsole(highlight=False, width=WIDE)
    return console


def remark(kind: str, lines: Iterable[str]) -> None:
    """Warnings and notes, each on a line of standard error."""
    for line in lines:
        write_error(f"{kind}: {' '.join(line.split())}\n")


def write_json(answer: object) -> None:
    """As JSON; rows are objects of their fields."""
    write_json_text(json.dumps(answer, indent=2, ensure_ascii=False, default=vars) + "\n")


def write_json_text(text: str) -> None:
    """The same, already as text."""
    sys.stdout.write(visible_json(text))


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
