"""The processes of one run: started together, each rank in a session of its own."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import signal
import struct
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import NoReturn

from trainmaster.engines.local import logs, privileges, processes, program_files
from trainmaster.engines.local.cgroups import RunCgroups
from trainmaster.engines.local.logs import RankLog
from trainmaster.engines.local.process_freezer import send
from trainmaster.engines.local.runfile import RunFile
from trainmaster.engines.local.secret_files import SecretProblem, problem_sentence, read_secrets
from trainmaster_sdk import wire
from trainmaster_sdk.process_tree import descendants_by_scan, is_alive

PIPE_BYTES = 1 << 20
F_SETPIPE_SZ = 1031
NOT_FOUND, NOT_EXECUTABLE = 127, 126
"""What shells use for commands that cannot be started."""
NOT_CONFIGURED = 78
"""EX_CONFIG: what it needs beside its command is not as it must be."""
AT_SETUP, AT_WORKDIR, AT_COMMAND, AT_ACCOUNT, AT_SECRETS, AT_DEVICES = 0, 1, 2, 3, 4, 5
NOT_FILTERED = "Its control group could not be kept to its own GPUs"
JOBS_OWN_FAULT = frozenset(
    {
        *(errno.ENOENT, errno.EACCES, errno.ENOEXEC, errno.ENOTDIR),
        *(errno.E2BIG, errno.ELOOP, errno.ENAMETOOLONG, errno.EINVAL),
    }
)
"""Errors that every retry would meet again. All others are temporary errors of the machine."""
SWEEPS = 50


@dataclass(slots=True)
class RankProcess:
    """One process of the gang, which leads a group of its own."""

    number: int
    """Its rank when it was started, or a free number where it has joined others: its log is named so."""
    pid: int
    output: int | None
    """Our end of the pipe that it writes to; None once it is closed."""
    log: RankLog
    code: int | None = None
    """None while it runs; 128 + n for signal n."""
    signal: str = ""
    """The signal that ended it; empty where it exited, whatever its code."""
    group: int = 0
    """The number of its control group."""
    oom_kills_before: int = 0
    """How many processes had been killed in that group, which another rank may have had, for their memory."""


@dataclass(frozen=True, slots=True)
class NotStarted:
    """A rank whose program cannot be executed."""

    rank: int
    code: int
    why: str
    is_final: bool = True
    """Whether another attempt would end the same way; else a temporary error of the machine."""


@dataclass(frozen=True, slots=True)
class RankStart:
    """What one process is started as."""

    number: int
    place: int
    """Among the ranks of the run's file."""
    group: int
    """The number of its control group."""
    env: dict[str, str]
    """Beside what the file says."""


