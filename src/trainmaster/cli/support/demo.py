"""The demonstration: a handful of real training jobs, round after round, each with a table at its end."""

from __future__ import annotations

import asyncio
import getpass
import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Column, Table

from trainmaster.api.submission import Defaults, submission_of
from trainmaster.cli.support.console import say, screen
from trainmaster.client.environment import exported
from trainmaster.config.job_file import JobFile
from trainmaster.config.yaml_file import read_documents
from trainmaster.daemon.daemon import Daemon
from trainmaster.daemon.service_api import JobStatus, RequestError
from trainmaster.model.units import SECOND
from trainmaster.store.rows import JobFilter

MARK = "demonstrated"
"""A file with the ids of its jobs, one a line."""
JOBS = Path(__file__).parents[1] / "templates/demo.yaml"
URGENT = "demo-urgent"
BEFORE_URGENT_S = 6.0
LOOK_S = 0.2
RETRY_S = 10.0
NUMBERS = ("GPUs", "Waited", "Ran", "Suspended", "Loss")


async def demonstrate(daemon: Daemon, folder: Path) -> None:
    """Round after round until it is cancelled; jobs of an earlier start are waited for first."""
    say("\n".join(["From here, in another terminal:", *commands(folder)]))
    while True:
        try:
            await ended(daemon, folder)
            await play_round(daemon, folder)
        except RequestError as problem:
            say(f"The demonstration waits: {problem}")
            await asyncio.sleep(RETRY_S)


async def play_round(daemon: Daemon, folder: Path) -> None:
    """Submit the demonstration's jobs, wait for them, and show how they ended."""
    devices = sum(len(node.devices) for node in daemon.queries.nodes())
    jobs = _jobs(devices)
    first = [job for job in jobs if job["name"] != URGENT]
    before = noted(folder)
    await asyncio.shield(_submit(daemon, folder, first))
    say(f"Submitted {len(first)} jobs that train for a few minutes.")
    await asyncio.sleep(BEFORE_URGENT_S)
    if len(first) < len(jobs):
        await asyncio.shield(_submit(daemon, folder, jobs[-1:]))
        say("Submitted an urgent one: another job makes room for it.")
    await ended(daemon, folder)
    own = set(noted(folder)) - set(before)
    found = await daemon.queries.jobs(JobFilter(text="demo-", limit=100))
    screen().print(table([each for each in reversed(found) if each.row.id in own]))
    say("The next round of the demonstration begins; Ctrl-C ends it.")


def commands(folder: Path) -> list[str]:
    """What to try, as it can be typed in the present folder; the data folder's socket needs no token."""
    program, here = program_words(), Path.cwd()
    near = folder.relative_to(here) if folder.is_relative_to(here) else folder
    return [
        f"  {program} {words} --data {shlex.quote(str(near))}"
        for words in ("ps", "explain demo-long", "logs -f demo-long")
    ]


def program_words() -> str:
    """How this Trainmaster is called from here: by its name only where the PATH leads to it."""
    own = Path(sys.executable).with_name("trainmaster")
    if not own.exists():
        return f"{shlex.quote(sys.executable)} -m trainmaster"
    found = shutil.which("trainmaster")
    if found is not None and Path(found).absolute() == own.absolute():
        return "trainmaster"
    here = Path.cwd()
    return shlex.quote(str(own.relative_to(here) if own.is_relative_to(here) else own))


def _jobs(devices: int) -> list[dict[str, Any]]:
    """The job files that fit on this many devices."""
    text = JOBS.read_text(encoding="utf-8").replace("$python", sys.executable)
    found: list[Any] = [spec for spec, _ in read_documents(text)]
    return [spec for spec in found if spec.get("gpus", 1) <= devices]


async def _submit(daemon: Daemon, folder: Path, jobs: Sequence[dict[str, Any]]) -> None:
    """Submit these and note their ids; the key keeps a crash in between from submitting them twice."""
    defaults = Defaults(user=getpass.getuser(), workdir=folder)
    own = {"snapshot": False, "workdir": str(folder), "env": exported(os.environ)}
    specs = [job | own for job in jobs]
    asked = [submission_of(JobFile.model_validate(spec), defaults, spec) for spec in specs]
    names = " ".join(job["name"] for job in jobs)
    key = f"demonstration {len(noted(folder))} {names}"
    accepted = await daemon.submissions.submit(asked, key)
    with (folder / MARK).open("a", encoding="utf-8") as out:
        out.writelines(f"{id}\n" for each in accepted for id in each.ids)


def noted(folder: Path) -> list[str]:
    """The ids of all jobs of the demonstration so far."""
    try:
        return (folder / MARK).read_text(encoding="utf-8").split()
    except FileNotFoundError:
        return []


def unended(daemon: Daemon, folder: Path) -> list[str]:
    """The demonstration's jobs that have not ended."""
    return [id for id in noted(folder) if id in daemon.driver.jobs]


async def ended(daemon: Daemon, folder: Path) -> None:
    """Until none of the demonstration's jobs is left."""
    while unended(daemon, folder):
        await asyncio.sleep(LOOK_S)


def table(jobs: list[JobStatus]) -> Table:
    numbers = (Column(name, justify="right") for name in NUMBERS)
    shown = Table("Job", "Name", "State", *numbers, title="This round of the demonstration")
    for job in jobs:
        row, history = job.row, job.history
        waited = None if row.start_ms is None else (row.start_ms - row.submit_ms) / SECOND
        loss = None if history.progress is None else history.progress.loss
        shown.add_row(
            row.id,
            row.name,
            row.state,
            f"{row.gpus / 1000:g}",
            "" if waited is None else f"{waited:.1f} s",
            f"{job.run_ms / SECOND:.1f} s",
            str(history.preemptions or ""),
            "" if loss is None else f"{loss:.3f}",
        )
    return shown


async def end_demonstration(daemon: Daemon, folder: Path) -> None:
    """Cancel the demonstration's jobs, and wait until none of them is left; other jobs are not touched."""
    cancelled: set[str] = set()
    while left := unended(daemon, folder):
        for id in left:
            if id not in cancelled and id in daemon.driver.jobs:
                await daemon.job_control.cancel(id)
                cancelled.add(id)
        await asyncio.sleep(LOOK_S)
