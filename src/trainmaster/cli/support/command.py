"""How a function becomes a command: its docstring is its help, with examples after `Examples:`."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, cleandoc, signature
from pathlib import Path
from typing import Any

import typer

from trainmaster.cli.support.help import WIDEST, PlainCommand, PlainGroup

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": WIDEST}
KEYWORD_ONLY = Parameter.KEYWORD_ONLY


def command(
    commands: typer.Typer, name: str | None = None, **context: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add a function to a group, as the command of this name."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        settings: Any = help_of(function.__doc__) | {"context_settings": CONTEXT | context}
        commands.command(name, cls=PlainCommand, **settings)(with_client(function))
        return function

    return add


def group(callback: Callable[..., Any] | None = None, text: str | None = None) -> typer.Typer:
    """A group of commands; the callback says what the group does without a command."""
    made = typer.Typer(cls=PlainGroup, add_completion=False, context_settings=CONTEXT)
    if callback is not None:
        settings: Any = help_of(text or callback.__doc__)
        made.callback(invoke_without_command=True, **settings)(with_client(callback))
    return made


def help_of(text: str | None) -> dict[str, str]:
    """Help and examples of a docstring; the examples are the epilog, one per line to copy."""
    help, _, examples = cleandoc(text or "").partition("\n\nExamples:\n")
    # A docstring's own line breaks would stay where the terminal is narrower.
    paragraphs = (" ".join(each.split("\n")) for each in help.split("\n\n"))
    lines = "\n".join(line.strip() for line in examples.splitlines())
    return {"help": "\n\n".join(paragraphs), "epilog": lines}


def help_if_bare(context: typer.Context) -> None:
    """A group of commands without a command shows its help."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def with_client(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function with a client among its parameters, with the options that name a manager in its place."""
    own = signature(function, eval_str=True)
    if "client" not in own.parameters:
        return function
    from trainmaster.cli.support.options import Data, TokenFile, Url
    from trainmaster.client.manager_api import ManagerApi

    @wraps(function)
    def with_address(
        url: str | None, data: Path | None, token_file: Path | None, **others: Any
    ) -> Any:
        return function(ManagerApi(url, data, token_file), **others)

    added = {"url": Url, "data": Data, "token_file": TokenFile}
    every = [each for name, each in own.parameters.items() if name != "client"]
    every += [Parameter(name, KEYWORD_ONLY, default=None, annotation=added[name]) for name in added]
    keywords = [each.replace(kind=KEYWORD_ONLY) for each in every]
    with_address.__signature__ = own.replace(parameters=keywords)  # type: ignore[attr-defined]
    with_address.__annotations__ = {each.name: each.annotation for each in every}
    return with_address
