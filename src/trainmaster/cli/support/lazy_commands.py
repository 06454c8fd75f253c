"""The commands that talk to a manager, by name: their modules are loaded when one is called.

`trainmaster --help` shows the summaries below without loading any of them, so that it stays quick
however many commands there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trainmaster.cli.support.errors import BadInput

NEAR = 0.7
"""Similarity from which a wrong name is taken for a command; `bogus` and `logs` have 0.67."""
JOBS = "Jobs"
CLUSTER = "The cluster"


@dataclass(frozen=True, slots=True)
class Entry:
    """One command: the file of this folder that holds it, and the names in there."""

    module: str
    summary: str
    panel: str
    function: str | None = None
    """None = the file has a group of commands, `app`."""
    epilog: str = "EPILOG"
    is_hidden: bool = False

    def load(self, name: str) -> Any:
        """The command itself, with its options."""
        found = import_module(f"trainmaster.cli.{self.module}")
        if self.function is None:
            group = get_command(found.app)
            group.name = name
            return group
        settings = {"help_option_names": ["-h", "--help"], **getattr(found, "CONTEXT", {})}
        alone = typer.Typer(add_completion=False, rich_markup_mode="rich")
        alone.command(name, epilog=getattr(found, self.epilog), context_settings=settings)(
            getattr(found, self.function)
        )
        return get_command(alone)

    def stand_in(self, name: str) -> TyperCommand:
        """What the help and the shell's completion show of it."""
        return TyperCommand(
            name, help=self.summary, hidden=self.is_hidden, rich_help_panel=self.panel
        )


COMMANDS = {
    "up": Entry("up", "Start the manager: scheduler, HTTP API and a status page.", CLUSTER, "up"),
    "submit": Entry("submit", "Submit job files.", JOBS, "submit"),
    "run": Entry("run", "Run a command as a job and wait for it.", JOBS, "run"),
    "shell": Entry(
        "shell", "Open an interactive session as a job, suspended when idle.", JOBS, "shell"
    ),
    "ps": Entry("ps", "List jobs, with where each runs or why it waits.", JOBS, "ps"),
    "ls": Entry("ps", "The same as `ps`.", JOBS, "ps", is_hidden=True),
    "show": Entry("show", "Show everything known about a job.", JOBS, "show"),
    "logs": Entry("logs", "Show a job's output.", JOBS, "logs"),
    "explain": Entry(
        "explain", "Explain why a job waits and when it is expected to start.", JOBS, "explain"
    ),
    "story": Entry("story", "Show what happened to a job.", JOBS, "story"),
    "suspend": Entry(
        "suspend",
        "Suspend jobs: free their devices and keep their work.",
        JOBS,
        "suspend",
        "SUSPEND_EPILOG",
    ),
    "resume": Entry("suspend", "Resume suspended or held jobs.", JOBS, "resume", "RESUME_EPILOG"),
    "cancel": Entry("cancel", "Cancel jobs.", JOBS, "cancel"),
    "move": Entry("move", "Move a running job to another node.", JOBS, "move"),
    "set": Entry("set", "Change a job's priority, queue or limits.", JOBS, "change"),
    "exec": Entry("exec", "Run a command in a job's environment.", JOBS, "execute"),
    "history": Entry("history", "List jobs that have ended and what they used.", JOBS, "history"),
    "nodes": Entry("nodes", "List nodes, their devices and the jobs on them.", CLUSTER, "nodes"),
    "queues": Entry("queues", "List queues with their guarantees and usage.", CLUSTER, "queues"),
    "queue": Entry("queue", "The same as `ps`; `queue set` defines a queue.", CLUSTER),
    "policy": Entry("policy", "Show the scheduling policy; `policy set` changes it.", CLUSTER),
    "record": Entry("record", "Export the history as a trace or an event log.", CLUSTER, "record"),
}


def _unknown(name: str, known: Iterable[str]) -> BadInput:
    from trainmaster.cli.support.errors import BadInput
    from trainmaster.text.suggest import did_you_mean

    hint = did_you_mean(name, known, "`trainmaster --help` lists all.", NEAR)
    return BadInput(f"no such command {name!r}; {hint}")


class Commands(TyperGroup):
    """The commands of this table first, then those that are registered as usual."""

    def list_commands(self, ctx: Any) -> list[str]:
        self._learn()
        others = [name for name in self.commands if name not in COMMANDS]
        return [*COMMANDS, *others]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        self._learn()
        return super().get_command(ctx, cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        self._learn()
        if args[0] not in self.commands and not args[0].startswith("-"):
            raise _unknown(args[0], self.commands)
        name, command, rest = super().resolve_command(ctx, args)
        if name in COMMANDS:
            command = COMMANDS[name].load(name)
        return name, command, rest

    def _learn(self) -> None:
        """Names of this table among those that a wrong one is compared with."""
        for name, entry in COMMANDS.items():
            if name not in self.commands:
                self.commands[name] = entry.stand_in(name)
