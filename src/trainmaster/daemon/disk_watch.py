"""Looks at the disks that jobs need: nothing is started while the data folder's is full.

Runs cannot be started then: their folders, journals and logs could not be written. The devices come back
by themselves as soon as there is room.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from trainmaster.core.lifecycle import ALLOCATED
from trainmaster.core.state import State
from trainmaster.daemon.device_health import is_aside_for, set_aside
from trainmaster.daemon.driver import Driver
from trainmaster.daemon.report_events import LoggedEvent
from trainmaster.engines.local.privileges import looking_as
from trainmaster.model import events as e
from trainmaster.model.device_aside import AsideCause
from trainmaster.model.launch_spec import Account
from trainmaster.text.formatting import listing, size

LOOK_S = 10.0
WHY = "The disk of the data folder is full (the limit disk_full)."
ENOUGH = 2
"""How many times the limit must be free before devices come back: else they would come and go."""
NAMED = 3


class Place(NamedTuple):
    """A folder, and who looks at it."""

    path: str
    account: Account | None


class DiskWatch:
    """What is free for the data folder and for the checkpoints of running jobs."""

    def __init__(self, driver: Driver, folder: Path) -> None:
        self._driver = driver
        self._folder = folder
        self._thread = ThreadPoolExecutor(1, "disks")
        """A disk that hangs holds up no other work."""
        self._short: Mapping[tuple[str, ...], int] = {}

    async def watch(self) -> None:
        """Until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            places = self._places()
            free, shared = await loop.run_in_executor(self._thread, looked, self._folder, places)
            self.take(free, shared)
            await asyncio.sleep(LOOK_S)

    def _places(self) -> dict[str, Place]:
        """Of each running job the folder of its checkpoints."""
        live = self._driver.jobs.values()
        running = [each for each in live if each.record and each.record.phase in ALLOCATED]
        return {each.id: Place(each.recipe.checkpoint_dir, each.recipe.account) for each in running}

    def take(self, free: int, shared: Mapping[tuple[str, ...], int]) -> None:
        """What is free for the data folder, and for the checkpoints of jobs that are elsewhere."""
        limits = self._driver.site_limits
        self._short = {jobs: left for jobs, left in shared.items() if left < limits.disk_free}
        state = self._driver.controller.state
        self._driver.inbox.follow_up(disk_events(state, free, limits.disk_full))

    def notes(self) -> list[str]:
        """Disks of checkpoints that are nearly full; of the data folder the vital signs say it."""
        return [
            f"Only {size(left)} are free where job{'s' * (len(jobs) > 1)} {listing(list(jobs[:NAMED]))}"
            f"{' and others' * (len(jobs) > NAMED)} write checkpoints (the limit disk_free): make room."
            for jobs, left in self._short.items()
        ]


def looked(folder: Path, places: Mapping[str, Place]) -> tuple[int, dict[tuple[str, ...], int]]:
    """Bytes that are free for the folder, and by the jobs on each other disk for their checkpoints.

    Each place is looked at as its job's user: another's files are not shown, and root may be refused there.
    """
    ours = Place(str(folder), None)
    own, free = device_of(ours), free_at(ours)
    on: dict[int, list[str]] = {}
    for job, place in places.items():
        device = device_of(place)
        if device is not None and device != own:
            on.setdefault(device, []).append(job)
    return free, {tuple(jobs): free_at(places[jobs[0]]) for jobs in on.values()}


def device_of(place: Place) -> int | None:
    try:
        with looking_as(place.account):
            return os.stat(place.path).st_dev
    except OSError:  # it is made when the job first writes
        return None


def free_at(place: Place) -> int:
    try:
        with looking_as(place.account):
            return shutil.disk_usage(place.path).free
    except OSError:  # it is gone: nothing can be written there
        return 0


def disk_events(state: State, free: int, least: int) -> Iterable[LoggedEvent]:
    """Set all devices aside where too little is free, and bring them back where there is enough again."""
    topology, disk = state.topology, AsideCause.DISK
    devices = range(topology.gpu_count)
    ours = [gpu for gpu in devices if is_aside_for(state, gpu, disk)]
    if free < least:
        return [set_aside(topology, gpu, disk, WHY) for gpu in devices if gpu not in ours]
    if free >= ENOUGH * least:
        return [LoggedEvent(e.GpuReturned(topology.node_of_gpu[gpu], gpu, disk)) for gpu in ours]
    return []
