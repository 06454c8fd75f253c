"""The process that owns one run: starts its ranks, watches and ends them, and keeps its journal.

It outlives the manager, holds the run's lock for as long as it lives, and leaves nothing behind. One thread,
one select loop, the standard library alone: the fork server forks it ready to go.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from resource import RUSAGE_CHILDREN, getrusage

from trainmaster.engines.local import (
    containers,
    journal,
    processes,
    progress_throttle,
    rank_processes,
    runfile,
)
from trainmaster.engines.local.cgroups import RunCgroups, cgroup_name
from trainmaster.engines.local.checkpoint_folder import LOOKING_S, last_written_ns, worked_ns
from trainmaster.engines.local.control_socket import Connection, ControlSocket
from trainmaster.engines.local.cooperative_freezer import Declared
from trainmaster.engines.local.exit_status import (
    ExitStatus,
    StopCause,
    exit_status_of,
    start_failure,
    withdrawal,
)
from trainmaster.engines.local.freezer_choice import devices_of, freezers_for
from trainmaster.engines.local.hang_watch import HangWatch
from trainmaster.engines.local.in_place_resize import InPlaceResize, Step
from trainmaster.engines.local.journal import Journal
from trainmaster.engines.local.prerun_end import PrerunEnd, remove_folder
from trainmaster.engines.local.privileges import called_as
from trainmaster.engines.local.process_freezer import send
from trainmaster.engines.local.rank_memory import RankMemory
from trainmaster.engines.local.rank_processes import NOT_FILTERED, Gang, NotStarted, RankProcess
from trainmaster.engines.local.rank_times import RankTimes
from trainmaster.engines.local.run_freezing import RunFreezing
from trainmaster.engines.local.run_pacing import MPS, RunPacing
from trainmaster.engines.local.run_reports import RunReports
from trainmaster.engines.local.run_resizing import PER_GANG, RunResizing, is_whole
from trainmaster_sdk.wire import CHECKPOINT_DIR, Message

MOST_PROFILES = 4
"""Profiles of first steps that are told of a run; a program may open it again and again."""
HOUSEKEEPING_S = 5.0
RETRY_S = 0.5
"""How soon something is tried again that the disk or the kernel refused."""
TRACK_AFTER_S = 0.25
CLOSE_TIMEOUT_S = 5.0
FILE_CLOCK_MS = 1000
"""Times of files are this coarse on some file systems."""
HEARTBEAT: Message = {"beat": True}
"""Shows followers that the supervisor works."""


@dataclass(slots=True)
class Stopping:
    """The run has been told to end: why, and until when it may take."""

    cause: StopCause
    until: float
    since_ns: int
    killed: bool = False
    grace_s: float = 0.0
    """From when it can go on: a frozen one has to be thawed first."""


class Supervisor:
    """One run, from its first process to its last."""

    def __init__(self, folder: str, run: runfile.RunFile, lock: int) -> None:
        self._folder = folder
        self._run = run
        self._lock = lock
        self._selector = selectors.DefaultSelector()
        self._control = ControlSocket(run.socket, self._selector, self._on_line, run.account)
        written = Journal(folder)
        opened = {"pid": os.getpid(), "uuid": run.uuid, "beats": True, "frees_gpus": True}
        written.append(written.entry("opened", opened))
        if not written.is_written:  # without this entry the run might be begun twice
            raise OSError(written.trouble)
        self._reports = RunReports(written, self._control.send_to_followers)
        self._cgroups = RunCgroups(run.cgroups, cgroup_name(run.socket))
        self._gang = Gang(self._cgroups)
        self._memory = RankMemory(self._cgroups.memory_of)
        self._resizing = RunResizing(self._gang, self._control.send_to_rank)
        self._failed: RankProcess | None = None
        """The first rank that ended with an error by itself."""
        self._not_started: NotStarted | None = None
        self._stopping: Stopping | None = None
        self._next: int | None = None
        """The generation to be reshaped into."""
        self._not_in_place = ""
        """Why it is restarted for that, where it could have been resized in place."""
        self._resize_times: dict[str, int] = {}
        """How long the parts of the last resize took, until its first step is told as well."""
        self._resize_at = 0.0
        """When the part of it began that is under way."""
        self._held_orders: list[Message] = []
        """To be carried out after a resize."""
        self._may_lose: int | None = None
        """How many ranks it has said it may lose; None: it has not said yet that it can be resized."""
        self._lost_because = ""
        """Why it had to be killed, through no fault of its own."""
        self._declared = Declared()
        """What its processes can do, as they have said."""
        self._freezing = self._new_freezing()
        self._pacing = self._new_pacing()
        self._hangs = self._new_hang_watch()
        self._rank_times = RankTimes(self._reports.write)
        self._prerun_end = PrerunEnd(run)
        self._has_left = False
        self._has_saved: bool | None = None  # since it was told to stop; None: it reports no saves
        self._unsaved_ms: int | None = None
        """How long it worked from its last file to the order to stop; None: it says itself that it saves."""
        self._started_ns = 0
        self._heeds_stops = False
        self._rank_limit: dict[str, int] | None = None
        """What it said last of how many ranks it can use."""
        self._profiles_left = MOST_PROFILES
        self._done: set[int] = set()  # ranks that have said so
        self._oom_kills = processes.oom_kills()
        self._housekeeping_at = time.monotonic() + HOUSEKEEPING_S
        self._sweep_at: float | None = None
        self._track_at: float | None = None
        self._is_over = False
        self._withdrawal: Message = {"cancelled": False}
        """Whether its manager ended it for good, and why."""
        self._trouble = ""  # what went wrong in here last

    # -- the loop ------------------------------------------------------------------------------------

    def work(self) -> None:
        """Run it to its end; nothing that goes wrong here may end the training."""
        self._catch_children()
        self._guarded(self._start)
        while not self._is_over:
            for key, mask in self._selector.select(self._patience_s()):
                self._guarded(key.data, mask)
            self._guarded(self._tick)
        self._close_connections()

    def _guarded(self, step: Callable[..., None], *said: object) -> None:
        try:
            step(*said)
        except Exception:
            said_before, self._trouble = self._trouble, traceback.format_exc()
            if self._trouble == said_before:  # logged once: it may last for days
                time.sleep(RETRY_S)
                return
            with contextlib.suppress(OSError), open(self._beside("supervisor.log"), "a") as file:
                file.write(self._trouble)

    def _catch_children(self) -> None:
        """A child's end wakes the loop."""
        ours, theirs = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(theirs, warn_on_full_buffer=False)

        def woken(mask: int) -> None:
            with contextlib.suppress(BlockingIOError):
                os.read(ours, 4096)

        self._selector.register(ours, selectors.EVENT_READ, woken)

    def _patience_s(self) -> float:
        now = time.monotonic()
        waits = [self._housekeeping_at, self._sweep_at, self._track_at]
        waits += [self._reports.due_at, self._freezing.due_at, self._pacing.due_at]
        waits += [self._hangs.due_at, self._memory.due_at]
        if self._stopping is None:
            waits.append(self._prerun_end.due_at)
            active = self._resizing.active
            if active is not None:
                is_leaving = active.step is Step.LEAVING
                waits.append(now + 0.02 if is_leaving else max(active.due_at, now + RETRY_S))
        if self._stopping is not None:
            is_watched = self._stopping.until > now and not self._gang.has_ended
            waits.append(self._stopping.until if is_watched else now + 0.02)
        return max(0.0, min(at for at in waits if at is not None) - now)

    def _tick(self) -> None:
        now = time.monotonic()
        self._memory.tick(now, 1 + max((rank.group for rank in self._gang.ranks), default=0))
        self._reap()
        self._step_resize(now)
        if self._is_over:
            return
        self._step_freezing(now)
        is_suspended = self._freezing.is_frozen or self._freezing.is_busy
        is_stopping = self._stopping is not None
        self._pacing.tick(now, is_suspended=is_suspended, is_stopping=is_stopping)
        self._hangs.tick(now, is_suspended=is_suspended, pace=self._pacing.pace)
        if self._track_at is not None and self._track_at <= now:
            self._track_at = None
            self._cgroups.track(self._gang.members)
        self._reports.tick()
        if self._housekeeping_at <= now:
            self._restore_files(now)
        if self._stopping is None and self._prerun_end.is_over(now) and not self._gang.has_ended:
            self._stop(StopCause.PRERUN)
        stopping = self._stopping
        if stopping is not None and self._is_late(stopping, now) and self._gang.lingering():
            stopping.killed = True
            self._gang.kill_all()
            self._reap()
        if self._gang.has_ended and not self._is_leaving:
            self._end_generation(now)

    def _restore_files(self, now: float) -> None:
        """Create again what others may have removed: socket, journal and lock."""
        self._housekeeping_at = now + HOUSEKEEPING_S
        self._control.listen()
        self._reports.retry()
        if os.fstat(self._lock).st_nlink == 0:  # a folder that was moved has it still
            lock = journal.take_lock(self._folder)
            if lock is not None:
                os.close(self._lock)
                self._lock = lock

    # -- starting ------------------------------------------------------------------------------------

    def _start(self) -> None:
        """Bring up all ranks of the present generation."""
        self._failed, self._stopping, self._next = None, None, None
        self._has_left, self._has_saved, self._done = False, None, set()
        self._started_ns, self._unsaved_ms = time.time_ns(), None
        self._declared = Declared()
        self._freezing, self._lost_because = self._new_freezing(), ""
        self._pacing = self._new_pacing()
        self._hangs = self._new_hang_watch()
        self._rank_times = RankTimes(self._reports.write)
        self._resizing = RunResizing(self._gang, self._control.send_to_rank)
        self._may_lose = None
        self._control.forget_ranks()
        joins = self._run.in_place and self._run.generation == 0
        number = self._run.gang_generation * PER_GANG if joins else 0
        self._not_started = self._gang.start(self._run, self._folder, number)
        self._read_outputs(self._gang.ranks)
        if self._not_started is not None:
            self._stop(StopCause.FAILURE)
            return
        if joins:
            self._resizing.join(self._run, number)
            self._hangs.close()  # it waits for others
        what = "started" if self._run.generation == 0 else "reshaped"
        said: Message = self._said_of_ranks()
        said["by_mps"] = self._run.sharing == MPS
        if self._not_in_place:
            said["why"], self._not_in_place = self._not_in_place, ""
        if self._gang.changed_files:
            said["changed"] = self._gang.changed_files
        if self._cgroups.trouble:
            said["remark"] = self._cgroups.trouble
        self._reports.write(what, said)
        self._track_at = time.monotonic() + TRACK_AFTER_S
        if self._cgroups.has_memory_groups:
            self._memory.start(time.monotonic())
        self._execute_held_orders()

    def _said_of_ranks(self) -> Message:
        """Its processes and what they are known by, in the order of their ranks."""
        return {
            "pids": [rank.pid for rank in self._gang.ranks],
            "numbers": [rank.number for rank in self._gang.ranks],
            "generation": self._run.generation,
        }

    def _read_outputs(self, ranks: Iterable[RankProcess]) -> None:
        for rank in ranks:
            assert rank.output is not None
            self._selector.register(rank.output, selectors.EVENT_READ, self._output_reader(rank))

    def _output_reader(self, rank: RankProcess) -> Callable[[int], None]:
        def ready(mask: int) -> None:
            moved = rank_processes.pump(rank)
            if moved:
                self._hangs.sign()
            elif moved == 0:
                self._close_output(rank)

        return ready

    def _close_output(self, rank: RankProcess) -> None:
        if rank.output is not None:
            self._selector.unregister(rank.output)
            os.close(rank.output)
            rank.output = None

    # -- ending --------------------------------------------------------------------------------------

    def _reap(self) -> None:
        """Take note of ranks that have ended: the first with an error ends the others, if they need it."""
        ended, active = self._gang.reap(), self._resizing.active
        if ended and active is not None:
            self._control.drain()  # what they said before
        for rank in ended:
            if rank not in self._gang.ranks:
                if active is not None:
                    active.ended(rank)
            elif rank.code != 0 and self._stopping is None and not self._goes_on_without(rank):
                self._failed = self._resizing.lost_rank or rank
                self._stop(StopCause.FAILURE)

    def _goes_on_without(self, rank: RankProcess) -> bool:
        """Whether the others go on; new ranks that were to join them are started again afterwards."""
        active, is_part = self._resizing.active, not is_whole(self._run)
        if not self._resizing.can_lose(self._run, rank) or self._freezing.is_frozen:
            return False
        if self._resizing.lost_rank is not None:
            return False
        if active is not None:
            if active.step not in (Step.WARM_UP, Step.READY):
                return False
            active.call_off()
            if not is_part:  # else all parts begin it again
                self._resizing.queued = {"generation": active.target.generation}
        self._resizing.lose(self._run, rank, self._folder)
        if is_part:
            self._tell_lost_rank(rank)
        return True

    def _tell_lost_rank(self, lost: RankProcess) -> None:
        self._reports.write_held()
        code = {"code": lost.code, "signal": lost.signal, "tail": lost.log.tail()}
        pids = [rank.pid for rank in self._gang.ranks]
        self._reports.write("replica lost", {"rank": lost.number, "pids": pids} | code)

    def _stop(self, cause: StopCause, grace_ms: int | None = None) -> None:
        """Tell every rank to end; each has the same grace period, whatever the cause."""
        grace_s = (self._run.grace_ms if grace_ms is None else grace_ms) / 1000
        until = time.monotonic() + grace_s
        last, since_ns = self._stopping, time.time_ns()
        if last is not None:
            until, since_ns = min(until, last.until), last.since_ns
        was_killed = last is not None and last.killed
        if cause is StopCause.RESIZE and self._freezing.is_busy and self._freezing.is_wanted:
            self._held_orders.insert(0, {"order": "freeze", "may_keep": self._freezing.may_keep})
        self._leave_resize()
        self._stopping = Stopping(cause, until, since_ns, was_killed, grace_s)
        self._pacing.close()
        self._hangs.close()
        self._ask_to_stop()
        self._gang.terminate()
        self._freezing.let_go()  # a frozen process cannot save

    def _ask_to_stop(self) -> None:
        stopping = self._stopping
        if stopping is not None and stopping.cause.asks:
            left_s = max(0.0, stopping.until - time.monotonic())
            self._control.send_to_ranks(
                {"ask": "stop", "why": stopping.cause.asks, "grace_s": left_s}
            )

    def _end_generation(self, now: float) -> None:
        """All ranks have ended: kill what is left, then start the next generation or end."""
        stopping = self._stopping
        if stopping is not None and stopping.until > now and self._gang.lingering():
            return
        if self._sweep_at is not None and self._sweep_at > now:
            return
        if self._gang.kill_all():
            self._sweep_at = now + RETRY_S
            return
        if any(rank.signal for rank in self._gang.ranks):  # its client was killed before it could
            containers.remove(self._run)
        self._sweep_at = None
        self._freezing.close()
        self._pacing.close()
        self._hangs.close()
        self._gang.reap()
        self._control.drain()
        for rank in (*self._gang.ranks, *self._gang.joining, *self._gang.leaving):
            self._close(rank)
        status = self._exit_status()
        self._reports.write_held()
        if self._not_started is not None and not self._not_started.is_final:
            self._conclude("lost", {"why": self._not_started.why})
        elif self._lost_because:
            self._conclude("lost", {"why": self._lost_because})
        elif self._is_resizing and not status.is_success:
            self._start_next_generation()
        else:
            said = status.said() | (self._withdrawal if status.asked == "kill" else {})
            said["longest_silence_ms"] = self._hangs.longest_ms
            said["ran_ms"] = max(0, time.time_ns() - self._started_ns) // 1_000_000
            said["peak_memory"] = getrusage(RUSAGE_CHILDREN).ru_maxrss << 10
            if self._memory.peak:
                said["rank_memory"] = self._memory.peak
            if self._unsaved_ms is not None:
                said["unsaved_ms"] = self._unsaved_ms
            self._conclude("ended", said)

    def _close(self, rank: RankProcess) -> None:
        """It has ended: keep the rest of its output."""
        while rank_processes.pump(rank):
            pass
        self._close_output(rank)
        rank.log.close()

    def _exit_status(self) -> ExitStatus:
        stopping = self._stopping
        return exit_status_of(
            ranks=self._gang.ranks,
            first=self._failed,
            not_started=self._not_started,
            cause=None if stopping is None else stopping.cause,
            was_killed=stopping is not None and stopping.killed,
            has_left=self._has_left,
            has_saved=self._is_saved(),
            done=self._done,
            limit=self._run.cgroups.memory,
            oom_ranks=self._oom_ranks(),
            machine_oom=processes.oom_kills() > self._oom_kills,
            hang=self._hangs.words,
        )

    def _is_saved(self) -> bool:
        """Whether a halted run saved: as it reports, or else by what it wrote into its checkpoint folder."""
        if self._stopping is None or self._stopping.cause is not StopCause.HALT:
            return False
        if self._has_saved is not None:
            return self._has_saved
        folder, since_ns = self._run.env.get(CHECKPOINT_DIR, ""), self._started_ns
        written_ns: int | None = called_as(
            self._run.account, lambda: last_written_ns(folder, since_ns), 2 * LOOKING_S
        )
        if written_ns is None:
            return False
        if not self._has_left:
            unsaved_ms = (
                worked_ns(written_ns, self._stopping.since_ns, self._freezing.pauses) // 1_000_000
            )
            self._unsaved_ms = 0 if unsaved_ms < FILE_CLOCK_MS else unsaved_ms
        return True

    def _oom_ranks(self) -> set[int]:
        killed = self._cgroups.oom_kills
        return {
            rank.number for rank in self._gang.ranks if killed(rank.group) > rank.oom_kills_before
        }

    def _start_next_generation(self) -> None:
        assert self._next is not None
        self._cgroups.remove()
        try:
            self._run = runfile.read(self._folder, self._next)
        except (OSError, ValueError) as problem:
            self._conclude("lost", {"why": f"Its new shape is not readable: {problem}."})
            return
        began = time.monotonic()
        self._resize_times["stop_ms"] = round((began - self._resize_at) * 1000)
        self._start()
        self._resize_at = time.monotonic()
        self._resize_times["start_ms"] = round((self._resize_at - began) * 1000)

    def _conclude(self, what: str, said: Message) -> None:
        """Write the last entry; "lost" means that the job is not at fault and is tried again."""
        if self._run.prerun_ms:
            remove_folder(self._folder, self._run.account)
        self._reports.write(what, said)
        self._cgroups.remove()
        self._is_over = True

    def _close_connections(self) -> None:
        """Stay until the end is on the disk, and followers have had time to read it."""
        while not self._reports.is_written:
            time.sleep(RETRY_S)
            self._reports.retry(HEARTBEAT)
        until = time.monotonic() + CLOSE_TIMEOUT_S
        while self._control.has_unread and time.monotonic() < until:
            for key, mask in self._selector.select(0.1):
                self._guarded(key.data, mask)
        self._control.close()

    # -- what is said --------------------------------------------------------------------------------

    def _on_line(self, connection: Connection, said: Message) -> None:
        """One line; unknown ones are ignored."""
        word = said.get("say")
        if (word == "follow" or "order" in said) and not connection.may_order:
            self._control.refuse(connection)
            return
        if connection.rank is not None:
            self._freezing.heard(connection.rank, said)
            self._resizing.heard(connection.rank, said)
            self._tell_ability()
        if word == "hello":
            process = said.get("process", said.get("rank"))
            connection.rank = process if isinstance(process, int) else 0
            self._ask_to_stop()
            self._resizing.heard(connection.rank, said)
            self._freezing.heard(connection.rank, said)
            self._pacing.connected(connection)
        elif word == "follow":
            after = said.get("after")
            connection.follows = True
            first = after if isinstance(after, int) else 0
            self._control.say(connection, self._reports.remembered(first))
        elif word == "ping":
            self._control.say(connection, [HEARTBEAT])
        elif word == "progress":
            report = progress_throttle.cleaned(said)
            if report is not None and self._pacing.accepts(connection, report):
                self._reports.hold_progress(report)
                self._pacing.step_done(report["step"])
                self._hangs.step_done(report["step"])
                if connection.rank is not None and report.get("steps_per_s"):
                    self._rank_times.take(connection.rank, 1000 / report["steps_per_s"])
                self._prerun_end.note_step(report["step"])
                if "start_ms" in self._resize_times:  # it was restarted for its resize
                    ms = round((time.monotonic() - self._resize_at) * 1000)
                    self._resize_times["first_step_ms"] = ms
                    self._tell_resize_times()
        elif word == "step time" and connection.rank is not None:
            self._rank_times.take(connection.rank, said.get("ms"))
        elif word == "own time":
            self._rank_times.take_own(said)
        elif word == "saved":
            self._has_saved = self._stopping is not None
            self._reports.hold_save(said)
            self._hangs.sign()
        elif word == "profile" and self._profiles_left:
            self._profiles_left -= 1
            self._reports.write("profile", dict(progress_throttle.cleaned_profile(said)))
        elif word == "heeds stops" and not self._heeds_stops:
            self._heeds_stops = True
            self._reports.write("heeds stops", {})
        elif word == "most ranks":
            limit = progress_throttle.cleaned_limit(said)
            if limit is not None and limit != self._rank_limit:
                self._rank_limit = limit
                self._reports.write("ranks limited", dict(limit))
        elif word == "first step" and said.get("n") == self._resize_times.get("number"):
            took_ms = said.get("ms")
            self._resize_times["first_step_ms"] = took_ms if isinstance(took_ms, int) else 0
            self._tell_resize_times()
        elif word == "leaving":
            self._has_left = True
        elif word == "done":
            self._done.add(self._run.first_rank if connection.rank is None else connection.rank)
        elif word == "gpu use":
            self._hangs.gpu_used(said.get("util_ppm"))
        elif isinstance(order := said.get("order"), str):
            self._execute_order(order, said)

    def _execute_order(self, order: str, said: Message) -> None:
        """Orders may come twice; one that has been carried out changes nothing."""
        self._reap()
        if self._gang.has_ended and not self._is_resizing:
            return
        stated = said.get("grace_ms")
        grace_ms = stated if isinstance(stated, int) and stated >= 0 else None
        if order in ("halt", "kill"):
            if said.get("cancels") is True:
                self._withdrawal = withdrawal(said)
            self._end(StopCause.HALT if order == "halt" else StopCause.KILL, grace_ms)
        elif order == "reshape":
            self._reshape(said, grace_ms)
        elif order in ("freeze", "thaw") and (
            self._is_resizing or (self._stopping is None and self._resizing.active is not None)
        ):
            self._held_orders.append(said)
        elif self._stopping is not None:
            return
        elif order == "regroup":
            self._resizing.regroup(self._run, said, self._folder)
        elif order == "leave":
            self._resizing.leave(self._run, said, self._folder)
        elif order == "wait" and isinstance(seconds := said.get("s"), int):
            self._control.send_to_ranks({"ask": "wait", "n": seconds})
        elif order == "fail" and self._resizing.lost_rank is not None:
            self._failed = self._resizing.lost_rank
            self._stop(StopCause.FAILURE)
        elif order == "freeze":
            self._pacing.let_go()
            may_keep = said.get("may_keep")
            self._freezing.freeze(may_keep if isinstance(may_keep, int) else None)
        elif order == "thaw":
            self._thaw(said.get("devices"), said.get("minors"))
        elif order == "save":
            self._save()

    def _thaw(self, devices: object, minors: object) -> None:
        """On other GPUs: it may open those, and no longer the ones that it had."""
        if self._freezing.is_frozen and isinstance(minors, list):
            try:
                self._cgroups.allow(minors)
            except OSError as refused:
                self._lose(f"{NOT_FILTERED}: {refused.strerror}.")
                return
        self._freezing.thaw(devices if isinstance(devices, list) else None)

    def _end(self, cause: StopCause, grace_ms: int | None) -> None:
        """Stop it; a run that is stopping already may be given less time, not more."""
        if self._stopping is None or self._stopping.cause.yields_to(cause):
            self._stop(cause, grace_ms)
        elif grace_ms is not None:
            until = time.monotonic() + grace_ms / 1000
            self._stopping.until = min(self._stopping.until, until)
            self._stopping.grace_s = min(self._stopping.grace_s, grace_ms / 1000)

    def _reshape(self, said: Message, grace_ms: int | None) -> None:
        """In place, where its program can; else it is stopped and started again from its checkpoint."""
        generation, active = said.get("generation"), self._resizing.active
        if not isinstance(generation, int) or generation <= self._run.generation:
            return
        if active is not None:
            if generation > active.target.generation:
                self._resizing.queued = said
            return
        order_ms = _age_ms(said)
        if self._stopping is None and not self._resize_in_place(generation, order_ms):
            if self._is_of_gang(generation):
                return
            self._resize_at, self._resize_times = time.monotonic(), {"order_ms": order_ms}
            self._stop(StopCause.RESIZE, grace_ms)
        if self._is_resizing:
            self._next = generation

    # -- resizing in place ---------------------------------------------------------------------------

    def _resize_in_place(self, generation: int, order_ms: int) -> bool:
        """Begin it; False where the run has to be restarted."""
        if self._freezing.is_frozen or self._freezing.is_busy:
            return False
        try:
            target = runfile.read(self._folder, generation)
        except (OSError, ValueError):
            return False
        if self._resizing.is_old(target):
            return True
        found = self._resizing.assignment(self._run, target)
        if found is None:
            return False
        minors, before = target.cgroups.minors, self._run.cgroups.minors
        if minors is not None:
            try:
                self._cgroups.allow({*minors, *(before or ())})
            except OSError:
                return False
        self._resizing.begin(self._run, target, found, order_ms, self._folder)
        self._read_outputs(self._gang.joining)
        return True

    def _step_resize(self, now: float) -> None:
        active = self._resizing.active
        if active is None or self._stopping is not None:
            return
        active.tick(now, is_saving=self._resizing.is_saving(now))
        if active.step is Step.READY and not active.is_ready_told:
            active.is_ready_told = True
            self._reports.write("resize ready", {"number": active.number // PER_GANG})
        if active.is_late and not active.is_late_told:
            active.is_late_told = True
            self._not_resized(active.number // PER_GANG, active.why_late, is_late=True)
        if active.failure:
            self._give_up_resize(active)
        elif active.step is Step.DONE:
            self._end_resize(active)

    def _give_up_resize(self, active: InPlaceResize) -> None:
        """Restart it with the new ranks, from what it saves now; a run that has lost a rank has failed."""
        lost, queued = self._resizing.lost_rank, self._resizing.queued
        if lost is not None:
            self._failed = lost
            self._stop(StopCause.FAILURE)
            return
        if not active.is_whole:
            self._not_resized(active.number // PER_GANG, active.failure)
            self._stop(StopCause.HALT)  # those that could not regroup save now, and leave
            return
        self._not_in_place = active.failure
        self._resize_at, self._resize_times = time.monotonic(), {**active.phases}
        self._stop(StopCause.RESIZE)
        newest = active.target.generation
        if queued is not None:
            newest = max(newest, queued["generation"])
        self._next = newest

    def _is_of_gang(self, generation: int) -> bool:
        """Whether all parts of a gang are to do that together; then all hear that it cannot be done."""
        try:
            target = runfile.read(self._folder, generation)
        except (OSError, ValueError):
            return False
        if target.in_place:
            self._not_resized(target.gang_generation, "its ranks cannot be resized in place now")
        return target.in_place

    def _not_resized(self, number: int, why: str, *, is_late: bool = False) -> None:
        self._reports.write("not resized", {"number": number, "why": why, "is_late": is_late})

    def _tell_ability(self) -> None:
        """Once for each way in which its ranks were started."""
        may_lose = self._resizing.may_lose
        if self._may_lose == may_lose or not self._resizing.can_resize(self._run):
            return
        if self._stopping is None and self._resizing.active is None:
            self._may_lose = may_lose
            self._reports.write("can resize", {"may_lose": may_lose})

    def _end_resize(self, active: InPlaceResize) -> None:
        """All are in the new group, and nothing runs of those that have left it."""
        queued, lost = self._resizing.queued, self._resizing.lost_rank
        for rank in self._gang.leaving:
            self._close(rank)
        self._gang.ranks, self._gang.joining, self._gang.leaving = active.members(), [], []
        if not self._gang.ranks:  # they go on on other machines
            self._leave_gang()
            return
        self._resizing.active = self._resizing.queued = self._resizing.lost_rank = None
        self._done &= {rank.number for rank in self._gang.ranks}
        self._run = active.target
        self._resize_times = active.phases | {"number": active.number}
        if lost is not None and active.is_whole:
            self._tell_lost_rank(lost)
        elif queued is None:
            self._reports.write_held()
            pause = sum(active.phases[name] for name in ("regroup_ms", "broadcast_ms"))
            told = {"in_place": True, "pause_ms": pause}
            self._reports.write("reshaped", self._said_of_ranks() | told)
        if "first_step_ms" in self._resize_times:
            self._tell_resize_times()
        self._renew_watches(is_arrival=active.is_arrival)
        self._execute_held_orders()
        if queued is not None:
            self._reshape(queued, None)

    def _leave_gang(self) -> None:
        """Nothing of its gang is left on this machine."""
        self._freezing.close()
        self._pacing.close()
        self._hangs.close()
        self._reports.write_held()
        ran_ms = max(0, time.time_ns() - self._started_ns) // 1_000_000
        self._conclude("ended", start_failure("", 0).said() | {"ran_ms": ran_ms})

    def _execute_held_orders(self) -> None:
        held, self._held_orders = self._held_orders, []
        for said in held:
            self._execute_order(said["order"], said)

    def _renew_watches(self, *, is_arrival: bool) -> None:
        """What looks after its processes and GPUs looks after the new ones."""
        minors = self._run.cgroups.minors
        if minors is not None:
            try:
                self._cgroups.allow(minors)
            except OSError as refused:
                self._lose(f"{NOT_FILTERED}: {refused.strerror}.")
                return
        self._freezing.close()
        self._declared.keep(rank.number for rank in self._gang.ranks)
        self._freezing = self._new_freezing()
        self._pacing.close()
        self._pacing = self._new_pacing()
        for connection in self._control.rank_connections():
            self._pacing.connected(connection)
        self._rank_times = RankTimes(self._reports.write)
        if is_arrival:
            self._hangs = self._new_hang_watch()
        self._hangs.sign()
        self._track_at = time.monotonic() + TRACK_AFTER_S

    def _leave_resize(self) -> None:
        """It is told to stop: ranks that are in the new group are stopped with the others, new ones end."""
        active, self._resizing.active = self._resizing.active, None
        if active is None:
            return
        if active.is_joined:
            self._gang.ranks, self._gang.joining = active.members(), []
            return
        active.call_off()
        if not self._gang.ranks:
            self._gang.ranks, self._gang.leaving = self._gang.leaving, []

    @property
    def _is_leaving(self) -> bool:
        """Whether all its ranks leave a gang that goes on on other machines."""
        is_resized = self._stopping is None and self._resizing.active is not None
        return is_resized and not self._gang.ranks

    def _tell_resize_times(self) -> None:
        """Its first step after a resize is done."""
        times, self._resize_times = self._resize_times, {}
        self._reports.write("resize timed", {**times})

    @property
    def _is_resizing(self) -> bool:
        return self._stopping is not None and self._stopping.cause is StopCause.RESIZE

    def _new_freezing(self) -> RunFreezing:
        devices = devices_of(self._run)
        freezers = freezers_for(
            self._run, self._gang, self._selector, self._control, self._declared
        )
        said, lose = self._on_freezing, self._lose
        return RunFreezing(self._gang.members, freezers, devices, said, lose)

    def _new_pacing(self) -> RunPacing:
        members, tell = self._gang.members, self._reports.write
        return RunPacing(self._folder, self._run, members, self._control, tell)

    def _new_hang_watch(self) -> HangWatch:
        run, gang = self._run, self._gang
        return HangWatch(
            self._folder,
            run.hang,
            bool(devices_of(run)),
            gang.members,
            self._selector,
            gang.outsiders,
            self._reports.write,
            lambda: self._stop(StopCause.HANG),
            run.account,
        )

    def _step_freezing(self, now: float) -> None:
        """A run that is stopping has its whole grace period from when it can go on."""
        was_busy = self._freezing.is_busy
        self._freezing.step(now)
        if was_busy and not self._freezing.is_busy and self._stopping is not None:
            self._stopping.until = max(self._stopping.until, now + self._stopping.grace_s)

    def _is_late(self, stopping: Stopping, now: float) -> bool:
        is_waited_for = self._freezing.is_busy and stopping.grace_s > 0
        return stopping.until <= now and not is_waited_for

    def _on_freezing(self, what: str, said: Message) -> None:
        """It is frozen when nothing of it moves any more; one that has ended by then has ended."""
        if what == "frozen":
            self._reap()
            if self._gang.has_ended or not self._freezing.is_frozen:
                return
            self._reports.write_held()
        self._reports.write(what, said)

    def _lose(self, why: str) -> None:
        """It can neither be frozen nor go on: it starts again from its checkpoint."""
        if self._stopping is None:
            self._lost_because = why
            self._stop(StopCause.FAILURE, 0)
        else:
            self._stopping.until, self._stopping.grace_s = time.monotonic(), 0.0

    def _save(self) -> None:
        """Ask ranks that use the SDK; signal only programs that have a handler for it."""
        self._control.send_to_ranks({"ask": "save"})
        heard = self._control.ranks()
        running = (rank for rank in self._gang.ranks if rank.code is None)
        silent = [rank.pid for rank in running if rank.number not in heard]
        for pid in containers.told_to_save(silent, self._run.container_engine):
            send(pid, signal.SIGUSR1)

    def _beside(self, name: str) -> str:
        return os.path.join(self._folder, name)


def _age_ms(said: Message) -> int:
    """How long ago an order was given; 0 where it does not say."""
    ordered = said.get("ordered_ms")
    return max(0, time.time_ns() // 1_000_000 - ordered) if isinstance(ordered, int) else 0


def supervise(folder: str, has_a_manager: Callable[[], bool], answer: Callable[[], None]) -> None:
    """Own the run in this folder, unless it has, or had, an owner already."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    lock = journal.claim(folder)
    if lock is None or journal.has_begun(folder) or not has_a_manager():
        answer()
        return
    processes.become_subreaper()
    run = runfile.read(folder)
    processes.set_process_name(f"tm {run.name}")
    supervisor = Supervisor(folder, run, lock)
    answer()
    supervisor.work()
