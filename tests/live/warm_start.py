"""Starts `trainmaster up` by forking a process that has imported everything already.

Importing takes 1.5 s of processor time, and these tests start a manager more than a hundred times. What is
forked runs the same code from the command line on; it can be killed like any other process.

    python -m tests.live.warm_start       reads requests, one line of JSON each, and answers each by a line
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

IMPORTED = (
    *("trainmaster.cli.main", "trainmaster.cli.up", "trainmaster.cli.support.demo"),
    *("trainmaster.api.server", "trainmaster.whatif.forecast", "trainmaster.store.open"),
    *("trainmaster.engines.local.engine", "trainmaster.gpu.devices", "alembic.command"),
    *("trainmaster.policies.trainmaster.policy", "trainmaster.policies.las"),
)


class WarmProcess:
    """A process that the warm one has forked, with the methods of `subprocess.Popen` that tests use."""

    def __init__(
        self, arguments: Sequence[str], output: Path, environment: Mapping[str, str]
    ) -> None:
        asked = {"start": list(arguments), "out": str(output), "env": dict(environment)}
        self.pid = int(_ask(asked))
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = _ask({"poll": self.pid})
        return self.returncode

    def wait(self, timeout: float = 60.0) -> int:
        until = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > until:
                raise subprocess.TimeoutExpired("trainmaster up", timeout)
            time.sleep(0.01)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


@cache
def _server() -> subprocess.Popen[str]:
    """One for each process that runs tests; it ends with its standard input."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.live.warm_start"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
        start_new_session=True,
    )


def _ask(said: dict[str, Any]) -> Any:
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(json.dumps(said) + "\n")
    server.stdin.flush()
    return json.loads(server.stdout.readline())


# -- in the warm process -------------------------------------------------------------------------------


def serve() -> None:
    for name in IMPORTED:
        import_module(name)
    for line in iter(sys.stdin.readline, ""):
        said = json.loads(line)
        sys.stdout.write(
            json.dumps(_start(said) if "start" in said else _code(said["poll"])) + "\n"
        )
        sys.stdout.flush()


def _start(said: dict[str, Any]) -> int:
    child = os.fork()
    if child == 0:
        _run(said["start"], said["out"], said["env"])
    return child


def _code(pid: int) -> int | None:
    """How it ended, as Popen says it; None while it runs."""
    found, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if found else None


def _run(arguments: list[str], output: str, environment: dict[str, str]) -> NoReturn:
    code = 1
    try:
        os.setsid()
        out = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(out, 2)
        os.environ.clear()
        os.environ.update(environment)
        sys.argv = ["trainmaster", *arguments]
        import_module("trainmaster.cli.main").run()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    serve()
