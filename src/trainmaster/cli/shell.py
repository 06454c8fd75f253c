"""`trainmaster shell`: an interactive session or a notebook as a job that is suspended when idle."""

from __future__ import annotations

import json
import os
import shlex
import socket
import sys
import time
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from trainmaster.cli.support.completion import live_jobs
from trainmaster.cli.support.console import write, write_error
from trainmaster.cli.support.format import seconds_of, state_label
from trainmaster.cli.support.notes import Notes, reason_key
from trainmaster.cli.support.options import Cpus, Memory, Queue, argument, option
from trainmaster.cli.support.submit_request import check_flags, naming_flags, send
from trainmaster.cli.support.terminal import Attached, DetachReason
from trainmaster.client.connection import UNIX, Place
from trainmaster.client.job_request import with_environment
from trainmaster.client.manager_api import ManagerApi, job_path
from trainmaster.client.polling import poll, row_now
from trainmaster.daemon.job_rows import JobRow
from trainmaster.errors import BadInput, Failed
from trainmaster_sdk import terminal_protocol as frames
from trainmaster_sdk.notebook import program

ANSWERS_S = 60.0
"""How long a session that runs may take to answer."""


COPIED = ("SHELL", "TERM", "LANG", "HOME")
"""Variables of this terminal that a session gets."""
SESSION = argument("JOB", "Session to attach to. Default: a new one.", autocompletion=live_jobs)
GPUS = "GPUs of a new session: 1, 0.5, H100:2. Default: 1."
IDLE = "Suspend the session after it was unused for this long."
COMMAND = "Command to run instead of your shell, such as ipython."
NOTEBOOK = "Start Jupyter instead of a shell, and print its address."
DETACH = "Print the job id and return without attaching."


def shell(
    client: ManagerApi,
    job: Annotated[str | None, SESSION] = None,
    gpus: Annotated[str | None, option("--gpus N", GPUS)] = None,
    cpus: Cpus = None,
    memory: Memory = None,
    queue: Queue = None,
    name: Annotated[str | None, option("-n --name NAME", "Name of the session.")] = None,
    idle: Annotated[str, option("--idle TIME", IDLE)] = "10m",
    command: Annotated[str | None, option("--command LINE", COMMAND)] = None,
    notebook: Annotated[bool, option("--notebook", NOTEBOOK)] = False,
    detach: Annotated[bool, option("-d --detach", DETACH)] = False,
) -> None:
    """Open an interactive session as a job, or attach to one again.

    `~.` at the start of a line detaches and leaves it running; so does closing the terminal. An unused
    session is suspended and frees its devices; attaching to it resumes it. On GPUs it starts over then:
    what a shell has in memory stays on CPU slots only.

    Examples:
        trainmaster shell --gpus 1
        trainmaster shell --gpus 2 --idle 30m -n play
        trainmaster shell play
        trainmaster shell --gpus 1 --notebook
    """
    if job is None:
        if not (notebook or detach):
            _check_terminal()
        stated: dict[str, Any] = {
            "gpus": gpus,
            "preflight": False,
            "cpus": cpus,
            "memory": memory,
            "queue": queue,
            "name": name or ("notebook" if notebook else "shell"),
        }
        spec = _spec(_asked_at(client.place), stated, idle, command, notebook)
        with naming_flags():
            check_flags(spec)
            (submitted,) = send(client, [spec])
        job = submitted.id
        _note(
            f"Job {job} ({submitted.name}): `~.` leaves it, `trainmaster shell {job}` comes back."
        )
        if detach:
            write(f"{job}\n")
            return
    try:
        code = _attach(client, job)
    except KeyboardInterrupt:  # while waiting: once attached, Ctrl-C is the session's
        _note(f"\nSession {job} stays: `trainmaster cancel {job}` ends it.")
        raise
    raise typer.Exit(code)


def _asked_at(place: Place) -> str:
    """Where a session asks to be suspended; by the socket, which knows its user."""
    return place.url if place.socket is None else f"{UNIX}{place.socket}"


