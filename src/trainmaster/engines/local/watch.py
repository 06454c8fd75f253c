"""Follows one run: over its supervisor's socket while there is one, in its journal when there is not."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import structlog

from trainmaster.engines.local import journal, leftovers
from trainmaster.engines.local.entries import report_of
from trainmaster.engines.local.journal import Entry
from trainmaster.engines.local.launch import socket_path
from trainmaster.engines.local.spawning import Spawning
from trainmaster.model.job import Run
from trainmaster.model.reports import Report
from trainmaster.sdk.wire import Line, Lines, line_of

log = structlog.get_logger(__name__)

RETRY_S = 0.5
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.005, 1.0
ENDS = ("halt", "kill")
STARTS = 5
"""How often a supervisor is asked for before the run is given up."""
PIECE = 500
"""Entries that are told in one go: the daemon has other things to do as well."""

NEVER_BEGUN: Entry = {
    "code": 126,
    "asked": "nothing",
    "rank": None,
    "has_left": False,
    "was_killed": False,
    "why": "Its supervisor could not be started: look into supervisor.log in the run's folder.",
    "tail": "",
}


@dataclass(frozen=True, slots=True)
class Beginning:
    """What must happen before there is anything to follow."""

    spawning: Spawning
    prepare: Callable[[], None]
    """Writes down what is to be run."""
    earlier: tuple[Path, ...]
    """Files that go when earlier attempts of the job are over: never two at once."""


class Watch:
    """One run's reports in order, each once, and the way for its orders."""

    def __init__(
        self,
        run: Run,
        folder: Path,
        after: int,
        tell: Callable[[Report, int], None] | None,
        over: Callable[[Watch], None],
    ) -> None:
        self.run = run
        self._folder = folder
        self._after = after
        self._tell = tell
        """None: nobody wants to hear of it; it is only being ended."""
        self._over = over
        self.has_ended = False
        """Whether its last entry has been read."""
        self._writer: asyncio.StreamWriter | None = None
        self._unanswered: list[Line] = []
        """Orders since the last entry: said again to whoever answers next."""
        self._is_over = False
        self._task: asyncio.Task[None] | None = None

    def begin(self, beginning: Beginning | None) -> None:
        """Start following; what may have to be begun first comes with how."""
        self._task = asyncio.create_task(self._follow(beginning))

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def send(self, said: Line) -> None:
        """To the supervisor, now or as soon as it answers."""
        self._unanswered.append(said)
        if self._writer is not None:
            self._writer.write(line_of(said))

    async def _follow(self, beginning: Beginning | None) -> None:
        """Until it is over; what the machine refuses, a full disk say, is tried again."""
        trouble = ""
        try:
            while not self._is_over:
                try:
                    if beginning is not None:
                        await self._begin(beginning)
                        beginning = None
                    await self._hear_out()
                except OSError as problem:
                    if trouble != str(problem):
                        trouble = str(problem)
                        log.warning("a run has to wait", run=self.run, why=trouble)
                    await asyncio.sleep(RETRY_S)
        finally:
            self._over(self)

    async def _hear_out(self) -> None:
        """Follow its supervisor from one connection to the next."""
        pause = FIRST_PAUSE_S
        while True:
            if await self._listen():
                pause = FIRST_PAUSE_S
            await self._catch_up()
            if self._is_over:
                return
            if not journal.is_locked(str(self._folder)):
                await self._without_supervisor()
                continue
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)

    async def _begin(self, beginning: Beginning) -> None:
        """See that it has been begun, by us or somebody else, or never will be."""
        while any(marker.exists() for marker in beginning.earlier):
            await asyncio.sleep(0.02)
        beginning.prepare()
        for _ in range(STARTS):
            ends = [said["order"] for said in self._unanswered if said["order"] in ENDS]
            if ends:
                await self._settle(leftovers.never_started(ends[-1]))
                return
            came = await beginning.spawning.spawn(self._folder)
            if journal.has_begun(str(self._folder)) or (
                came and journal.is_locked(str(self._folder))
            ):
                return
            await asyncio.sleep(0.1)
        await self._settle(NEVER_BEGUN)

    async def _settle(self, said: Entry) -> None:
        """No effect where it has begun after all."""
        await asyncio.to_thread(leftovers.settle_unbegun, self._folder, said)

    async def _listen(self) -> bool:
        """Hear a supervisor out; False where none answers."""
        try:
            reader, writer = await asyncio.open_unix_connection(socket_path(self._folder))
        except OSError:
            return False
        lines = Lines()
        try:
            writer.write(line_of({"say": "follow", "after": self._after}))
            for order in self._unanswered:
                writer.write(line_of(order))
            self._writer = writer
            while piece := await reader.read(1 << 16):
                for entry in lines.feed(piece):
                    self._take(entry)
                if self._is_over:
                    break
        except OSError:
            pass
        finally:
            self._writer = None
            writer.close()
        return True

    async def _catch_up(self) -> None:
        """What the journal has that was not heard."""
        for count, entry in enumerate(journal.read(str(self._folder), self._after)):
            self._take(entry)
            if count % PIECE == PIECE - 1:
                await asyncio.sleep(0)

    async def _without_supervisor(self) -> None:
        """Nobody holds the run: it is over, be it that all has been told before, or it never began."""
        if not journal.has_begun(str(self._folder)):
            self._is_over = True
        elif await asyncio.to_thread(leftovers.settle_lost, self._folder):
            await self._catch_up()
            self._is_over = self.has_ended = True

    def _take(self, entry: Entry) -> None:
        if self._is_over or entry.get("n", 0) <= self._after:
            return
        self._after = entry["n"]
        self._unanswered.clear()
        self._is_over = self.has_ended = entry["what"] in journal.LAST
        report = report_of(self.run, entry)
        if report is not None and self._tell is not None:
            self._tell(report, entry["n"])
