"""Options and arguments that the commands to a manager have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trainmaster.cli.support.completion import live_jobs

WHERE = "Where the manager is"

Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        rich_help_panel=WHERE,
        help="Address of the manager. Default: TRAINMASTER_URL, else the address file in its data folder.",
    ),
]
Data = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="DIR",
        rich_help_panel=WHERE,
        help="Data folder of the manager. Default: TRAINMASTER_DATA, ./.trainmaster, or the user folder.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Write JSON.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show what would happen without submitting anything.")
]
Queue = Annotated[str | None, typer.Option("-q", "--queue", metavar="QUEUE", help="Queue.")]
Cpus = Annotated[float | None, typer.Option("--cpus", metavar="N", help="CPU cores per GPU.")]
Memory = Annotated[
    str | None, typer.Option("--mem", metavar="SIZE", help="Host memory per GPU, such as 16G.")
]
JobName = Annotated[
    str,
    typer.Argument(metavar="JOB", help="Job id or name.", autocompletion=live_jobs),
]
JobNames = Annotated[
    list[str],
    typer.Argument(
        metavar="JOB",
        help="Job ids or names; an array's id stands for all its jobs.",
        autocompletion=live_jobs,
    ),
]
