"""All commands by name: their modules are loaded when one is called.

`trainmaster --help` shows the summaries below without loading any of them, so that it stays quick
however many commands there are.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from importlib import import_module
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from trainmaster.cli.support.errors import BadInput

NEAR = 0.7
"""Similarity from which a wrong name is taken for a command; `bogus` and `logs` have 0.67."""
JOBS = "Jobs"
CLUSTER = "The cluster"
STUDIES = "Traces, policies and simulation"
KEYWORD_ONLY = Parameter.KEYWORD_ONLY
CONTEXT = {"help_option_names": ["-h", "--help"]}


class Entry(NamedTuple):
    """One command: where it is and what the list of commands says of it."""

    panel: str
    summary: str
    module: str
    """The file of this folder that holds it."""
    function: str = "app"
    """The function that does it, or the file's group of commands."""
    is_hidden: bool = False

    def load(self, name: str) -> Any:
        """The command itself, with its options."""
        found = import_module(f"trainmaster.cli.{self.module}")
        commands = getattr(found, self.function)
        if not isinstance(commands, typer.Typer):
            function, commands = commands, group()
            settings = CONTEXT | getattr(found, "CONTEXT", {})
            epilog = getattr(found, f"{self.function.upper()}_EPILOG", None) or found.EPILOG
            commands.command(name, epilog=epilog, context_settings=settings)(with_client(function))
        made = get_command(commands)
        made.name = name
        return made


COMMANDS = {
    "up": Entry(CLUSTER, "Start the manager: scheduler, HTTP API and a status page.", "up", "up"),
    "submit": Entry(JOBS, "Submit job files.", "submit", "submit"),
    "run": Entry(JOBS, "Run a command as a job and wait for it.", "run", "run"),
    "shell": Entry(
        JOBS, "Open an interactive session as a job, suspended when idle.", "shell", "shell"
    ),
    "ps": Entry(JOBS, "List jobs, with where each runs or why it waits.", "ps", "ps"),
    "ls": Entry(JOBS, "The same as `ps`.", "ps", "ps", is_hidden=True),
    "show": Entry(JOBS, "Show everything known about a job.", "show", "show"),
    "logs": Entry(JOBS, "Show a job's output.", "logs", "logs"),
    "explain": Entry(
        JOBS, "Explain why a job waits and when it is expected to start.", "explain", "explain"
    ),
    "story": Entry(JOBS, "Show what happened to a job.", "story", "story"),
    "suspend": Entry(
        JOBS, "Suspend jobs: free their devices until they are resumed.", "control", "suspend"
    ),
    "resume": Entry(JOBS, "Resume suspended or held jobs.", "control", "resume"),
    "cancel": Entry(JOBS, "Cancel jobs.", "control", "cancel"),
    "move": Entry(JOBS, "Move a running job to another node.", "control", "move"),
    "set": Entry(JOBS, "Change a job's priority, queue or limits.", "set", "change"),
    "exec": Entry(JOBS, "Run a command in a job's environment.", "exec", "execute"),
    "history": Entry(JOBS, "List jobs that have ended and what they used.", "history", "history"),
    "nodes": Entry(CLUSTER, "List nodes, their devices and the jobs on them.", "nodes", "nodes"),
    "queues": Entry(CLUSTER, "List queues with their guarantees and usage.", "queue", "queues"),
    "queue": Entry(CLUSTER, "The same as `ps`; `queue set` defines a queue.", "queue"),
    "policy": Entry(CLUSTER, "Show the scheduling policy; `policy set` changes it.", "policy"),
    "record": Entry(CLUSTER, "Export the history as a trace or an event log.", "record", "record"),
    "simulate": Entry(
        STUDIES, "Replay a trace under one or several policies.", "simulate", "simulate"
    ),
    "compare": Entry(STUDIES, "Compare policies on many traces and seeds.", "compare", "compare"),
    "policies": Entry(
        STUDIES, "List the policies with their options and defaults.", "policies", "policies"
    ),
    "trace": Entry(STUDIES, "Generate, describe and convert traces.", "trace"),
    "new": Entry(STUDIES, "Write the skeleton of a new policy.", "new"),
}


def group(**settings: Any) -> typer.Typer:
    """A group of commands, or the place of a single one."""
    return typer.Typer(
        add_completion=False, rich_markup_mode="rich", context_settings=CONTEXT, **settings
    )


def with_client(command: Callable[..., Any]) -> Callable[..., Any]:
    """A command whose first parameter is a client, with `--url` and `--data` in its place."""
    own = signature(command, eval_str=True)
    if "client" not in own.parameters:
        return command
    from trainmaster.cli.support.client import Client
    from trainmaster.cli.support.options import Data, Url

    @wraps(command)
    def with_address(url: str | None, data: Path | None, **others: Any) -> Any:
        return command(Client(url, data), **others)

    added = {"url": Url, "data": Data}
    every = [each for name, each in own.parameters.items() if name != "client"]
    every += [Parameter(name, KEYWORD_ONLY, default=None, annotation=added[name]) for name in added]
    keywords = [each.replace(kind=KEYWORD_ONLY) for each in every]
    with_address.__signature__ = own.replace(parameters=keywords)  # type: ignore[attr-defined]
    with_address.__annotations__ = {each.name: each.annotation for each in every}
    return with_address


class Commands(TyperGroup):
    """The commands of the table above: stand-ins for lists, the command itself when it is called."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for name, (panel, summary, _, _, is_hidden) in COMMANDS.items():
            self.commands[name] = TyperCommand(
                name, help=summary, hidden=is_hidden, rich_help_panel=panel
            )

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        if args[0] not in self.commands and not args[0].startswith("-"):
            from trainmaster.text.suggest import did_you_mean

            hint = did_you_mean(args[0], self.commands, "`trainmaster --help` lists all.", NEAR)
            raise BadInput(f"no such command {args[0]!r}; {hint}")
        name, command, rest = super().resolve_command(ctx, args)
        return name, COMMANDS[name].load(name) if name in COMMANDS else command, rest
