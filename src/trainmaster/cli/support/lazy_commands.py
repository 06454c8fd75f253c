"""The commands that speak to a daemon, by name: their modules are loaded when one is called.

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
"""How like a command a wrong name must be to be taken for it; `bogus` is 0.67 of `logs`."""
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
    "up": Entry(
        "up", "Start Trainmaster: the daemon, its API, a page with the jobs.", CLUSTER, "up"
    ),
    "submit": Entry("submit", "Submit job files.", JOBS, "submit"),
    "run": Entry(
        "run", "Run a command as a job: wait for it, with its output and exit code.", JOBS, "run"
    ),
    "shell": Entry("shell", "An interactive session as a job, suspended when idle.", JOBS, "shell"),
    "ps": Entry("ps", "List jobs, with where each runs or why it waits.", JOBS, "ps"),
    "ls": Entry("ps", "The same as `ps`.", JOBS, "ps", is_hidden=True),
    "show": Entry("show", "All that is known of a job.", JOBS, "show"),
    "logs": Entry("logs", "A job's output.", JOBS, "logs"),
    "explain": Entry("explain", "Why a job waits, and when it should start.", JOBS, "explain"),
    "story": Entry("story", "What happened to a job.", JOBS, "story"),
    "suspend": Entry(
        "suspend", "Take jobs off their devices for a while.", JOBS, "suspend", "SUSPEND_EPILOG"
    ),
    "resume": Entry("suspend", "Let suspended jobs go on.", JOBS, "resume", "RESUME_EPILOG"),
    "cancel": Entry("cancel", "End jobs for good.", JOBS, "cancel"),
    "move": Entry("move", "Take a job to another node.", JOBS, "move"),
    "set": Entry("set", "Change a job's priority, queue or limits.", JOBS, "change"),
    "exec": Entry("exec", "Run a command in the surroundings of a job.", JOBS, "execute"),
    "history": Entry("history", "Jobs that have ended, and what they used.", JOBS, "history"),
    "nodes": Entry("nodes", "Machines, devices and who is on them.", CLUSTER, "nodes"),
    "queues": Entry("queues", "Queues: what each is owed and holds.", CLUSTER, "queues"),
    "queue": Entry("queue", "The same as `ps`; `queue set` defines a queue.", CLUSTER),
    "policy": Entry("policy", "Which policy decides now; `policy set` changes it.", CLUSTER),
    "record": Entry("record", "Export the live history, as a trace or a log.", CLUSTER, "record"),
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
