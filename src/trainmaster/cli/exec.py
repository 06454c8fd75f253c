"""`trainmaster exec`: a command in a job's environment."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import typer

from trainmaster.cli.support.console import remark
from trainmaster.cli.support.errors import print_error
from trainmaster.cli.support.options import Command, JobName
from trainmaster.client.manager_api import Json, ManagerApi, job_path
from trainmaster.engines.local.secret_files import SecretProblem, problem_sentence, read_secrets
from trainmaster.errors import Failed, system_reason
from trainmaster_sdk import wire

CONTEXT = {"allow_interspersed_args": False}
NOT_RUNNABLE = 126
NOT_FOUND = 127
SET_BY_MANAGER = frozenset(
    {
        *("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"),
        *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK"),
        *(wire.JOB, wire.ATTEMPT, wire.ARRAY_INDEX, wire.ARRAY_SIZE, wire.RESTART_COUNT),
    }
)
"""All that is taken from another user's job. The rest is that user's to choose, and what makes a program load
or run something is not only PATH, LD_PRELOAD, PYTHONPATH, BASH_ENV, NODE_OPTIONS and PERL5LIB, but also
CUDA_INJECTION64_PATH, GIT_SSH_COMMAND, LESSOPEN and whatever else a library reads."""


def execute(client: ManagerApi, job: JobName, command: Command) -> None:
    """Run a command on this machine with a job's environment and working directory.

    Of another user's job, which takes an admin, only its devices and ranks are taken: the command is
    yours, from your PATH, and runs in the current folder.

    Examples:
        trainmaster exec 12 -- nvidia-smi
        trainmaster exec 12 -- bash
        trainmaster exec 12 -- python -c 'import torch; print(torch.cuda.device_count())'
    """
    words = command[1:] if command[:1] == ["--"] else command
    row = client.get(job_path(job))
    answer = client.get(job_path(row["id"], "environment"))
    variables: Mapping[str, str] = answer["environment"]
    if client.is_mine(row["user"]):
        _enter(job, answer)
        variables = {**variables, **_secrets(row.get("spec") or {})}
    else:
        remark(
            "Note", [f"job {row['id']} is {row['user']}'s: only its devices and ranks are used."]
        )
        variables = {name: variables[name] for name in SET_BY_MANAGER & variables.keys()}
    sys.stdout.flush()
    try:
        # in place of this process: terminals, signals and the exit code are the command's own
        os.execvpe(words[0], words, os.environ | variables)
    except OSError as error:
        print_error(f"{words[0]} cannot be run: {system_reason(error)}.")
        code = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_RUNNABLE
        raise typer.Exit(code) from None


def _secrets(spec: Json) -> dict[str, str]:
    """Of one's own job, from one's own files."""
    files = {
        name: str(Path(path).expanduser().absolute())
        for name, path in (spec.get("secrets") or {}).items()
    }
    try:
        return read_secrets(files)
    except SecretProblem as problem:
        remark("Note", [problem_sentence(files, problem.code)])
        return {}


def _enter(job: str, answer: Json) -> None:
    try:
        os.chdir(answer["workdir"])
    except OSError as error:
        reason = system_reason(error)
        raise Failed(
            f"The working directory of job {job}, {answer['workdir']}, cannot be entered: {reason}."
        ) from None
