"""`trainmaster exec`: a command in a job's environment."""

from __future__ import annotations

import os
import sys

import typer

from trainmaster.cli.support.client import Client, of
from trainmaster.cli.support.errors import Failed, print_error, why
from trainmaster.cli.support.options import Command, JobName

CONTEXT = {"allow_interspersed_args": False}
NOT_RUNNABLE = 126
NOT_FOUND = 127


def execute(client: Client, job: JobName, command: Command) -> None:
    """Run a command on this machine with a job's environment and working directory.

    Examples:
        trainmaster exec 12 -- nvidia-smi
        trainmaster exec 12 -- bash
        trainmaster exec 12 -- python -c 'import torch; print(torch.cuda.device_count())'
    """
    said = client.get(of(job, "environment"))
    try:
        os.chdir(said["workdir"])
    except OSError as error:
        raise Failed(
            f"The working directory of job {job}, {said['workdir']}, cannot be entered: {why(error)}."
        ) from None
    sys.stdout.flush()
    words = command[1:] if command[:1] == ["--"] else command
    try:
        # in place of this process: terminals, signals and the exit code are the command's own
        os.execvpe(words[0], words, os.environ | said["environment"])
    except OSError as error:
        print_error(f"{words[0]} cannot be run: {why(error)}.")
        code = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_RUNNABLE
        raise typer.Exit(code) from None