def _check_terminal() -> None:
    if not sys.stdin.isatty():
        raise BadInput(
            "A session needs a terminal, and standard input is not one: use `trainmaster run` for a"
            " script, or -d to start a session and attach to it later."
        )


def _spec(
    url: str, stated: dict[str, Any], idle: str, command: str | None, notebook: bool
) -> dict[str, Any]:
    """The session as a job file: one process, without a code copy, that may stay in memory."""
    if notebook and program() is None:
        raise BadInput("Jupyter is not installed here: pip install jupyterlab.")
    words = [sys.executable, "-m", "trainmaster_sdk.terminal"]
    words += ["--idle", f"{seconds_of(idle, '--idle'):g}"]
    words += ["--notebook"] if notebook else ["--", *shlex.split(command or "")]
    copied = {name: None for name in COPIED if os.environ.get(name)}
    return with_environment(
        {field: value for field, value in stated.items() if value is not None}
        | {
            "command": words,
            "ranks": "node",
            "snapshot": False,
            "retries": 0,
            "env": copied | {"TRAINMASTER_URL": url},
        }
    )


def _note(text: str) -> None:
    write_error(f"{text}\n")


def _attach(client: ManagerApi, job: str) -> int:
    """Resume it, wait until it runs, and attach; its exit code, or 0 after detaching."""
    row = _running(client, job)
    folder = Path(
        client.get(job_path(job, "environment"))["environment"]["TRAINMASTER_CHECKPOINT_DIR"]
    )
    found = _line_to(client, row, folder)
    if isinstance(found, str):
        write(f"{found}\n")
        _note(f"`trainmaster cancel {row.id}` ends it; when unused it is suspended, and")
        _note(f"`trainmaster shell {row.id}` lets it go on.")
        return 0
    attached = Attached(found)
    with found:
        _check_terminal()
        left = attached.run()
    if left is DetachReason.ENDED:
        return attached.code
    back = f"`trainmaster shell {row.id}` comes back"
    words = {
        DetachReason.DETACHED: f"goes on: {back}, `trainmaster cancel {row.id}` ends it.",
        DetachReason.SLEEPS: f"was unused and is being suspended: {back}.",
        DetachReason.BROKEN: f"was suspended or ended: {back} if it is still there.",
    }
    _note(f"\nSession {row.id} {words[left]}")
    return 0


def _running(client: ManagerApi, job: str) -> JobRow:
    """Resume it if it is suspended, and wait until it runs."""
    notes, was_resumed = Notes(), False

    def look() -> JobRow | None:
        nonlocal was_resumed
        row = row_now(client, job)
        if row.has_ended:
            raise Failed(
                f"Session {row.id} has {_ended(row)}: `trainmaster shell` opens a new one."
            )
        if row.state == "running" and row.transition is None:
            return row
        if row.suspended_by in ("user", "idle") and not was_resumed:
            client.post(job_path(job, "resume"))
            was_resumed = True
        elif row.why:
            notes(f"Waiting: {row.why}", reason_key(row))
        return None

    return poll(look)


def _ended(row: JobRow) -> str:
    code = f" with exit code {row.exit_code}" if row.exit_code else ""
    return f"{state_label(row.state)}{code}" if row.state != "cancelled" else "been cancelled"


def _line_to(client: ManagerApi, row: JobRow, folder: Path) -> socket.socket | str:
    """A line to the session, or the address of its notebook, as soon as it has one."""
    until = time.monotonic() + ANSWERS_S

    def look() -> socket.socket | str | None:
        try:
            return frames.call(folder)
        except OSError:
            pass
        try:
            return str(json.loads((folder / frames.ADDRESS).read_text(encoding="utf-8"))["url"])
        except (OSError, ValueError, KeyError):
            pass
        if row_now(client, row.id).has_ended or time.monotonic() > until:
            raise Failed(
                f"Job {row.id} is not a session, or has ended: `trainmaster logs {row.id}` says more."
            )
        return None

    return cast(socket.socket | str, poll(look))
