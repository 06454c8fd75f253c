"""All commands by name: their modules are loaded when one is called.

`trainmaster --help` shows the summaries below without loading any of them, so that it stays quick
however many commands there are.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand
from typer.main import get_command

from trainmaster.cli.support.command import command, group
from trainmaster.cli.support.help import PlainGroup
from trainmaster.errors import BadInput

NEAR = 0.7
"""Similarity from which a wrong name is taken for a command; `bogus` and `logs` have 0.67."""
JOBS = "Jobs"
CLUSTER = "The cluster"
STUDIES = "Traces, policies and simulation"


class CommandEntry(NamedTuple):
    """One command: its line in the list of commands and, if its name differs, its file and function."""

    panel: str
    summary: str
    file: str = ""
    """The file of this folder that holds it."""
    function: str = ""
    """The function that does it, or `app`: the file's group of commands."""
    is_hidden: bool = False

    def load(self, name: str) -> Any:
        """The command itself, with its options."""
        found = import_module(f"trainmaster.cli.{self.file or name}")
        commands = getattr(found, self.function or name)
        if not isinstance(commands, typer.Typer):
            function, commands = commands, group()
            command(commands, name, **getattr(found, "CONTEXT", {}))(function)
        made = get_command(commands)
        made.name = name
        return made


COMMANDS = {
    "up": CommandEntry(CLUSTER, "Start the manager: scheduler, HTTP API and a status page."),
    "down": CommandEntry(CLUSTER, "Stop the manager; its jobs go on."),
    "status": CommandEntry(
        CLUSTER, "Show whether the manager works, its policy, devices and jobs."
    ),
    "submit": CommandEntry(JOBS, "Submit job files."),
    "run": CommandEntry(JOBS, "Run a command as a job and wait for it."),
    "import": CommandEntry(
        JOBS, "Make job files of Slurm scripts.", "slurm_import", "import_scripts"
    ),
    "shell": CommandEntry(JOBS, "Open an interactive session as a job, suspended when idle."),
    "ps": CommandEntry(JOBS, "List jobs, with where each runs or why it waits."),
    "ls": CommandEntry(JOBS, "The same as `ps`.", "ps", "ps", is_hidden=True),
    "top": CommandEntry(CLUSTER, "Show GPUs, jobs and queues in the terminal, as they change."),
    "show": CommandEntry(JOBS, "Show everything known about a job."),
    "logs": CommandEntry(JOBS, "Show a job's output."),
    "outputs": CommandEntry(JOBS, "Fetch what a job wrote in its copy of the code."),
    "wait": CommandEntry(JOBS, "Wait for jobs and return their exit code."),
    "explain": CommandEntry(JOBS, "Explain why a job waits and when it is expected to start."),
    "story": CommandEntry(JOBS, "Show what happened to a job."),
    "suspend": CommandEntry(
        JOBS, "Suspend jobs: free their devices until they are resumed.", "control"
    ),
    "resume": CommandEntry(JOBS, "Resume suspended jobs.", "control"),
    "cancel": CommandEntry(JOBS, "Cancel jobs.", "control"),
    "save": CommandEntry(JOBS, "Ask jobs to write a checkpoint now.", "control"),
    "move": CommandEntry(JOBS, "Move a running job to another node.", "control"),
    "set": CommandEntry(JOBS, "Change a job's priority, queue or limits.", function="change"),
    "exec": CommandEntry(JOBS, "Run a command in a job's environment.", function="execute"),
    "forward": CommandEntry(JOBS, "Reach a port of a job from here: TensorBoard, notebooks."),
    "history": CommandEntry(JOBS, "List jobs that have ended and what they used."),
    "node": CommandEntry(CLUSTER, "List nodes; take one out of service and back.", function="app"),
    "nodes": CommandEntry(CLUSTER, "The same as `node list`.", is_hidden=True),
    "reserve": CommandEntry(CLUSTER, "Keep devices free for a user or a queue, for a time."),
    "reservations": CommandEntry(CLUSTER, "List what is reserved.", "reserve", is_hidden=True),
    "queue": CommandEntry(CLUSTER, "List queues, define and remove one.", function="app"),
    "queues": CommandEntry(CLUSTER, "The same as `queue list`.", "queue", is_hidden=True),
    "user": CommandEntry(
        CLUSTER, "List users, set their roles, limits and budgets.", function="app"
    ),
    "price": CommandEntry(CLUSTER, "Show or set what a GPU-hour costs.", function="app"),
    "token": CommandEntry(
        CLUSTER, "Make and revoke tokens, use a manager elsewhere, open its page.", function="app"
    ),
    "audit": CommandEntry(CLUSTER, "Show who asked the manager for what (admins)."),
    "inputs": CommandEntry(
        CLUSTER, "List inputs that are set aside because jobs fail on them.", function="app"
    ),
    "policy": CommandEntry(
        CLUSTER, "Show the scheduling policy, list all, choose another.", function="app"
    ),
    "record": CommandEntry(CLUSTER, "Export the history as a trace or an event log."),
    "whatif": CommandEntry(
        CLUSTER, "Compare what happened with other policies, more nodes, other queues."
    ),
    "doctor": CommandEntry(CLUSTER, "Look for faults in machine, store and manager; what to do."),
    "backup": CommandEntry(CLUSTER, "Write the manager's state into a file, while it works."),
    "restore": CommandEntry(CLUSTER, "Put a backup in place of the manager's state."),
    "simulate": CommandEntry(STUDIES, "Replay a trace under one or several policies."),
    "compare": CommandEntry(STUDIES, "Compare policies on many traces and seeds."),
    "policies": CommandEntry(STUDIES, "List the policies; with a name, its options."),
    "trace": CommandEntry(STUDIES, "Generate, describe and convert traces.", function="app"),
    "version": CommandEntry(CLUSTER, "Show the version of this program and of the manager."),
    "profile": CommandEntry(
        STUDIES, "Measure how many copies of a program one GPU carries.", function="app"
    ),
    "estimate": CommandEntry(
        STUDIES, "Estimate the GPU memory of a model's training, without a GPU."
    ),
    "split": CommandEntry(STUDIES, "Place a model's operators on several devices."),
    "new": CommandEntry(STUDIES, "Write the skeleton of a new policy.", function="app"),
}


