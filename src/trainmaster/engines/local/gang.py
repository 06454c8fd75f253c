"""The processes of one run: started together, each rank in a session of its own."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import signal
import struct
from dataclasses import dataclass
from typing import NoReturn

from trainmaster.engines.local import logs, processes
from trainmaster.engines.local.cgroups import RunCgroups
from trainmaster.engines.local.logs import RankLog
from trainmaster.engines.local.runfile import RunFile

PIPE_BYTES = 1 << 20
F_SETPIPE_SZ = 1031
NOT_FOUND, NOT_EXECUTABLE = 127, 126
"""What shells use for commands that cannot be started."""
AT_WORKDIR, AT_COMMAND = 0, 1


@dataclass(slots=True)
class Rank:
    """One process of the gang, which leads a group of its own."""

    number: int
    pid: int
    output: int | None
    """Our end of the pipe that it writes to; None once it is closed."""
    log: RankLog
    code: int | None = None
    """None while it runs; 128 + n for signal n."""


@dataclass(frozen=True, slots=True)
class NotStarted:
    """A rank whose program cannot be executed."""

    rank: int
    code: int
    why: str


def start(run: RunFile, folder: str, cgroups: RunCgroups) -> tuple[list[Rank], NotStarted | None]:
    """All ranks, and what is wrong with the first that could not become its program."""
    ranks, errors = [], []
    cgroups.prepare(len(run.ranks))
    for number in range(len(run.ranks)):
        ours, theirs = os.pipe2(os.O_CLOEXEC)
        with contextlib.suppress(OSError):
            fcntl.fcntl(ours, F_SETPIPE_SZ, PIPE_BYTES)
        error, error_end = os.pipe2(os.O_CLOEXEC)
        supervisor = os.getpid()
        pid = os.fork()
        if pid == 0:
            _become(run, number, supervisor, cgroups, theirs, error_end)
        os.close(theirs)
        os.close(error_end)
        os.set_blocking(ours, False)
        log = RankLog(logs.path_of(folder, number), run.log_bytes, run.log_files)
        ranks.append(Rank(number, pid, ours, log))
        errors.append(error)
    problem = None
    for number, error in enumerate(errors):
        said = os.read(error, 8)  # ends when the program has been executed
        os.close(error)
        if said and problem is None:
            problem = _not_started(run, number, *struct.unpack("ii", said))
    return ranks, problem


def _become(
    run: RunFile, number: int, supervisor: int, cgroups: RunCgroups, output: int, error: int
) -> NoReturn:
    """In the child: leave everything of the supervisor behind and execute the program."""
    stage = AT_WORKDIR
    try:
        os.setsid()
        processes.die_with_parent()
        if os.getppid() != supervisor:  # it died before the kernel was told
            os._exit(1)
        for number_of in signal.valid_signals():
            with contextlib.suppress(OSError, ValueError):
                signal.signal(number_of, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        cgroups.enter(number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        spec = run.ranks[number]
        env = run.env | spec.env | {"PWD": run.workdir}
        os.chdir(run.workdir)
        stage = AT_COMMAND
        os.execvpe(spec.argv[0], spec.argv, env)
    except OSError as problem:
        os.write(error, struct.pack("ii", stage, problem.errno or 0))
    except BaseException:
        os.write(error, struct.pack("ii", stage, errno.EINVAL))
    os._exit(NOT_FOUND)


def _not_started(run: RunFile, rank: int, stage: int, number: int) -> NotStarted:
    if stage == AT_WORKDIR:
        reason = "does not exist" if number == errno.ENOENT else f"cannot be used: {_words(number)}"
        why = (
            f"The working directory {run.workdir} {reason}; correct `workdir` and submit it again."
        )
        return NotStarted(rank, NOT_EXECUTABLE, why)
    command = run.ranks[rank].argv[0]
    if number == errno.ENOENT:
        why = f"The command {command!r} was not found; check its name and the PATH of the job."
        return NotStarted(rank, NOT_FOUND, why)
    if number == errno.EACCES:
        why = f"{command!r} is not executable; try `chmod +x` or name its interpreter."
    elif number == errno.ENOEXEC:
        why = f"{command!r} is no program; a script needs a first line such as #!/bin/sh."
    else:
        why = f"{command!r} could not be executed: {_words(number)}."
    return NotStarted(rank, NOT_EXECUTABLE, why)


def _words(number: int) -> str:
    return os.strerror(number).lower()


def code_of(status: int) -> int:
    """A wait status as shells count: 128 + n for signal n."""
    if os.WIFSIGNALED(status):
        return 128 + os.WTERMSIG(status)
    return os.WEXITSTATUS(status)


def signal_group(rank: Rank, number: int) -> None:
    """To everything in the rank's process group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(rank.pid, number)


def is_in_groups(pid: int, leaders: frozenset[int]) -> bool:
    """Whether a process has stayed in the group that its rank leads."""
    try:
        return os.getpgid(pid) in leaders
    except ProcessLookupError:
        return False


def pump(rank: Rank, most: int = 1 << 18) -> int | None:
    """Move one piece of output into the log: so many bytes, 0 at its end, None for nothing yet."""
    if rank.output is None:
        return 0
    try:
        piece = os.read(rank.output, most)
    except BlockingIOError:
        return None
    rank.log.write(piece)
    return len(piece)
