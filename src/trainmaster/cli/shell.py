"""`trainmaster shell`: an interactive session or a notebook as a job that is suspended when idle."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainmaster.cli.support.completion import live_jobs
from trainmaster.cli.support.console import examples
from trainmaster.cli.support.options import Cpus, Data, Memory, Queue, Url

if TYPE_CHECKING:
    import socket

    from trainmaster.cli.support.client import Client
    from trainmaster.daemon.response_models import JobRow

EPILOG = examples(
    "trainmaster shell --gpus 1",
    "trainmaster shell --gpus 2 --idle 30m -n play",
    "trainmaster shell play",
    "trainmaster shell --gpus 1 --notebook",
)
ASLEEP = ("suspended", "suspending", "held")
ANSWERS_S = 60.0
"""How long a session that runs may take to answer."""


def shell(
    job: Annotated[
        str | None,
        typer.Argument(
            metavar="JOB",
            help="Session to attach to. Default: a new one.",
            autocompletion=live_jobs,
        ),
    ] = None,
    gpus: Annotated[
        str | None,
        typer.Option(
            "--gpus", metavar="N", help="GPUs of a new session: 1, 0.5, H100:2. Default: 1."
        ),
    ] = None,
    cpus: Cpus = None,
    memory: Memory = None,
    queue: Queue = None,
    name: Annotated[
        str | None, typer.Option("-n", "--name", metavar="NAME", help="Name of the session.")
    ] = None,
    idle: Annotated[
        str,
        typer.Option(
            "--idle", metavar="TIME", help="Suspend the session after it was unused for this long."
        ),
    ] = "10m",
    command: Annotated[
        str | None,
        typer.Option(
            "--command",
            metavar="LINE",
            help="Command to run instead of your shell, such as ipython.",
        ),
    ] = None,
    notebook: Annotated[
        bool,
        typer.Option("--notebook", help="Start Jupyter instead of a shell, and print its address."),
    ] = False,
    detach: Annotated[
        bool, typer.Option("-d", "--detach", help="Print the job id and return without attaching.")
    ] = False,
    url: Url = None,
    data: Data = None,
) -> None:
    """Open an interactive session as a job, or attach to one again.

    `~.` at the start of a line detaches and leaves it running; so does closing the terminal. An unused
    session is suspended and frees its GPUs; attaching to it resumes it.
    """
    from trainmaster.cli.support.client import connect

    stated: dict[str, Any] = {
        "gpus": gpus,
        "cpus": cpus,
        "memory": memory,
        "queue": queue,
        "name": name or ("notebook" if notebook else "shell"),
    }
    if job is None and not (notebook or detach):
        _check_terminal()
    with connect(url, data) as client:
        if job is None:
            job = _submit(client, _spec(client.url, stated, idle, command, notebook))
            if detach:
                sys.stdout.write(f"{job}\n")
                return
        try:
            code = _attend(client, job)
        except KeyboardInterrupt:  # while waiting: once attached, Ctrl-C is the session's
            _note(f"\nSession {job} stays: `trainmaster cancel {job}` ends it.")
            raise
        raise typer.Exit(code)


def _check_terminal() -> None:
    from trainmaster.cli.support.errors import BadInput

    if not sys.stdin.isatty():
        raise BadInput(
            "A session needs a terminal, and standard input is not one: use `trainmaster run` for a"
            " script, or -d to start a session and attach to it later."
        )


def _spec(
    url: str, stated: dict[str, Any], idle: str, command: str | None, notebook: bool
) -> dict[str, Any]:
    """The session as a job file: one process, where it is, that may stay in memory."""
    import shlex

    from trainmaster.cli.support.errors import BadInput
    from trainmaster.cli.support.format import seconds_of
    from trainmaster.cli.support.submit_request import with_environment
    from trainmaster.sdk.notebook import program

    if notebook and program() is None:
        raise BadInput("Jupyter is not installed here: pip install jupyterlab.")
    words = [sys.executable, "-m", "trainmaster.sdk.terminal"]
    words += ["--idle", f"{seconds_of(idle, '--idle'):g}"]
    words += ["--notebook"] if notebook else ["--", *shlex.split(command or "")]
    spec = {field: value for field, value in stated.items() if value is not None}
    copied = ("SHELL", "TERM", "LANG", "HOME")
    return with_environment(
        spec
        | {
            "command": words,
            "ranks": "node",
            "snapshot": False,
            "retries": 0,
            "env": {name: None for name in copied if _is_set(name)} | {"TRAINMASTER_URL": url},
        }
    )


def _is_set(name: str) -> bool:
    import os

    return bool(os.environ.get(name))


def _submit(client: Client, spec: dict[str, Any]) -> str:
    from trainmaster.cli.support.submit_request import send

    (job,) = send(client, [spec])
    _note(f"Job {job.id} ({job.name}): `~.` leaves it, `trainmaster shell {job.id}` comes back.")
    return job.id


def _note(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def _attend(client: Client, job: str) -> int:
    """Wake it, wait until it runs, and attach; its exit code, or 0 where it goes on without us."""
    from trainmaster.cli.support.client import of
    from trainmaster.cli.support.terminal import Attached, Left

    row = _awake(client, job)
    folder = Path(client.get(of(job, "environment"))["environment"]["TRAINMASTER_CHECKPOINT_DIR"])
    found = _answer(client, row, folder)
    if isinstance(found, str):
        sys.stdout.write(f"{found}\n")
        _note(f"`trainmaster cancel {row.id}` ends it; when unused it is suspended, and")
        _note(f"`trainmaster shell {row.id}` lets it go on.")
        return 0
    attached = Attached(found)
    with found:
        _check_terminal()
        left = attached.stay()
    back = f"`trainmaster shell {row.id}` comes back"
    words = {
        Left.DETACHED: f"\nSession {row.id} goes on: {back}, `trainmaster cancel {row.id}` ends it.",
        Left.SLEEPS: f"\nSession {row.id} was unused and is being suspended: {back}.",
        Left.BROKEN: f"\nSession {row.id} was suspended or ended: {back} if it is still there.",
        Left.ENDED: "",
    }
    if words[left]:
        _note(words[left])
    return attached.code if left is Left.ENDED else 0


def _awake(client: Client, job: str) -> JobRow:
    """Resume it if it sleeps, and wait until it runs."""
    from trainmaster.cli.support.client import of
    from trainmaster.cli.support.errors import Failed
    from trainmaster.cli.support.follow import Notes, pauses, row_now

    notes, was_resumed = Notes(), False
    for pause in pauses():
        row = row_now(client, job)
        if row.has_ended:
            raise Failed(
                f"Session {row.id} has {_ended(row)}: `trainmaster shell` opens a new one."
            )
        if row.state == "running":
            return row
        if row.state in ASLEEP and not was_resumed:
            client.post(of(job, "resume"))
            was_resumed = True
        elif row.why:
            notes(f"Waiting: {row.why}")
        time.sleep(pause)
    raise AssertionError  # pragma: no cover: the pauses never end


def _ended(row: JobRow) -> str:
    code = f" with exit code {row.exit_code}" if row.exit_code else ""
    return f"{row.state}{code}" if row.state != "cancelled" else "been cancelled"


def _answer(client: Client, row: JobRow, folder: Path) -> socket.socket | str:
    """A line to the session, or the address of its notebook, as soon as it has one."""
    import json

    from trainmaster.cli.support.errors import Failed
    from trainmaster.cli.support.follow import pauses, row_now
    from trainmaster.sdk import terminal_protocol as frames

    until = time.monotonic() + ANSWERS_S
    for pause in pauses():
        try:
            return frames.call(folder)
        except OSError:
            pass
        try:
            said = json.loads((folder / frames.ADDRESS).read_text(encoding="utf-8"))
            return str(said["url"])
        except (OSError, ValueError, KeyError):
            pass
        if row_now(client, row.id).has_ended or time.monotonic() > until:
            raise Failed(
                f"Job {row.id} is not a session, or has ended: `trainmaster logs {row.id}` says more."
            )
        time.sleep(pause)
    raise AssertionError  # pragma: no cover: the pauses never end
