"""Notices supervisors that hang: one that has been silent for too long is killed, and its run is lost.

Supervisors are asked for a sign of life every few seconds. Time in which this process did not run is not
counted, and neither is a supervisor that waits for a disk. Where all are silent at once, the machine is
more likely to be at fault than they: then they have longer, unless they are seen to be stopped.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

import structlog

from trainmaster.engines.local import journal, processes
from trainmaster.engines.local.run_follower import RunFollower
from trainmaster.model.job import Run
from trainmaster_sdk.process_tree import stat_of

log = structlog.get_logger(__name__)

LOOKS = 12
"""How often a supervisor is looked at in the time after which it is killed."""
LONGEST_LOOK_S = 5.0
LONGER = 5
"""How much longer they have where all are silent."""
STOPPED, IN_DISK_SLEEP = b"T", b"D"


class SupervisorWatch:
    """Watches over the supervisors of all runs that are followed."""

    def __init__(self, followers: Mapping[Run, RunFollower], silence_s: float) -> None:
        self._followers = followers
        self._silence_s = silence_s
        self._every_s = min(LONGEST_LOOK_S, silence_s / LOOKS)

    async def watch(self) -> None:
        """Until cancelled."""
        looked = time.monotonic()
        while True:
            await asyncio.sleep(self._every_s)
            now = time.monotonic()
            passed_s, looked = min(now - looked, 2 * self._every_s), now
            for follower in self._followers.values():
                follower.silent_s += passed_s
                follower.ping()
            silent = [each for each in self._followers.values() if self._is_silent(each)]
            are_all_silent = len(silent) == len(self._followers)
            for follower in silent:
                try:
                    await asyncio.to_thread(self._replace, follower, are_all_silent)
                except OSError as problem:
                    log.warning("a silent run cannot be looked at", why=str(problem))

    def _is_silent(self, follower: RunFollower) -> bool:
        return follower.silent_s >= self._silence_s

    def _replace(self, follower: RunFollower, are_all_silent: bool) -> None:
        """Kill its supervisor if that hangs by itself."""
        folder = follower.folder
        opened = next(journal.read(str(folder)), {})
        if not opened.get("beats"):  # of a version without heartbeats, or not begun
            follower.silent_s = 0.0
            return
        pids = processes.lock_holders(str(folder / journal.LOCK))
        states = {next(iter(stat_of(pid)), b"") for pid in pids}
        is_late = follower.silent_s >= LONGER * self._silence_s
        may_hang = STOPPED in states or is_late or not are_all_silent
        if not pids or IN_DISK_SLEEP in states or not may_hang:
            return
        log.error(
            "a supervisor does not answer and is killed with its run",
            run=follower.run,
            pids=pids,
            silent_s=round(follower.silent_s),
        )
        follower.kill_supervisor(f"Its supervisor did not answer for {self._silence_s:g} s.")