class Gang:
    """All ranks of a run with everything that they have started. Its owner must be a subreaper."""

    def __init__(self, cgroups: RunCgroups) -> None:
        self._cgroups = cgroups
        self.ranks: list[RankProcess] = []
        self.joining: list[RankProcess] = []
        """Started beside the ranks, to become some of them."""
        self.leaving: list[RankProcess] = []
        """Were ranks, and are about to end: the gang goes on without them."""
        self.first = 0
        """The number of the first rank that was started."""
        self.changed_files: list[str] = []
        """Files of the program that are not as they were at submission."""
        self.outsiders: set[int] = set()
        """Children of ours that are not of the run, and have not ended."""
        self._list = processes.descendants if processes.can_list_children() else descendants_by_scan

    @property
    def has_ended(self) -> bool:
        """Whether no rank runs; what they started may. Where all leave, those that leave have to end."""
        return all(rank.code is not None for rank in self.ranks or self.leaving)

    def running(self) -> int:
        """How many of its ranks have not ended."""
        return sum(rank.code is None for rank in self.ranks)

    def rank_pids(self) -> list[int]:
        """The processes that were started as its ranks and have not ended."""
        return [rank.pid for rank in self.ranks if rank.code is None]

    def start(self, run: RunFile, folder: str, joins: int = 0) -> NotStarted | None:
        """All ranks; else why the first of them could not be started. `joins`: the number of the resize by
        which they join others, on other machines."""
        self.ranks, self.joining, self.leaving, self.changed_files = [], [], [], []
        try:
            self._cgroups.prepare(len(run.ranks), run.cgroups.minors)
        except OSError as refused:
            return _not_filtered(run.first_rank, refused.errno or 0)
        self.first = run.first_rank
        count = len(run.ranks)
        numbers = run.numbers[:count] if joins else range(self.first, self.first + count)
        wanted = [
            (number, place, joining(joins, number) if joins else {})
            for place, number in enumerate(numbers)
        ]
        return self._start_all(run, folder, wanted, self.ranks)

    def start_joining(
        self, run: RunFile, folder: str, wanted: Sequence[tuple[int, int, dict[str, str]]]
    ) -> NotStarted | None:
        """More processes, for ranks of `run`: each with its number, its place there, and more variables."""
        self.joining = []
        try:
            self._cgroups.prepare(1 + max(self._free_groups(len(wanted))))
        except OSError as refused:
            return _not_filtered(run.first_rank, refused.errno or 0)
        return self._start_all(run, folder, wanted, self.joining)

    def _start_all(
        self,
        run: RunFile,
        folder: str,
        wanted: Sequence[tuple[int, int, dict[str, str]]],
        ranks: list[RankProcess],
    ) -> NotStarted | None:
        errors, problem = [], None
        groups = self._free_groups(len(wanted))
        for (number, place, more), group in zip(wanted, groups, strict=True):
            start = RankStart(number, place, group, more)
            try:
                rank, error = _started(run, start, folder, self._cgroups)
            except OSError as refused:
                why = f"The machine cannot start more processes: {_words(refused.errno or 0)}."
                problem = NotStarted(number, NOT_EXECUTABLE, why, is_final=False)
                break
            ranks.append(rank)
            errors.append((error, rank, place))
        for error, rank, place in errors:
            with open(error, "rb") as reading:  # ends when the program has been executed
                told, failed = json.loads(reading.readline() or "{}"), reading.read()
            self.changed_files += told.get("changed", ())
            rank.log.hide(told.get("secrets", ()))
            if failed and problem is None:
                problem = _not_started(run, place, *struct.unpack("ii", failed))
        return problem

    def _free_groups(self, count: int) -> list[int]:
        """The lowest numbers of control groups that no process of the run is in."""
        taken = {rank.group for rank in (*self.ranks, *self.joining, *self.leaving)}
        return free_numbers(taken, count, 0)

    def reap(self) -> list[RankProcess]:
        """Take note of every child that has ended, ours or inherited; the ranks among them."""
        by_pid = {rank.pid: rank for rank in (*self.ranks, *self.joining, *self.leaving)}
        ended = []
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            self.outsiders.discard(pid)
            rank = by_pid.get(pid)
            if rank is not None:
                rank.code, rank.signal = code_of(status), signal_of(status)
                ended.append(rank)
        return sorted(ended, key=lambda rank: rank.number)

    def members(self) -> list[int]:
        """Every process of the run: as subreaper we are the ancestor of them all."""
        own = os.getpid()
        found = dict.fromkeys((*self._list(own), *self._cgroups.members()))
        others = {own, *self.outsiders}
        return [pid for pid in found if pid not in others and is_alive(pid)]

    def lingering(self) -> list[int]:
        """Ranks that run, and what is left in the groups of others: a shell dies before its child."""
        return self.in_groups(rank.pid for rank in self.ranks)

    def in_groups(self, leaders: Iterable[int]) -> list[int]:
        wanted = frozenset(leaders)
        return [pid for pid in self.members() if _group_of(pid) in wanted] if wanted else []

    def terminate(self) -> None:
        """SIGTERM to the group of every rank."""
        for rank in self.ranks:
            if rank.code is None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(rank.pid, signal.SIGTERM)
        # One by one where the leader is gone: such a group's number may be used again.
        for pid in self.in_groups(rank.pid for rank in self.ranks if rank.code is not None):
            send(pid, signal.SIGTERM)

    def kill_ranks(self, ranks: Iterable[RankProcess]) -> None:
        """SIGKILL to these, and to what is left in their groups."""
        for pid in self.in_groups(rank.pid for rank in ranks):
            send(pid, signal.SIGKILL)

    def kill_all(self) -> list[int]:
        """SIGKILL to all, repeated while new ones appear; returns those that cannot be killed."""
        self._cgroups.kill()
        members: list[int] = []
        for _ in range(SWEEPS):
            members = self.members()
            if not members:
                break
            for pid in members:
                send(pid, signal.SIGKILL)
            time.sleep(0.0005)
        return members


