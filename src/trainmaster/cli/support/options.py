"""Options and arguments that the live commands have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trainmaster.cli.support.completion import live_jobs

WHERE = "Where the daemon is"

Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        rich_help_panel=WHERE,
        help="The daemon's address; else TRAINMASTER_URL, else the address in its data folder.",
    ),
]
Data = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="DIR",
        rich_help_panel=WHERE,
        help="The daemon's data folder; else TRAINMASTER_DATA, ./.trainmaster, the user's own.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="As JSON.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Say what would happen, and submit nothing.")
]
Queue = Annotated[
    str | None, typer.Option("-q", "--queue", metavar="QUEUE", help="The queue to wait in.")
]
Cpus = Annotated[float | None, typer.Option("--cpus", metavar="N", help="CPU cores for each GPU.")]
Memory = Annotated[
    str | None, typer.Option("--mem", metavar="SIZE", help="Host memory for each GPU: 16G.")
]
JobName = Annotated[
    str,
    typer.Argument(metavar="JOB", help="The job's id or name.", autocompletion=live_jobs),
]
JobNames = Annotated[
    list[str],
    typer.Argument(
        metavar="JOB",
        help="Ids or names; the id of an array means all of it.",
        autocompletion=live_jobs,
    ),
]
