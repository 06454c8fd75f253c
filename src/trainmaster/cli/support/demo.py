"""The demonstration: a handful of real training jobs, and a table when they have ended."""

from __future__ import annotations

import asyncio
import getpass
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from trainmaster.api.submission import Defaults, submission_of
from trainmaster.config.job_file import JobFile
from trainmaster.daemon.daemon import Daemon
from trainmaster.daemon.service_api import JobStatus, Submission
from trainmaster.model.units import SECOND
from trainmaster.store.rows import JobFilter

MARK = "demonstrated"
"""A file with the ids of its jobs, one a line: it has been submitted once."""
LEARN = f"{sys.executable} -m trainmaster.sdk.demo"
FIRST = (
    {"name": "demo-small", "command": f"{LEARN} --steps 200 --seed 1"},
    {"name": "demo-long", "command": f"{LEARN} --steps 900 --seed 2", "priority": -1},
    {"name": "demo-gang", "command": f"{LEARN} --steps 200 --seed 3", "gpus": 2},
    {
        "name": "demo-sweep",
        "command": f"{LEARN} --steps 100 --seed $TRAINMASTER_ARRAY_INDEX",
        "array": "0-3%2",
    },
)
LATER = {
    "name": "demo-urgent",
    "command": f"{LEARN} --steps 150 --seed 4",
    "gpus": 2,
    "priority": 5,
}
"""For its sake another is suspended."""
BEFORE_LATER_S = 6.0
LOOK_S = 0.2


def _asked(file: Mapping[str, object], folder: Path) -> Submission:
    spec = dict(file) | {"snapshot": False, "workdir": str(folder)}
    defaults = Defaults(user=getpass.getuser(), workdir=folder)
    return submission_of(JobFile.model_validate(spec), defaults, spec)


async def demonstrate(daemon: Daemon, folder: Path) -> None:
    """Submit the demonstration's jobs once, wait for them, and show what became of them."""
    console = Console()
    if (folder / MARK).exists():
        console.print("The demonstration has been run here before: `trainmaster history` shows it.")
        return
    devices = sum(len(node.devices) for node in daemon.queries.nodes())
    files = [file for file in FIRST if _gpus(file) <= devices]
    await _submit(daemon, folder, files)
    console.print(f"Submitted {len(files)} jobs that train: `trainmaster ps` shows them.")
    await asyncio.sleep(BEFORE_LATER_S)
    if _gpus(LATER) <= devices:
        await _submit(daemon, folder, [LATER])
        console.print("Submitted an urgent one: another job makes room for it.")
    while unended(daemon, folder):
        await asyncio.sleep(LOOK_S)
    console.print(
        table(list(reversed(await daemon.queries.jobs(JobFilter(text="demo-", limit=100)))))
    )
    console.print("The demonstration has ended; Trainmaster goes on until Ctrl-C.")


async def _submit(daemon: Daemon, folder: Path, files: Sequence[Mapping[str, object]]) -> None:
    """Submit these and note their ids; the key keeps a crash in between from submitting them twice."""
    words = [str(file["name"]) for file in files]
    asked = [_asked(file, folder) for file in files]
    accepted = await daemon.commands.submit(asked, f"demonstration {' '.join(words)}")
    with (folder / MARK).open("a", encoding="utf-8") as out:
        out.writelines(f"{id}\n" for each in accepted for id in each.ids)


def unended(daemon: Daemon, folder: Path) -> list[str]:
    """The demonstration's jobs that have not ended."""
    try:
        ids = (folder / MARK).read_text(encoding="utf-8").split()
    except FileNotFoundError:
        return []
    return [id for id in ids if id in daemon.driver.jobs]


def _gpus(file: Mapping[str, object]) -> int:
    count = file.get("gpus", 1)
    assert isinstance(count, int)
    return count


def table(jobs: list[JobStatus]) -> Table:
    shown = Table(title="What became of the demonstration")
    for name in ("Job", "Name", "State"):
        shown.add_column(name)
    for name in ("GPUs", "Waited", "Ran", "Suspended", "Loss"):
        shown.add_column(name, justify="right")
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
    """Cancel the demonstration's jobs, and wait until none of them is left; others' are not touched."""
    for id in unended(daemon, folder):
        if id in daemon.driver.jobs:
            await daemon.commands.cancel(id)
    while unended(daemon, folder):
        await asyncio.sleep(LOOK_S)
