"""Follows one run: over its supervisor's socket while there is one, in its journal when there is not."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path

import structlog

from trainmaster.engines.local import journal, orphan_cleanup, runfile
from trainmaster.engines.local.fork_server_client import ForkServerClient
from trainmaster.engines.local.journal import JournalEntry
from trainmaster.engines.local.orphan_cleanup import RunRemains
from trainmaster.engines.local.pending_orders import ENDS, PendingOrders
from trainmaster.engines.local.socket_paths import takes_orders
from trainmaster.model import engine_reports as r
from trainmaster.model.engine_reports import Ended, Lost, Report, StopOrder
from trainmaster.model.job import Run
from trainmaster.model.stop_reasons import EndReason
from trainmaster_sdk.wire import Message, MessageReader, encode_message

log = structlog.get_logger(__name__)

RETRY_S = 0.5
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.005, 1.0
STARTS = 5
"""How often a supervisor is asked for before the run is given up."""
PIECE = 500
"""Entries that are reported at once, before other tasks of the manager run."""

PING: Message = {"say": "ping"}

NEVER_BEGUN = "Its supervisor could not be started: look into supervisor.log in the run's folder."
NOT_FOLLOWED = "It could not be followed any more and was ended: manager.log says why."
OLD_SUPERVISOR = (
    "It was started by an earlier version of Trainmaster, which cannot free its GPU memory."
)
ORPHANED = "It was ended as an orphan, before it was launched again."


REPORTS: dict[str, type[Report]] = {
    "started": r.Started,
    "reshaped": r.Reshaped,
    "can resize": r.CanResize,
    "resize ready": r.ResizeReady,
    "not resized": r.NotResized,
    "resize timed": r.ResizeTimed,
    "replica lost": r.ReplicaLost,
    "frozen": r.Frozen,
    "not frozen": r.NotFrozen,
    "thawed": r.Thawed,
    "saved": r.Saved,
    "files kept": r.FilesKept,
    "profile": r.Profiled,
    "heeds stops": r.HeedsStops,
    "ranks limited": r.RanksLimited,
    "paced": r.Paced,
    "hung": r.Hung,
    "went on": r.WentOn,
    "straggler": r.Straggled,
    "progress": r.Progressed,
    "ended": Ended,
    "lost": Lost,
}
LATER: dict[type[Report], frozenset[str]] = {
    r.Started: frozenset({"by_mps"}),
    r.Reshaped: frozenset({"in_place", "why"}),
    r.NotResized: frozenset({"is_late"}),
    r.Frozen: frozenset({"how", "why"}),
    r.Paced: frozenset({"is_heeded"}),
    r.FilesKept: frozenset({"missing"}),
}
"""Fields that journals of earlier versions do not have."""


def report_of(run: Run, entry: JournalEntry) -> Report | None:
    """An entry of a journal as a report; None for entries that only the engine uses.

    Only fields that may be None, and later ones, may be absent: KeyError otherwise.
    """
    kind = REPORTS.get(entry["what"])
    if kind is None:
        return None
    _, *stated = fields(kind)
    may_lack = LATER.get(kind, frozenset()) | {f.name for f in stated if f.default is None}
    said = {f.name: entry[f.name] for f in stated if f.name in entry or f.name not in may_lack}
    if entry.get("boot") != journal.BOOT:
        said.pop("steady_ms", None)
    for name in ("pids", "changed", "stacks", "unfit", "nodes", "numbers"):
        if said.get(name) is not None:
            said[name] = tuple(said[name])
    if "asked" in said:
        said["asked"] = StopOrder(said["asked"])
    if said.get("end") is not None:
        said["end"] = EndReason.from_json(said["end"])
    return kind(run, **said)


@dataclass(frozen=True, slots=True)
class LaunchSteps:
    """What must happen before there is anything to follow."""

    fork_server: ForkServerClient
    prepare: Callable[[], None]
    """Writes down what is to be run."""
    end_earlier: Callable[[], Sequence[Path]]
    """Ends earlier attempts of the job; files that go when those are over: never two at once."""


class RunFollower:
    """Reports one run's entries in order, each once, and sends its orders.

    `after` is the last report that was seen: 0 for none, and then the run may not have begun.
    """

    def __init__(
        self,
        run: Run,
        remains: RunRemains,
        after: int,
        tell: Callable[[Report, int], None] | None,
        on_over: Callable[[RunFollower], None],
        has_gpus: bool = False,
    ) -> None:
        self.run = run
        self._remains = remains
        self._folder = str(remains.folder)
        self._after = after
        self._tell = tell
        """None: its reports are not needed; it is only being killed."""
        self._on_over = on_over
        self._has_gpus = has_gpus
        self.has_ended = False
        """Whether its last entry has been read."""
        self.never_began = False
        """Whether it is over because its launch never came."""
        self.silent_s = 0.0
        """How long its supervisor has said nothing."""
        self._lost_because = orphan_cleanup.WHY_LOST
        self._was_orphan = tell is None
        self._beginning: LaunchSteps | None = None
        self._socket: str | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._was_alive = False
        """Whether this manager has heard of its supervisor, or seen its processes."""
        self.has_looked = asyncio.Event()
        """Set once all that happened before is reported: what follows is news."""
        self._orders = PendingOrders()
        self._is_over, self._is_broken = False, False
        self._task: asyncio.Task[None] | None = None
        self._preparing: list[asyncio.Task[None]] = []
        """Orders whose files are being written."""

    @property
    def folder(self) -> Path:
        return self._remains.folder

    @property
    def told(self) -> int:
        """The number of the last entry that was taken in."""
        return self._after

    def ping(self) -> None:
        """Ask its supervisor for a sign of life."""
        self.say(PING)

    def say(self, said: Message) -> None:
        """To its supervisor, if it is connected now: nothing is lost where it is not."""
        if self._writer is not None:
            self._writer.write(encode_message(said))

    def kill_supervisor(self, why: str) -> None:
        """Kill its supervisor, which hangs; the run is then found to be lost."""
        self._lost_because, self.silent_s = why, 0.0
        orphan_cleanup.kill_supervisor(self._remains)

    def begin(self, beginning: LaunchSteps | None) -> None:
        """Start following; what may have to be begun first comes with how."""
        self._beginning = beginning
        self._task = asyncio.create_task(self._follow())

    def launch(self, tell: Callable[[Report, int], None] | None, beginning: LaunchSteps) -> None:
        """Start the run if it has not begun, and report to its owner from now on."""
        if self._tell is None:
            self._tell = tell
            if self._after == 0:  # no report was missed
                self._orders.drop_unsent()
        if self._after == 0 and self._beginning is None:
            self._beginning = beginning

    async def stop(self) -> None:
        tasks = [*self._preparing, *([] if self._task is None else [self._task])]
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def send(self, said: Message) -> None:
        """To the supervisor, now or as soon as it answers; after an order before it whose files are being
        written, unless it ends the run."""
        if self._preparing and said["order"] not in ENDS:
            self.send_when_ready(lambda: said)
        else:
            self._send(said)

    def _send(self, said: Message) -> None:
        self._orders.add(said)
        if self._writer is not None:
            self._send_due(self._writer)

    def send_when_ready(self, prepare: Callable[[], Message]) -> None:
        """Send an order once its files are written, which is retried until it works."""
        task = asyncio.create_task(self._prepare_and_send(prepare, [*self._preparing]))
        self._preparing.append(task)
        task.add_done_callback(self._preparing.remove)

    async def _prepare_and_send(
        self, prepare: Callable[[], Message], before: Sequence[asyncio.Task[None]]
    ) -> None:
        if before:
            await asyncio.wait(before)
        trouble = ""
        while not self._is_over:
            try:
                self._send(await asyncio.to_thread(prepare))
                return
            except OSError as problem:
                if trouble != str(problem):
                    trouble = str(problem)
                    log.warning("an order has to wait", run=self.run, why=trouble)
                await asyncio.sleep(RETRY_S)
            except Exception:
                log.exception("an order cannot be carried out", run=self.run)
                self._is_broken = True
                if self._writer is not None:
                    self._writer.close()
                return

    # -- following -----------------------------------------------------------------------------------

    async def _follow(self) -> None:
        """Until the run is over; temporary errors, such as a full disk, are retried.

        Any other error loses the run: without a follower it would never end.
        """
        trouble = ""
        try:
            while not self._is_over:
                try:
                    await self._begin_and_follow()
                except OSError as problem:
                    if trouble != str(problem):
                        trouble = str(problem)
                        log.warning("a run has to wait", run=self.run, why=trouble)
                    await asyncio.sleep(RETRY_S)
                except Exception as problem:
                    if trouble != repr(problem):
                        trouble = repr(problem)
                        log.exception("a run cannot be followed", run=self.run)
                    if self._is_broken:
                        await asyncio.sleep(RETRY_S)
                    self._is_broken = True
        finally:
            for task in self._preparing:
                task.cancel()
            self.has_looked.set()
            self._on_over(self)

    async def _begin_and_follow(self) -> None:
        if self._is_broken:
            await self._give_up()
            return
        if self._beginning is not None:
            await self._begin(
                self._beginning
            )  # kept until there is an entry: the process that began it may die
        await self._follow_supervisor()

    async def _follow_supervisor(self) -> None:
        """Follow its supervisor from one connection to the next."""
        pause = FIRST_PAUSE_S
        while not self._is_over and not self._is_broken:
            has_heard = await self._listen()
            self._was_alive |= has_heard
            if await self._catch_up():
                return
            if not journal.is_locked(self._folder):
                if self._beginning is not None and not journal.has_begun(self._folder):
                    return
                if await self._without_supervisor():
                    return
            self.has_looked.set()
            pause = FIRST_PAUSE_S if has_heard else min(2 * pause, LONGEST_PAUSE_S)
            await asyncio.sleep(pause)

    async def _begin(self, beginning: LaunchSteps) -> None:
        """Start the run, unless another process has; if that fails, write that it never began."""
        earlier = beginning.end_earlier()
        while any(marker.exists() for marker in earlier):
            await asyncio.sleep(0.02)
        if journal.has_begun(self._folder):
            return
        await asyncio.to_thread(beginning.prepare)  # it waits for the disk
        self._socket = None
        for _ in range(STARTS):
            ends = self._orders.ends
            if ends:
                await self._close_unstarted("ended", orphan_cleanup.ended_before_start(ends[-1]))
                return
            came = await beginning.fork_server.spawn(self._remains.folder)
            if journal.has_begun(self._folder) or (came and journal.is_locked(self._folder)):
                return
            await asyncio.sleep(0.1)
        await self._close_unstarted("lost", {"why": NEVER_BEGUN})

    async def _close_unstarted(self, what: str, said: JournalEntry) -> bool:
        """Write the end of a run that has not begun; False if it has."""
        return await asyncio.to_thread(
            orphan_cleanup.close_unstarted_run, self._remains, what, said
        )

    async def _listen(self) -> bool:
        """Read a supervisor's entries until it disconnects; False if it does not answer."""
        if await self._catch_up():  # first, so that what is heard afterwards is new
            return False
        if self._socket is None:
            self._socket = runfile.socket_of(self._folder)
        at = self._socket or self._remains.socket
        if not journal.is_locked(self._folder) and await asyncio.to_thread(
            orphan_cleanup.is_of_another_folder, self._remains, at
        ):
            return False
        try:
            reader, writer = await asyncio.open_unix_connection(takes_orders(at))
        except OSError:
            return False
        lines = MessageReader()
        try:
            writer.write(encode_message({"say": "follow", "after": self._after}))
            self._orders.mark_all_due()
            self._send_due(writer)
            self._writer = writer
            self.has_looked.set()
            while piece := await reader.read(1 << 16):
                self.silent_s = 0.0
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

    def _send_due(self, writer: asyncio.StreamWriter) -> None:
        for said in self._orders.take_due(self._after):
            writer.write(encode_message(said))

    async def _catch_up(self) -> bool:
        """Take what the journal has that was not heard; whether it is over by that."""
        for count, entry in enumerate(journal.read(self._folder, self._after)):
            self._take(entry)
            if count % PIECE == PIECE - 1:
                await asyncio.sleep(0)
        return self._is_over

    async def _without_supervisor(self) -> bool:
        """Close a run without a supervisor: it has ended, is lost or never began; False: not yet."""
        is_unseen = self._after == 0 and not journal.has_begun(self._folder)
        if is_unseen and (self._tell is None or not (self._orders or self._preparing)):
            self._is_over = self.never_began = True
            return True
        ends = self._orders.ends
        if is_unseen and ends:
            is_closed = await self._close_unstarted(
                "ended", orphan_cleanup.ended_before_start(ends[-1])
            )
        else:
            if not self._was_alive:
                left = await asyncio.to_thread(orphan_cleanup.processes_left, self._remains)
                self._was_alive = bool(left)
            lose = partial(orphan_cleanup.close_lost_run, was_alive=self._was_alive)
            is_closed = await asyncio.to_thread(
                lose, self._remains, self._after, self._lost_because
            )
        if is_closed:
            await self._catch_up()
            self._is_over = self.has_ended = True
        return is_closed

    async def _give_up(self) -> None:
        """End everything of a run that cannot be followed, and report how it ended, or that it is lost."""
        await asyncio.to_thread(orphan_cleanup.kill_supervisor, self._remains)
        lose = orphan_cleanup.close_lost_run
        if not await asyncio.to_thread(lose, self._remains, self._after, NOT_FOLLOWED):
            await asyncio.sleep(RETRY_S)
            return
        entry = journal.last(self._folder)
        assert entry is not None
        self._is_over = self.has_ended = True
        try:
            report = report_of(self.run, entry)
        except Exception:
            report = None
        if self._tell is not None and entry["n"] > self._after:
            self._tell(report or Lost(self.run, entry["at_ms"], NOT_FOLLOWED), entry["n"])

    def _take(self, entry: JournalEntry) -> None:
        if self._is_over or entry.get("n", 0) <= self._after:
            return
        report = report_of(self.run, entry)
        if isinstance(report, r.Frozen | r.Thawed) and self._has_gpus and not self._frees_gpus():
            report = self._not_frozen(report)
        self._after = entry["n"]
        self._beginning = None
        self._orders.drop_answered(entry)
        self._is_over = self.has_ended = entry["what"] in journal.LAST
        if self._was_orphan and isinstance(report, Ended) and report.asked is StopOrder.KILL:
            report = Lost(self.run, report.at_ms, ORPHANED)
        if report is not None and self._tell is not None:
            self._tell(report, entry["n"])

    def _frees_gpus(self) -> bool:
        """Whether its supervisor can: one of an earlier version only stops processes."""
        opened = next(journal.read(self._folder), {})
        return opened.get("frees_gpus") is True

    def _not_frozen(self, report: r.Frozen | r.Thawed) -> r.NotFrozen | None:
        """What a supervisor of an earlier version stopped goes on: its GPU memory is not free."""
        if isinstance(report, r.Thawed):
            return None
        self.send({"order": "thaw"})
        return r.NotFrozen(self.run, report.at_ms, OLD_SUPERVISOR, True, report.steady_ms)
