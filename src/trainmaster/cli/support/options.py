"""Options and arguments: how they are declared, and those that several commands have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from trainmaster.cli.support.completion import live_jobs
from trainmaster.cli.support.help import LAST


def option(shown: str, help: str, **more: Any) -> Any:
    """An option as its help shows it: `-t --time TIME` has two spellings and a value named TIME."""
    words = shown.split()
    names = [word for word in words if word.startswith("-")]
    return typer.Option(*names, metavar=words[-1] if words != names else None, help=help, **more)


def argument(metavar: str, help: str, **more: Any) -> Any:
    return typer.Argument(metavar=metavar, help=help, **more)


URL = "Address of the manager, or unix:PATH. Default: TRAINMASTER_URL, else the one that runs here."
DATA = "Data folder of the manager. Default: TRAINMASTER_DATA, ./.trainmaster, or the user folder."
TOKEN_FILE = "File with a token for it. Default: TRAINMASTER_TOKEN, or TRAINMASTER_TOKEN_FILE."
SNAPSHOT = "Run in a copy of the code as it is now. Default: in the folder itself, if nodes see it."
RANKS = "Processes: one per node, which sees all its GPUs (the default), or one per GPU."
ENV = "Environment variable; a name alone copies its value from this shell."
ENV_FILE = "File with environment variables, one NAME=VALUE per line."
EXPORT_ALL = "Copy all variables of this shell, not only those that docs/cli.md lists."
JOBS = "Job ids or names; an array's id stands for all its jobs."

Url = Annotated[str | None, option("--url URL", URL, rich_help_panel=LAST)]
Data = Annotated[Path | None, option("--data DIR", DATA, rich_help_panel=LAST)]
TokenFile = Annotated[Path | None, option("--token-file FILE", TOKEN_FILE, rich_help_panel=LAST)]
AsJson = Annotated[bool, option("--json", "Write JSON.")]
DryRun = Annotated[bool, option("--dry-run", "Show what would happen without submitting anything.")]
Queue = Annotated[str | None, option("-q --queue QUEUE", "Queue to submit to.")]
Cpus = Annotated[
    float | None, option("--cpus N", "CPU cores per GPU, or in all beside a part of one.")
]
MEMORY = "Host memory per GPU, or in all beside a part of one, such as 16G."
Memory = Annotated[str | None, option("--mem SIZE", MEMORY)]
OnlyMe = Annotated[bool, option("--me", "Only my jobs.")]
OnlyUser = Annotated[str | None, option("--user USER", "Only jobs of this user.")]
OnlyQueue = Annotated[str | None, option("-q --queue QUEUE", "Only jobs in this queue.")]
JobName = Annotated[str, argument("JOB", "Job id or name.", autocompletion=live_jobs)]
JobNames = Annotated[list[str], argument("JOB", JOBS, autocompletion=live_jobs)]
Snapshot = Annotated[bool | None, option("--snapshot/--no-snapshot", SNAPSHOT)]
RanksFlag = Annotated[Literal["node", "gpu"] | None, option("--ranks node|gpu", RANKS)]
Env = Annotated[list[str] | None, option("--env NAME[=VALUE]", ENV)]
EnvFile = Annotated[list[Path] | None, option("--env-file FILE", ENV_FILE)]
ExportAll = Annotated[bool, option("--export-all", EXPORT_ALL)]
Command = Annotated[list[str], argument("COMMAND", "Command and its arguments.")]
