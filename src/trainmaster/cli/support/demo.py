"""The demonstration: a handful of real training jobs, and a table when they have ended."""

from __future__ import annotations

import asyncio
import getpass
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Column, Table

from trainmaster.api.submission import Defaults, submission_of
from trainmaster.config.job_file import JobFile
from trainmaster.config.yaml_file import read_documents
from trainmaster.daemon.daemon import Daemon
from trainmaster.daemon.service_api import JobStatus
from trainmaster.model.units import SECOND
from trainmaster.store.rows import JobFilter

MARK = "demonstrated"
"""A file with the ids of its jobs, one a line: it has been submitted once."""
JOBS = Path(__file__).parents[1] / "templates/demo.yaml"
URGENT = "demo-urgent"
BEFORE_URGENT_S = 6.0
LOOK_S = 0.2
NUMBERS = ("GPUs", "Waited", "Ran", "Suspended", "Loss")


def _jobs(devices: int) -> list[dict[str, Any]]:
    """The job files that fit on this many devices."""
    text = JOBS.read_text(encoding="utf-8").replace("$python", sys.executable)
    found: list[Any] = [spec for spec, _ in read_documents(text)]
    return [spec for spec in found if spec.get("gpus", 1) <= devices]


async def demonstrate(daemon: Daemon, folder: Path) -> None:
    """Submit the demonstration's jobs once, wait for them, and show how they ended."""
    console = Console()
    if (folder / MARK).exists():
        console.print("The demonstration has been run here before: `trainmaster history` shows it.")
        return
    devices = sum(len(node.devices) for node in daemon.queries.nodes())
    jobs = _jobs(devices)
    first = [job for job in jobs if job["name"] != URGENT]
    await _submit(daemon, folder, first)
    console.print(f"Submitted {len(first)} jobs that train: `trainmaster ps` shows them.")
    await asyncio.sleep(BEFORE_URGENT_S)
    if len(first) < len(jobs):
        await _submit(daemon, folder, jobs[-1:])
        console.print("Submitted an urgent one: another job makes room for it.")
    while unended(daemon, folder):
        await asyncio.sleep(LOOK_S)
    console.print(
        table(list(reversed(await daemon.queries.jobs(JobFilter(text="demo-", limit=100)))))
    )
    console.print("The demonstration has ended; Trainmaster goes on until Ctrl-C.")


async def _submit(daemon: Daemon, folder: Path, jobs: Sequence[dict[str, Any]]) -> None:
    """Submit these and note their ids; the key keeps a crash in between from submitting them twice."""
    defaults = Defaults(user=getpass.getuser(), workdir=folder)
    specs = [job | {"snapshot": False, "workdir": str(folder)} for job in jobs]
    asked = [submission_of(JobFile.model_validate(spec), defaults, spec) for spec in specs]
    words = " ".join(job["name"] for job in jobs)
    accepted = await daemon.commands.submit(asked, f"demonstration {words}")
    with (folder / MARK).open("a", encoding="utf-8") as out:
        out.writelines(f"{id}\n" for each in accepted for id in each.ids)


def unended(daemon: Daemon, folder: Path) -> list[str]:
    """The demonstration's jobs that have not ended."""
    try:
        ids = (folder / MARK).read_text(encoding="utf-8").split()
    except FileNotFoundError:
        return []
    return [id for id in ids if id in daemon.driver.jobs]


def table(jobs: list[JobStatus]) -> Table:
    numbers = (Column(name, justify="right") for name in NUMBERS)
    shown = Table("Job", "Name", "State", *numbers, title="What became of the demonstration")
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
    for id in unended(daemon, folder):
        if id in daemon.driver.jobs:
            await daemon.commands.cancel(id)
    while unended(daemon, folder):
        await asyncio.sleep(LOOK_S)
