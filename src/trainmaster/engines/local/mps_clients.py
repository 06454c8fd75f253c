"""Runs that share a GPU by MPS: their GPU's daemon runs before they start and ends after the last of them.

Which runs those are is read from the files of live runs, so that a new manager knows it as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import os
from collections.abc import Callable, Iterable
from pathlib import Path

import structlog

from trainmaster.engines.local import runfile
from trainmaster.engines.local.mps_faults import (
    ClientFailure,
    collateral,
    fault_line,
    has_failed,
)
from trainmaster.engines.local.mps_keeper import LOOK_S, gpus_in_use, hand_over, take_charge
from trainmaster.engines.local.runfile import RunFile
from trainmaster.gpu.mps import CONTROL, MpsDaemons, MpsError, MpsPlace, control_program
from trainmaster.model.engine_reports import Ended, Report

log = structlog.get_logger(__name__)

TRIES, AGAIN_S = 40, 0.05
KEPT = 64
LAST_BYTES = 1 << 16
"""Of each log: what was written last."""
Folders = Callable[[], Iterable[str]]
"""The folders of all runs that may be alive."""


class MpsClients:
    """The MPS daemons of an engine's GPUs, and which of them are in use."""

    def __init__(self, folder: Path, live: Folders, *, has_gpus: bool) -> None:
        self._folder = folder
        self._live = live
        self._has_gpus = has_gpus
        self._program = control_program() if has_gpus else None
        self._daemons: MpsDaemons | None = None
        self._failures: list[ClientFailure] = []
        """The last ones that were their own fault."""
        self._sockets = ""
        self._charge: int | None = None
        """The lock of the program that looks after the daemons."""
        self._is_due = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None

    @property
    def remarks(self) -> tuple[str, ...]:
        """What a user should know about sharing on this machine."""
        if not self._has_gpus:
            return ()
        if self._program is None:
            return (
                f"{CONTROL} is not installed: jobs on parts of a GPU share it by time-slicing.",
            )
        return (
            "MPS serves one user at a time: only programs of the manager's user"
            f" ({getpass.getuser()}) share a GPU by it.",
        )

    @property
    def troubles(self) -> tuple[str, ...]:
        """One sentence for each GPU whose daemon does not start."""
        found = {} if self._daemons is None else self._daemons.troubles
        return tuple(f"{why}. Its jobs share it by time-slicing." for why in found.values())

    async def open(self, sockets: str) -> None:
        self._sockets = sockets
        for _ in range(
            TRIES if self._has_gpus else 0
        ):  # a keeper that is just looking lets go soon
            self._charge = take_charge(self._folder)
            if self._charge is not None:
                break
            await asyncio.sleep(AGAIN_S)
        self._daemons = MpsDaemons(self._folder, Path(sockets), self._program or CONTROL)
        self._watching = asyncio.create_task(self._watch())

    async def close(self) -> None:
        """End the daemons that no run needs; others stay with their runs, and a keeper ends them."""
        if self._watching is None:
            return
        self._watching.cancel()
        await asyncio.to_thread(self._tend)
        if self._charge is not None:
            os.close(self._charge)
            if self._daemons is not None and self._daemons.known():
                hand_over(self._folder.parent, self._sockets)
        self._watching = self._charge = None

    def look(self) -> None:
        """A run has ended: perhaps it was the last of its daemon's."""
        self._is_due.set()

    def write(
        self, folder: str, gpu: str | None, run_file: Callable[[MpsPlace | None], RunFile]
    ) -> None:
        """Write a run's file, as a client of this GPU's daemon, which is started; None: as no client.

        Where the daemon does not start it is not a client either: it shares the GPU by time-slicing.
        """
        daemons = self._daemons
        if gpu is None or daemons is None or self._program is None:
            runfile.write(folder, run_file(None))
            return
        with daemons.lock:  # its file comes first: a daemon without clients is ended
            runfile.write(folder, run_file(daemons.place(gpu)))
            try:
                daemons.ensure(gpu)
            except MpsError as problem:
                log.error("a run shares its GPU without MPS", gpu=gpu, why=str(problem))
                runfile.write(folder, run_file(None))

    def judged(self, report: Report, folder: str) -> Report:
        """The report, or that its run is lost, where a fault of a neighbour has ended it."""
        if not isinstance(report, Ended) or self._daemons is None or not has_failed(report):
            return report
        for gpu in gpus_in_use([folder]):
            failure = ClientFailure(gpu, report)
            logs = self._daemons.place(gpu).logs
            evidence = fault_line(_last_lines(logs), report.at_ms)
            lost = collateral(failure, self._failures, evidence)
            if lost is not None:
                return lost
            self._failures = [*self._failures[1 - KEPT :], failure]
        return report

    async def _watch(self) -> None:
        while True:
            self._is_due.clear()
            try:
                await asyncio.to_thread(self._tend)
            except OSError as problem:
                log.warning("MPS daemons cannot be looked at", why=str(problem))
            if not self._has_gpus:
                return
            with contextlib.suppress(TimeoutError):
                # Not wait_for, which may lose a cancellation before Python 3.12.
                async with asyncio.timeout(LOOK_S):
                    await self._is_due.wait()

    def _tend(self) -> None:
        daemons = self._daemons
        if daemons is None:
            return
        with daemons.lock:
            if self._charge is None and self._has_gpus:  # a keeper was slow to let go
                self._charge = take_charge(self._folder)
            if daemons.known():
                daemons.tend(gpus_in_use(self._live()))


def _last_lines(logs: Path) -> list[str]:
    """Of the daemon and its servers."""
    found: list[str] = []
    for name in ("control.log", "server.log"):
        with contextlib.suppress(OSError), open(logs / name, "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - LAST_BYTES))
            found += file.read().decode(errors="replace").splitlines()
    return found