OTHER_WORDS = {
    "stop": "`trainmaster cancel JOB` ends a job, `trainmaster down` stops the manager.",
    "start": "`trainmaster run` starts a job, `trainmaster up` the manager.",
    "kill": "`trainmaster cancel JOB` ends a job.",
    "rm": "`trainmaster cancel JOB` ends a job, `trainmaster queue rm` removes a queue.",
    "drain": "`trainmaster node drain NODE` takes a node out of service.",
    "cordon": "`trainmaster node drain NODE` takes a node out of service.",
    "login": "`trainmaster token use URL` uses a manager elsewhere, `trainmaster token link` opens the page.",
    "whoami": "`trainmaster status` says who you are to the manager.",
    "squeue": "`trainmaster ps` lists the jobs.",
    "sbatch": "`trainmaster submit FILE` or `trainmaster run -d -- COMMAND` submits a job;"
    " `trainmaster import SCRIPT` makes a job file of a Slurm script.",
    "srun": "`trainmaster run -- COMMAND` runs a job.",
    "scancel": "`trainmaster cancel JOB` ends a job.",
    "sinfo": "`trainmaster node list` lists the nodes.",
}
"""Words of other systems, and what does it here."""


class LazyCommands(PlainGroup):
    """The commands of the table above: stand-ins for lists, the command itself when it is called."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for name, (panel, summary, _, _, is_hidden) in COMMANDS.items():
            self.commands[name] = TyperCommand(
                name, help=summary, hidden=is_hidden, rich_help_panel=panel
            )

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        if args[0] not in self.commands and not args[0].startswith("-"):
            from trainmaster.text.suggest import did_you_mean

            if args[0] in OTHER_WORDS:
                raise BadInput(f"no such command {args[0]!r}; {OTHER_WORDS[args[0]]}")
            hint = did_you_mean(args[0], self.commands, "`trainmaster --help` lists all.", NEAR)
            raise BadInput(f"no such command {args[0]!r}; {hint}")
        name, command, rest = super().resolve_command(ctx, args)
        return name, COMMANDS[name].load(name) if name in COMMANDS else command, rest
