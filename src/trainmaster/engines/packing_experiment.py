"""Copies of one training program on one device at the same time: what each step takes.

Copies are processes of our own, not jobs: they start together, are measured over the same seconds once all of
them train, and are ended. The hook of the path entry writes down their steps.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import statistics
import subprocess
import tempfile
import time
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from trainmaster.engines.local.path_entry import with_path_entry
from trainmaster.gpu.mps import MpsDaemons, control_program
from trainmaster_sdk import wire

TIME, MPS = "time", "mps"
WARM_STEPS = 5
"""Steps of each copy before the measurement: the first ones allocate and compile."""
FEWEST_STEPS = 2
POLL_S = 0.1
END_S = 5.0
LAST_LINES = 5
OF_OTHERS = frozenset({wire.SOCKET, wire.COUNT_STEPS})
"""What a copy must not have from the job that it may be part of."""


class ExperimentError(Exception):
    """A copy that cannot be measured: one sentence."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """Copies side by side: times of a step over all of them, in ms."""

    sharing: str
    copies: int
    steps: int
    steps_per_s: float
    """Of all copies together."""
    mean_ms: float
    max_ms: float
    variance_ms2: float


@dataclass(frozen=True, slots=True)
class Experiment:
    """The program, its device and how long each measurement takes."""

    command: Sequence[str]
    device: str
    """UUID of the GPU; empty: CPU."""
    seconds: float
    start_s: float
    """How long copies may take until all of them train."""

    def measure(self, sharing: str, copies: int, say: Callable[[str], None]) -> Measurement:
        """One measurement; ExperimentError where a copy fails, ends early or makes no steps."""
        with tempfile.TemporaryDirectory(prefix="trainmaster-packing-") as name:
            folder = Path(name)
            with (
                self._shared(sharing, folder) as env,
                self.running(copies, folder, env) as running,
            ):
                began = self.wait_warm(running, say)
                self.wait_measured(running, began + self.seconds, say)
                times = [copy.times() for copy in running]
        return measurement(sharing, times, began, self.seconds)

    @contextlib.contextmanager
    def _shared(self, sharing: str, folder: Path) -> Iterator[Mapping[str, str]]:
        """What copies find in their environment; under MPS its daemon runs meanwhile."""
        env = {"CUDA_VISIBLE_DEVICES": self.device} if self.device else {}
        program = control_program()
        if sharing != MPS or program is None:
            yield env
            return
        daemons = MpsDaemons(folder / "mps", folder, program)
        try:
            yield env | daemons.ensure(self.device).env
        finally:
            daemons.tend(())

    @contextlib.contextmanager
    def running(
        self, copies: int, folder: Path, env: Mapping[str, str]
    ) -> Iterator[list[RunningCopy]]:
        """The copies, which have ended when this does."""
        running: list[RunningCopy] = []
        try:
            for number in range(copies):
                running.append(RunningCopy(self.command, number, folder, env))
            yield running
        finally:
            end_all(running)

    def wait_warm(self, running: Sequence[RunningCopy], say: Callable[[str], None]) -> float:
        """When all copies train, by the monotonic clock."""
        until = time.monotonic() + self.start_s
        while True:
            for copy in running:
                copy.check()
            warm = sum(copy.count() >= WARM_STEPS for copy in running)
            if warm == len(running):
                return time.monotonic()
            if time.monotonic() > until:
                none = not any(copy.count() for copy in running)
                raise ExperimentError(
                    f"{len(running) - warm} of {len(running)} copies have not made {WARM_STEPS} steps"
                    f" within {self.start_s:g} s"
                    + (": only optimizer steps of PyTorch programs are counted" if none else "")
                )
            say(f"{warm} of {len(running)} train")
            time.sleep(POLL_S)

    def wait_measured(
        self, running: Sequence[RunningCopy], until: float, say: Callable[[str], None]
    ) -> None:
        while (left := until - time.monotonic()) > 0:
            for copy in running:
                copy.check()
            say(f"{left:.0f} s left")
            time.sleep(min(POLL_S, left))


class RunningCopy:
    """One copy: a process, its output and its steps."""

    def __init__(
        self, command: Sequence[str], number: int, folder: Path, env: Mapping[str, str]
    ) -> None:
        self._steps, self._log = folder / f"{number}.steps", folder / f"{number}.log"
        self._profile = folder / f"{number}.profile"
        own = {name: each for name, each in os.environ.items() if name not in OF_OTHERS}
        files = {wire.STEP_TIMES: str(self._steps), wire.STEP_PROFILE: str(self._profile)}
        own = with_path_entry({**own, **env, **files})
        with self._log.open("wb") as log:
            try:
                self.process = subprocess.Popen(
                    [*command],
                    env=own,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    process_group=0,
                )
            except OSError as problem:
                said = (problem.strerror or str(problem)).lower()
                raise ExperimentError(f"{command[0]} cannot be started: {said}") from None

    def check(self) -> None:
        """ExperimentError if it has ended."""
        code = self.process.poll()
        if code is None:
            return
        if code == 0:
            raise ExperimentError(
                "the program ended before it was measured: let it train for longer, or measure less"
            )
        lines = self._log.read_text(errors="replace").split("\n")
        said = " / ".join([line.strip() for line in lines if line.strip()][-LAST_LINES:])
        raise ExperimentError(f"a copy failed with exit code {code}: {said or 'it said nothing'}")

    def count(self) -> int:
        """Steps so far."""
        try:
            return self._steps.stat().st_size // array("d").itemsize
        except FileNotFoundError:
            return 0

    def times(self) -> list[float]:
        found = array("d")
        read = self._steps.read_bytes()
        found.frombytes(read[: len(read) - len(read) % found.itemsize])
        return found.tolist()

    def profile(self) -> dict[str, int]:
        """What its first steps showed (step_profile.py); nothing, where they did not."""
        try:
            said: dict[str, int] = json.loads(self._profile.read_text())
        except FileNotFoundError:
            return {}
        return said

    def signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)


def end_all(running: Sequence[RunningCopy]) -> None:
    """Ask all to end, then end what is left of them."""
    for copy in running:
        copy.signal(signal.SIGTERM)
    until = time.monotonic() + END_S
    for copy in running:
        with contextlib.suppress(subprocess.TimeoutExpired):
            copy.process.wait(max(0.0, until - time.monotonic()))
    for copy in running:
        copy.signal(signal.SIGKILL)
        copy.process.wait()


def measurement(
    sharing: str, times: Sequence[Sequence[float]], began: float, seconds: float
) -> Measurement:
    """Out of the times at which the steps of each copy ended: those that ended within these seconds."""
    spans: list[float] = []
    rate = 0.0
    for each in times:
        inside = [at for at in each if began <= at <= began + seconds]
        if len(inside) < FEWEST_STEPS:
            raise ExperimentError(
                f"a copy made fewer than {FEWEST_STEPS} steps in {seconds:g} s: measure for longer"
            )
        own = [1000 * (later - at) for at, later in pairwise(inside)]
        spans += own
        rate += 1000 * len(own) / sum(own)
    return Measurement(
        sharing=sharing,
        copies=len(times),
        steps=len(spans),
        steps_per_s=rate,
        mean_ms=statistics.fmean(spans),
        max_ms=max(spans),
        variance_ms2=statistics.pvariance(spans),
    )
