"""`trainmaster run`: a command as a job, waited for, with its output and its exit code."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from trainmaster.cli.support.console import write, write_json
from trainmaster.cli.support.follow_to_end import follow_to_end
from trainmaster.cli.support.options import (
    Command,
    Cpus,
    DryRun,
    Env,
    EnvFile,
    ExportAll,
    Memory,
    Queue,
    RanksFlag,
    Snapshot,
    option,
)
from trainmaster.cli.support.submit_request import (
    Submitted,
    check_flags,
    environment_of,
    naming_flags,
    secrets_of,
    send,
    show_dry_run,
)
from trainmaster.client.job_request import with_environment
from trainmaster.client.manager_api import Json, ManagerApi
from trainmaster.config.job_file import CONTAINERS
from trainmaster.errors import BadInput

CONTEXT = {"allow_interspersed_args": False}


GPUS = "GPUs: 8, 2-8 (elastic), 0.5 (shared), H100:2. Default: 1."
AFTER = "Start after this job has succeeded (ok), ended (any) or failed (fail)."
DEADLINE = "Time from now by which it must be done: 12h, 2d."
GRACE = "Time to save and leave when told to, before it is killed: 30s, 5m."
NO_PREEMPT = "Once it runs, leave it alone: policies neither suspend, move nor resize it."
HELD = "Do not start it before `trainmaster resume`."
ARRAY = "Run an array: indices 0 to 99, at most 8 at once."
SECRET = (
    "Variable whose value is in a file that only you can read: it is read when the job starts, and hidden in"
    " its output; can be repeated."
)
CONTAINER = "Container to run in: apptainer:…, enroot:… or docker:…"
NO_PREFLIGHT = "Start on all GPUs at once, without a pre-run on one of them."
ON_HANG = "When it hangs: only report it (the default), or restart it, which is a retry."
RETRIES = "How often a failed job is started again. Default: 0, or 1 with --on-hang restart."
DETACH = "Print the job id and return without waiting."
ALL_RANKS = "Show the output of every rank, each line with its rank."


Name = Annotated[str | None, option("-n --name NAME", "Name of the job.")]
GpuCount = Annotated[str | None, option("--gpus N", GPUS)]
TimeLimit = Annotated[str | None, option("-t --time TIME", "Time limit: 30m, 4h, 1:30:00.")]
Priority = Annotated[int | None, option("--priority N", "Priority; a higher number goes first.")]
Retries = Annotated[int | None, option("--retries N", RETRIES, min=0)]
After = Annotated[list[str] | None, option("--after JOB[:ok|any|fail]", AFTER)]
Deadline = Annotated[str | None, option("--deadline TIME", DEADLINE)]
Grace = Annotated[str | None, option("--grace TIME", GRACE)]
Held = Annotated[bool, option("--held", HELD)]
NoPreempt = Annotated[bool, option("--no-preempt", NO_PREEMPT)]
NoPreflight = Annotated[bool, option("--no-preflight", NO_PREFLIGHT)]
OnHang = Annotated[str | None, option("--on-hang report|restart", ON_HANG)]
Array = Annotated[str | None, option("--array 0-99%8", ARRAY)]
Workdir = Annotated[Path | None, option("--workdir DIR", "Working directory. Default: this one.")]
Secret = Annotated[list[str] | None, option("--secret NAME=FILE", SECRET)]
ContainerImage = Annotated[str | None, option("--container KIND:IMAGE", CONTAINER)]
Detach = Annotated[bool, option("-d --detach", DETACH)]
AllRanks = Annotated[bool, option("--all-ranks", ALL_RANKS)]
AsJson = Annotated[bool, option("--json", "With --detach or --dry-run: write JSON.")]


def run(
    client: ManagerApi,
    command: Command,
    name: Name = None,
    queue: Queue = None,
    gpus: GpuCount = None,
    cpus: Cpus = None,
    memory: Memory = None,
    limit: TimeLimit = None,
    priority: Priority = None,
    retries: Retries = None,
    after: After = None,
    deadline: Deadline = None,
    grace: Grace = None,
    held: Held = False,
    no_preempt: NoPreempt = False,
    no_preflight: NoPreflight = False,
    on_hang: OnHang = None,
    array: Array = None,
    env: Env = None,
    env_file: EnvFile = None,
    secret: Secret = None,
    export_all: ExportAll = False,
    workdir: Workdir = None,
    snapshot: Snapshot = None,
    ranks: RanksFlag = None,
    container: ContainerImage = None,
    detach: Detach = False,
    dry_run: DryRun = False,
    all_ranks: AllRanks = False,
    as_json: AsJson = False,
) -> None:
    """Run a command as a job: wait for it, show its output and return its exit code.

    Ctrl-C leaves the job running and says how to follow it; a second Ctrl-C cancels it.

    Examples:
        trainmaster run -- python train.py
        trainmaster run --gpus 4 -n bert -t 12h -- torchrun train.py --lr 1e-4
        trainmaster run --gpus H100:2 --secret WANDB_API_KEY=~/.secrets/wandb -d -- python train.py
        trainmaster run --array 0-99%8 -- python sweep.py
        trainmaster run --after 12:any -- python evaluate.py
        trainmaster run --after prep -- python train.py
    """
    stated: dict[str, Any] = {
        "command": _command(command),
        "name": name,
        "queue": queue,
        "gpus": gpus,
        "cpus": cpus,
        "memory": memory,
        "max_runtime": limit,
        "priority": priority,
        "retries": int(on_hang == "restart") if retries is None else retries,
        "depends_on": after or None,
        "deadline": deadline,
        "grace_period": grace,
        "held": held or None,
        "preemptible": False if no_preempt else None,
        "preflight": False if no_preflight else None,
        "on_hang": on_hang,
        "array": array,
        "env": environment_of(env or (), env_file or ()),
        "secrets": secrets_of(secret or ()) or None,
        "workdir": None if workdir is None else str(workdir),
        "snapshot": snapshot,
        "ranks": ranks,
        "container": None if container is None else _container(container),
    }
    given = {field: value for field, value in stated.items() if value is not None}
    spec = with_environment(given, export_all)
    if dry_run:
        _check(client, spec, as_json)
        return
    job = _submit(client, spec)
    if detach:
        _print(job, as_json)
    else:
        raise typer.Exit(follow_to_end(client, job, all_ranks))


def _check(client: ManagerApi, spec: Json, as_json: bool) -> None:
    with naming_flags():
        check_flags(spec)
        show_dry_run(client, [spec], as_json)


def _submit(client: ManagerApi, spec: Json) -> Submitted:
    with naming_flags():
        check_flags(spec)
        (job,) = send(client, [spec])
    return job


def _print(job: Submitted, as_json: bool) -> None:
    if as_json:
        write_json({"jobs": [job.answer]})
    else:
        write(f"{job.id}\n")


def _command(words: list[str]) -> str | list[str]:
    """Words as they are; a single one with spaces in it is a line for the shell."""
    words = words[1:] if words[:1] == ["--"] else words
    if not words:
        raise BadInput("There is no command: write it after `--`, as in `run -- python train.py`.")
    return words[0] if len(words) == 1 and len(words[0].split()) > 1 else words


def _container(text: str) -> dict[str, str]:
    kind, colon, image = text.partition(":")
    if kind not in CONTAINERS or not colon or not image:
        known = ", ".join(f"{each}:IMAGE" for each in CONTAINERS)
        raise BadInput(f"--container `{text}` is not a container: write one of {known}.")
    return {kind: image}
