"""How things are said in the terminal: examples in a help text, lengths of time, notes."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from rich.console import Console

WIDE = 200
"""Columns of output that goes to a file or a pipe: no table is cut for a screen that is not there."""


def examples(*commands: str) -> str:
    """The end of a help text: commands to copy, one per line."""
    return "\n\n".join(("[bold]Examples[/bold]", *(f"[dim]$[/dim] {each}" for each in commands)))


def help_if_bare(context: typer.Context) -> None:
    """A group of commands without a command shows its help."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


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
