"""Forks supervisors: a small process that has everything imported, so that a start costs milliseconds.

It reads folders from its standard input, one in a line, and answers each on its standard output: the folder,
and whether a supervisor is there. It ends when the manager does; supervisors have no parent here and go on.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import sys
from typing import NoReturn

from trainmaster.engines.local import descriptors, processes
from trainmaster.engines.local.supervisor import supervise

STDIN, STDOUT = 0, 1


def serve(open_files: int) -> None:
    """Fork one supervisor for each line, until there are no more; `open_files`: their limit."""
    descriptors.restore_limit(open_files)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    processes.set_process_name("tm fork server")
    gc.collect()
    gc.freeze()  # so that a child does not copy the pages that it only counts
    rest = b""
    while piece := os.read(STDIN, 1 << 16):
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            _spawn(json.loads(line))


def _spawn(folder: str) -> None:
    """Fork twice, so that the supervisor's guard has no parent here and leaves no zombie."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    _guard(folder)


def _guard(folder: str) -> NoReturn:
    """Be the supervisor's parent, and kill what is left of its run when it dies.

    Processes that have left their run's session and environment are found by descent alone: as long as the
    supervisor lives they are its own, and afterwards they come here.
    """
    processes.become_subreaper()
    supervisor = os.fork()
    if not supervisor:
        _supervise(folder)
    try:
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)
        processes.set_process_name("tm guard")
        _let_go_of_streams(os.open(os.devnull, os.O_RDWR))
        while os.wait()[0] != supervisor:
            pass
        processes.kill_descendants()
    finally:
        os._exit(0)


def _let_go_of_streams(errors: int) -> None:
    """Neither read nor write what belongs to the fork server; errors go there."""
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    os.dup2(errors, 2)
    os.close(errors)
    os.close(nothing)
    os.chdir("/")


def _supervise(folder: str) -> NoReturn:
    code = 1
    manager: int | None = os.dup(STDOUT)  # programs get 0, 1 and 2 of their own

    def answer(came: bool) -> None:
        nonlocal manager
        if manager is not None:
            with contextlib.suppress(OSError):
                os.write(manager, json.dumps([folder, came]).encode() + b"\n")
            os.close(manager)
            manager = None

    try:
        log = os.open(
            os.path.join(folder, "supervisor.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600
        )
        _let_go_of_streams(log)

        def has_a_manager() -> bool:
            if manager is None:
                return False
            watch = select.poll()
            watch.register(manager, 0)
            return not watch.poll(0)  # an error there: no manager reads it any more

        supervise(folder, has_a_manager, lambda: answer(True))
        code = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        answer(False)
        os._exit(code)


if __name__ == "__main__":
    serve(int(sys.argv[1]))
