"""Starts examples as real processes, quickly: they are forked off a process that has imported torch.

An import of torch costs seconds, and a test of stopping and going on needs three processes. Nothing but
imports has happened in the process that they are forked off.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import re
import runpy
import signal
import socket
import sys
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path

from tests.unit.sdk.fake_supervisor import PATIENCE_S, environment, wait_until

EXAMPLES = Path(__file__).parents[3] / "examples"
STEP = re.compile(r"^step (\d+) loss (\S+)$", re.MULTILINE)


def program(folder: Path, code: str) -> str:
    """A program of a test, which has the SDK imported."""
    file = folder / "program.py"
    file.write_text("import trainmaster_sdk\n" + code)
    return str(file)


class Started:
    """One rank of an example."""

    def __init__(self, process: BaseProcess, output: Path) -> None:
        self.process = process
        self._output = output

    @property
    def said(self) -> str:
        return self._output.read_text(errors="replace") if self._output.exists() else ""

    @property
    def curve(self) -> dict[int, str]:
        """Losses by step, as printed: all digits."""
        return {int(step): loss for step, loss in STEP.findall(self.said)}

    def wait_for_step(self, step: int) -> None:
        self.wait_for(rf"^step {step} loss")

    def wait_for(self, pattern: str) -> None:
        def is_so() -> bool:
            return bool(re.search(pattern, self.said, re.MULTILINE)) or not self.process.is_alive()

        wait_until(is_so, f"{pattern} was printed: {self.said}")
        assert self.process.is_alive(), f"it ended before {pattern}:\n{self.said}"

    def send(self, number: signal.Signals) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    def send_group(self, number: signal.Signals) -> None:
        """To it and all that it has started, as Trainmaster does."""
        assert self.process.pid is not None
        os.killpg(self.process.pid, number)

    def end(self) -> int:
        """Its exit code."""
        self.process.join(PATIENCE_S)
        assert self.process.exitcode is not None, f"it does not end:\n{self.said}"
        return self.process.exitcode


class Bench:
    """Starts examples, and leaves none behind."""

    def __init__(self, folder: Path, warm: tuple[str, ...]) -> None:
        self._folder = folder
        self._processes: list[BaseProcess] = []
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([*warm])

    def start(self, example: str, *flags: str, **env: str) -> Started:
        output = self._folder / f"out-{len(self._processes)}"
        process = self._context.Process(
            target=_become,
            args=(str(EXAMPLES / example), flags, environment(**env), str(output)),
        )
        process.start()
        self._processes.append(process)
        return Started(process, output)

    def start_gang(self, size: int, example: str, *flags: str, **env: str) -> list[Started]:
        """With the environment that Trainmaster gives to a gang on one machine."""
        port = str(free_port())
        return [
            self.start(
                example,
                *flags,
                RANK=str(rank),
                LOCAL_RANK=str(rank),
                WORLD_SIZE=str(size),
                LOCAL_WORLD_SIZE=str(size),
                MASTER_ADDR="127.0.0.1",
                MASTER_PORT=port,
                **env,
            )
            for rank in range(size)
        ]

    def close(self) -> None:
        for process in self._processes:
            if process.pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            process.join(PATIENCE_S)


@contextlib.contextmanager
def bench(folder: Path, warm: tuple[str, ...] = ()) -> Iterator[Bench]:
    opened = Bench(folder, warm)
    try:
        yield opened
    finally:
        opened.close()


def free_port() -> int:
    with socket.socket() as line:
        line.bind(("127.0.0.1", 0))
        return int(line.getsockname()[1])


def _become(script: str, flags: tuple[str, ...], env: dict[str, str], output: str) -> None:
    """In the new process: as if it had been started as `python script flags`."""
    os.setsid()
    os.environ.clear()
    os.environ.update(env)
    number = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(number, 1)
    os.dup2(number, 2)
    os.chdir(os.path.dirname(output))
    sys.argv = [script, *flags]
    sys.path.insert(0, str(Path(script).parent))  # as Python itself does
    runpy.run_path(script, run_name="__main__")