def _started(
    run: RunFile, start: RankStart, folder: str, cgroups: RunCgroups
) -> tuple[RankProcess, int]:
    """Fork a rank; returns it and a pipe that reports whether its program was executed."""
    ours, theirs = os.pipe2(os.O_CLOEXEC)
    error, error_end = os.pipe2(os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):
            fcntl.fcntl(ours, F_SETPIPE_SZ, PIPE_BYTES)
        os.set_blocking(ours, False)
        if privileges.is_users(run.account):
            os.fchown(theirs, run.account.uid, run.account.gid)  # so that it may open /dev/stdout
        supervisor, before = os.getpid(), cgroups.oom_kills(start.group)
        pid = os.fork()
        if pid == 0:
            _become(run, start, supervisor, cgroups, theirs, error_end)
    except OSError:
        os.close(ours)
        os.close(error)
        raise
    finally:
        os.close(theirs)
        os.close(error_end)
    log = RankLog(logs.path_of(folder, start.number), run.log_bytes, run.log_files)
    started = RankProcess(start.number, pid, ours, log, group=start.group, oom_kills_before=before)
    return started, error


def _become(
    run: RunFile, start: RankStart, supervisor: int, cgroups: RunCgroups, output: int, error: int
) -> NoReturn:
    """In the child: close everything of the supervisor's, become its user, and execute the program.

    What is the user's, the working directory to begin with, is touched as that user alone.
    """
    stage = AT_SETUP
    try:
        os.setsid()
        for number_of in signal.valid_signals():
            with contextlib.suppress(OSError, ValueError):
                signal.signal(number_of, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        cgroups.enter(start.group)
        stage = AT_DEVICES
        cgroups.enter_filter(start.group)
        stage = AT_SETUP
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        spec = run.ranks[start.place]
        env = run.env | spec.env | start.env | {"PWD": run.workdir}
        is_first = start.group == 0 and run.generation == 0
        listed = program_files.read(run.program_files) if is_first else []
        if privileges.is_users(run.account) and run.cgroups.pids and not run.cgroups.pids_in:
            privileges.limit_processes(run.cgroups.pids)
        if run.account is not None:
            stage = AT_ACCOUNT
            privileges.become(run.account)
            stage = AT_SETUP
        # Not before: with another user the kernel forgets both.
        processes.die_with_parent()
        processes.may_be_read_by(supervisor)
        if os.getppid() != supervisor:  # it died before the kernel was told
            os._exit(1)
        os.umask(run.umask)
        stage = AT_WORKDIR
        os.chdir(run.workdir)
        stage = AT_SETUP
        changed = program_files.changed(listed)
        stage = AT_SECRETS
        secrets = read_secrets(run.secrets)
        stage = AT_SETUP
        told = {"changed": changed, "secrets": [*secrets.values()]}
        os.write(error, json.dumps(told).encode() + b"\n")
        stage = AT_COMMAND
        os.execvpe(spec.argv[0], spec.argv, env | secrets)
    except SecretProblem as problem:
        code = problem.code
    except OSError as problem:
        code = problem.errno or 0
    except BaseException:
        code = errno.EINVAL
    line = b"" if stage == AT_COMMAND else b"{}\n"
    os.write(error, line + struct.pack("ii", stage, code))
    os._exit(NOT_FOUND)


def _not_started(run: RunFile, index: int, stage: int, number: int) -> NotStarted:
    command, rank = run.ranks[index].argv[0], run.first_rank + index
    if stage == AT_ACCOUNT:
        assert run.account is not None
        reason = privileges.gone(run.account)
        if number == errno.EPERM:
            reason = "only a manager that root has started can do that"
        elif number != errno.ENOENT:
            reason = _words(number)
        why = f"It could not be started as its user {run.account.name}: {reason}."
        return NotStarted(rank, NOT_EXECUTABLE, why, is_final=False)
    if stage == AT_DEVICES:
        return _not_filtered(rank, number)
    if stage == AT_SECRETS:
        return NotStarted(rank, NOT_CONFIGURED, problem_sentence(run.secrets, number))
    if stage == AT_SETUP or number not in JOBS_OWN_FAULT:
        what = f"use {run.workdir}" if stage == AT_WORKDIR else f"start {command!r}"
        why = f"The machine could not {what}: {_words(number)}."
        return NotStarted(rank, NOT_EXECUTABLE, why, is_final=False)
    if stage == AT_WORKDIR:
        reason = "does not exist" if number == errno.ENOENT else f"cannot be used: {_words(number)}"
        why = (
            f"The working directory {run.workdir} {reason}; correct `workdir` and submit it again."
        )
        return NotStarted(rank, NOT_EXECUTABLE, why)
    if number == errno.ENOENT:
        why = f"The command {command!r} was not found; check its name and the PATH of the job."
        return NotStarted(rank, NOT_FOUND, why)
    if number == errno.EACCES:
        why = f"{command!r} is not executable; try `chmod +x` or name its interpreter."
    elif number == errno.ENOEXEC:
        why = f"{command!r} is not a program; a script needs a first line such as #!/bin/sh."
    else:
        why = f"{command!r} could not be executed: {_words(number)}."
    return NotStarted(rank, NOT_EXECUTABLE, why)


def _not_filtered(rank: int, number: int) -> NotStarted:
    why = f"{NOT_FILTERED}: {_words(number)}."
    return NotStarted(rank, NOT_EXECUTABLE, why, is_final=False)


def _words(number: int) -> str:
    return os.strerror(number).lower()


def joining(number: int, process: int) -> dict[str, str]:
    """What a rank is told that is started to join others, by the resize of that number."""
    return {wire.JOINS: str(number), wire.PROCESS: str(process)}


def free_numbers(taken: Collection[int], count: int, first: int) -> list[int]:
    """The lowest numbers from the first on that are not taken."""
    found: list[int] = []
    number = first
    while len(found) < count:
        if number not in taken:
            found.append(number)
        number += 1
    return found


def code_of(status: int) -> int:
    """A wait status as shells count: 128 + n for signal n."""
    if os.WIFSIGNALED(status):
        return 128 + os.WTERMSIG(status)
    return os.WEXITSTATUS(status)


def signal_of(status: int) -> str:
    """The name of the signal that a wait status tells; empty for an exit."""
    if not os.WIFSIGNALED(status):
        return ""
    number = os.WTERMSIG(status)
    return next((each.name for each in signal.Signals if each == number), f"SIG{number}")


def _group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None


def pump(rank: RankProcess, most: int = 1 << 18) -> int | None:
    """Move one piece of output into the log: its number of bytes, 0 at the end, None if there is none yet."""
    if rank.output is None:
        return 0
    try:
        piece = os.read(rank.output, most)
    except BlockingIOError:
        return None
    rank.log.write(piece)
    return len(piece)
