"""`trainmaster exec`: a command in a job's environment."""

from __future__ import annotations

import os
import sys

import typer

from trainmaster.cli.support.client import Client, job_path
from trainmaster.cli.support.errors import Failed, print_error, system_reason
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
    answer = client.get(job_path(job, "environment"))
    try:
        os.chdir(answer["workdir"])
    except OSError as error:
        reason = system_reason(error)
        raise Failed(
            f"The working directory of job {job}, {answer['workdir']}, cannot be entered: {reason}."
        ) from None
    sys.stdout.flush()
    words = command[1:] if command[:1] == ["--"] else command
    try:
        # in place of this process: terminals, signals and the exit code are the command's own
        os.execvpe(words[0], words, os.environ | answer["environment"])
    except OSError as error:
        print_error(f"{words[0]} cannot be run: {system_reason(error)}.")
        code = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_RUNNABLE
        raise typer.Exit(code) from None
