"""Help pages: usage, what it does, options in groups, examples to copy; nothing about types of the parser."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from trainmaster.cli.support.plain_values import take_plain_values

WIDEST = 100
LAST = "Where the manager is"
"""The group of options that stands below all others."""
ARGUMENTS, OPTIONS, COMMANDS = "Arguments", "Options", "Commands"
Rows = list[tuple[str, str]]


class PlainHelp:
    """What our commands and groups of commands have instead of the parser's own pages."""

    def format_help(self: Any, ctx: Any, formatter: Any) -> None:
        formatter.write_usage(ctx.command_path, " ".join(self.collect_usage_pieces(ctx)))
        for paragraph in (self.help or "").split("\n\n"):
            formatter.write_paragraph()
            formatter.write_text(paragraph)
        for heading, rows in _groups(self, ctx):
            with formatter.section(typer.style(heading, bold=True)):
                formatter.write_dl(rows)
        if self.epilog:
            with formatter.section(typer.style("Examples", bold=True)):
                for line in self.epilog.splitlines():
                    formatter.write(f"  {line}\n")

    def parse_args(self: Any, ctx: Any, args: list[str]) -> list[str]:
        take_plain_values(self.get_params(ctx))
        parsed: list[str] = super().parse_args(ctx, args)  # type: ignore[misc]
        return parsed

    def collect_usage_pieces(self: Any, ctx: Any) -> list[str]:
        pieces = [_argument(each) for each in self.get_params(ctx) if _is_argument(each)]
        tail = ["COMMAND ..."] if isinstance(self, TyperGroup) else []
        return ["[OPTIONS]", *pieces, *tail]


class PlainCommand(PlainHelp, TyperCommand):
    """A command with such a page."""


class PlainGroup(PlainHelp, TyperGroup):
    """A group of commands with such a page."""


def _groups(command: Any, ctx: Any) -> Iterator[tuple[str, Rows]]:
    """Headings with their rows: arguments, options by their group, commands by theirs."""
    shown = [each for each in command.get_params(ctx) if not getattr(each, "hidden", False)]
    arguments = [(_argument(each), each.help or "") for each in shown if _is_argument(each)]
    if arguments:
        yield ARGUMENTS, arguments
    options: dict[str, Rows] = {OPTIONS: []}
    for each in (each for each in shown if not _is_argument(each)):
        heading = getattr(each, "rich_help_panel", None) or OPTIONS
        options.setdefault(heading, []).append((_spelling(each), _meaning(each)))
    last = options.pop(LAST, None)
    yield from _commands(command, ctx)
    yield from options.items()
    if last is not None:
        yield LAST, last


def _commands(command: Any, ctx: Any) -> Iterable[tuple[str, Rows]]:
    if not isinstance(command, TyperGroup):
        return ()
    found: dict[str, Rows] = {}
    for name in command.list_commands(ctx):
        each: Any = command.get_command(ctx, name)
        if each is not None and not each.hidden:
            heading = each.rich_help_panel or COMMANDS
            found.setdefault(heading, []).append((name, (each.help or "").split("\n\n")[0]))
    return found.items()


def _is_argument(parameter: Any) -> bool:
    return bool(parameter.param_type_name == "argument")


def _argument(parameter: Any) -> str:
    name = parameter.metavar or str(parameter.name).upper()
    if parameter.nargs != 1:
        name += "..."
    return name if parameter.required else f"[{name}]"


def _spelling(parameter: Any) -> str:
    """`-t, --time TIME`, short forms first."""
    names = sorted((*parameter.opts, *parameter.secondary_opts), key=lambda name: name[:2] == "--")
    value = parameter.metavar or _choices(parameter)
    return ", ".join(names) + (f" {value}" if value and not parameter.is_flag else "")


def _choices(parameter: Any) -> str:
    # Before 0.29 Typer calls it `type`.
    kind = getattr(parameter, "type_descriptor", None) or parameter.type
    choices = getattr(kind, "choices", None) or ()
    return "|".join(str(getattr(each, "value", each)) for each in choices)


def _meaning(parameter: Any) -> str:
    """What it does, with its default where the text does not say it."""
    text, default = parameter.help or "", parameter.default
    is_plain = isinstance(default, str | int | float | Enum) and not isinstance(default, bool)
    if not is_plain or default == "" or not parameter.show_default or "default:" in text.lower():
        return text
    return f"{text} [default: {default.value if isinstance(default, Enum) else default}]"
