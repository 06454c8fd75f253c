"""`trainmaster up -d`: the manager as a process of its own, left behind once it answers."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import typer

from trainmaster.cli.support.console import is_private, say, write, write_error
from trainmaster.client.address import user_data_folder
from trainmaster.errors import BadInput, Failed, system_reason

LOG = "manager.log"
OUTPUT = "up.out"
"""What a manager in the background prints, beside its log."""
READY = "Trainmaster at "
STANDBY = ", a standby:"
PAGE = "Its page, once and within 10 min: "
"""Whoever reads the link behind it is an admin."""
LONGEST_S = 120.0
LEFT_OUT = ("data", "detach", "prints_unit")


def arguments_of(context: typer.Context) -> list[str]:
    """The options that this command was called with, but for its folder and for -d itself."""
    words: list[str] = []
    for parameter in context.command.params:
        name, value = parameter.opts[0], context.params.get(parameter.name or "")
        if parameter.name in LEFT_OUT or value is None or value == parameter.get_default(context):
            continue
        if value is True:
            words.append(name)
        elif value is False:
            words.append(parameter.secondary_opts[0])
        else:
            each = value if isinstance(value, list | tuple) else [value]
            words += [word for one in each for word in (name, str(one))]
    return words


def unusable_folder(folder: Path, error: OSError) -> BadInput:
    return BadInput(
        f"the data folder {folder} cannot be written ({system_reason(error)}): name another with --data."
    )


def start_in_background(folder: Path, arguments: Sequence[str]) -> None:
    """Start it, wait until it answers, and say where; an error of it is ours."""
    output = folder / OUTPUT
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        output.unlink(missing_ok=True)
        out = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise unusable_folder(folder, error) from None
    process = subprocess.Popen(
        [sys.executable, "-m", "trainmaster", "up", "--data", str(folder), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=out,
        start_new_session=True,
    )
    os.close(out)
    until = time.monotonic() + LONGEST_S
    while READY not in output.read_text(errors="replace"):
        code = process.poll()
        if code is not None:
            write_error(output.read_text(errors="replace"))
            raise typer.Exit(code or 1)
        if time.monotonic() > until:
            raise Failed(f"it has not answered within {LONGEST_S:g} s: see {output}.")
        time.sleep(0.05)
    said = output.read_text(errors="replace")
    for line in said.splitlines(keepends=True):
        if not line.startswith(PAGE) or is_private(sys.stdout.fileno()):
            write(line)
    # A standby has no address file and no socket: `down` would stop the leader.
    stop = f"kill {process.pid}" if STANDBY in said else f"trainmaster down{_where(folder)}"
    say(f"Process {process.pid}, log in {folder / LOG}; `{stop}` stops it.")


def _where(folder: Path) -> str:
    """What `down` must be told to find it."""
    return "" if folder == user_data_folder() else f" --data {shlex.quote(str(folder))}"
