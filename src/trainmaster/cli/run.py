"""`trainmaster run`: a command as a job, waited for, with its output and its exit code."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainmaster.cli.support.console import examples
from trainmaster.cli.support.options import Cpus, Data, DryRun, Memory, Queue, Url

if TYPE_CHECKING:
    from trainmaster.cli.support.submit_request import Submitted

EPILOG = examples(
    "trainmaster run -- python train.py",
    "trainmaster run --gpus 4 -n bert -t 12h -- torchrun train.py --lr 1e-4",
    "trainmaster run --gpus H100:2 --env WANDB_API_KEY -d -- python train.py",
    "trainmaster run --array 0-99%8 -- python sweep.py",
    "trainmaster run --after 12:any -- python evaluate.py",
)
CONTEXT = {"allow_interspersed_args": False}
CONTAINERS = ("apptainer", "enroot", "docker")


def run(
    command: Annotated[
        list[str], typer.Argument(metavar="COMMAND", help="Command and its arguments.")
    ],
    name: Annotated[
        str | None, typer.Option("-n", "--name", metavar="NAME", help="Name of the job.")
    ] = None,
    queue: Queue = None,
    gpus: Annotated[
        str | None,
        typer.Option(
            "--gpus", metavar="N", help="GPUs: 8, 2-8 (elastic), 0.5 (shared), H100:2. Default: 1."
        ),
    ] = None,
    cpus: Cpus = None,
    memory: Memory = None,
    limit: Annotated[
        str | None,
        typer.Option("-t", "--time", metavar="TIME", help="Time limit: 30m, 4h, 1:30:00."),
    ] = None,
    priority: Annotated[
        int | None,
        typer.Option("--priority", metavar="N", help="Priority; a higher number goes first."),
    ] = None,
    retries: Annotated[
        int,
        typer.Option(
            "--retries", min=0, metavar="N", help="How often a failed job is started again."
        ),
    ] = 0,
    after: Annotated[
        list[str] | None,
        typer.Option(
            "--after",
            metavar="ID[:ok|any|fail]",
            help="Start after this job has succeeded (ok), ended (any) or failed (fail).",
        ),
    ] = None,
    array: Annotated[
        str | None,
        typer.Option(
            "--array", metavar="0-99%8", help="Run an array: indices 0 to 99, at most 8 at once."
        ),
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option(
            "--env",
            metavar="K[=V]",
            help="Environment variable; a name alone copies its value from this shell.",
        ),
    ] = None,
    env_file: Annotated[
        list[Path] | None,
        typer.Option(
            "--env-file", metavar="FILE", help="File with environment variables, one K=V per line."
        ),
    ] = None,
    workdir: Annotated[
        Path | None,
        typer.Option("--workdir", metavar="DIR", help="Working directory. Default: this one."),
    ] = None,
    no_snapshot: Annotated[
        bool,
        typer.Option(
            "--no-snapshot", help="Run in the working directory itself instead of a copy."
        ),
    ] = False,
    container: Annotated[
        str | None,
        typer.Option(
            "--container",
            metavar="KIND:IMAGE",
            help="Container to run in: apptainer:…, enroot:… or docker:…",
        ),
    ] = None,
    detach: Annotated[
        bool, typer.Option("-d", "--detach", help="Print the job id and return without waiting.")
    ] = False,
    dry_run: DryRun = False,
    all_ranks: Annotated[
        bool,
        typer.Option("--all-ranks", help="Show the output of every rank, each line with its rank."),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="With --detach or --dry-run: write JSON.")
    ] = False,
    url: Url = None,
    data: Data = None,
) -> None:
    """Run a command as a job: wait for it, show its output and return its exit code.

    Ctrl-C leaves the job running and says how to follow it; a second Ctrl-C cancels it.
    """
    from trainmaster.cli.support.submit_request import environment_of, with_environment

    stated: dict[str, Any] = {
        "command": _command(command),
        "name": name,
        "queue": queue,
        "gpus": gpus,
        "cpus": cpus,
        "memory": memory,
        "max_runtime": None if limit is None else _length(limit),
        "priority": priority,
        "retries": retries,
        "depends_on": after or None,
        "array": array,
        "env": environment_of(env or (), env_file or ()),
        "workdir": None if workdir is None else str(workdir),
        "snapshot": False if no_snapshot else None,
        "container": None if container is None else _container(container),
    }
    spec = with_environment({field: value for field, value in stated.items() if value is not None})
    raise typer.Exit(_do(spec, detach, dry_run, all_ranks, as_json, url, data))


def _do(
    spec: dict[str, Any],
    detach: bool,
    dry_run: bool,
    all_ranks: bool,
    as_json: bool,
    url: str | None,
    data: Path | None,
) -> int:
    from trainmaster.cli.support.client import connect
    from trainmaster.cli.support.follow import follow_to_end
    from trainmaster.cli.support.submit_request import send, show_dry_run

    with connect(url, data) as client:
        if dry_run:
            show_dry_run(client, [spec], as_json)
            return 0
        (job,) = send(client, [spec])
        if detach:
            _say_id(job, as_json)
            return 0
        return follow_to_end(client, job, all_ranks)


def _say_id(job: Submitted, as_json: bool) -> None:
    import sys

    from trainmaster.cli.support.format import write_json

    if as_json:
        write_json({"jobs": [job.said]})
    else:
        sys.stdout.write(f"{job.id}\n")


def _command(words: list[str]) -> str | list[str]:
    """Words as they are; a single one with spaces in it is a line for the shell."""
    from trainmaster.cli.support.errors import BadInput

    words = words[1:] if words[:1] == ["--"] else words
    if not words:
        raise BadInput("There is no command: write it after `--`, as in `run -- python train.py`.")
    return words[0] if len(words) == 1 and len(words[0].split()) > 1 else words


def _length(text: str) -> str:
    from trainmaster.cli.support.format import seconds_of

    return f"{seconds_of(text, '--time'):.0f}s" if ":" in text else text


def _container(text: str) -> dict[str, str]:
    from trainmaster.cli.support.errors import BadInput

    kind, colon, image = text.partition(":")
    if kind not in CONTAINERS or not colon or not image:
        known = ", ".join(f"{each}:IMAGE" for each in CONTAINERS)
        raise BadInput(f"--container `{text}` is not a container: write one of {known}.")
    return {kind: image}
