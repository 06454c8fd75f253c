"""An engine of simulated nodes for measuring the manager: it answers every order, and starts no process.

Jobs end, and report progress, as often in all as a file says that the benchmark writes: arrivals and ends can
so be kept in balance at any rate. A young run is likelier to end than an old one, as on real clusters.
"""

from __future__ import annotations

import asyncio
import json
import random
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from trainmaster.engines.protocol import (
    Abilities,
    Known,
    RecordedRun,
    StrayRun,
    Tell,
    TellNode,
    any_job,
    ignore,
)
from trainmaster.model.actions import Freeze, Halt, Kill, Launch, Order, Rebind, Reshape, Thaw
from trainmaster.model.engine_reports import (
    Ended,
    Frozen,
    Progressed,
    Report,
    Reshaped,
    Started,
    StopOrder,
    Thawed,
)
from trainmaster.model.job import Run
from trainmaster.model.launch_spec import LaunchSpec
from trainmaster.model.topology import Topology

RATES = "rates.json"
START_S, SWITCH_S = 1.0, 0.3
"""From an order to a gang that is up, and to devices that are free."""
TICK_S = 0.05
YOUNG, YOUNG_SHARE = 0.2, 0.5
"""Half of all ends are among the fifth of the running jobs that started last."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Of the whole cluster, in a second."""

    ends: float = 0.0
    progress: float = 0.0

    @classmethod
    def read(cls, place: Path) -> Rates:
        return cls(**json.loads(place.read_text())) if place.exists() else cls()

    def write(self, folder: Path) -> None:
        new = folder / f"{RATES}.new"
        new.write_text(json.dumps({"ends": self.ends, "progress": self.progress}))
        new.rename(folder / RATES)


class SimulatedNodes:
    """Keeps `trainmaster.engines.protocol.Engine`; all that it knows is in memory."""

    name = "simulated"
    abilities = Abilities(can_freeze=True, limits_memory=True, limits_cpus=True)

    def __init__(self, folder: Path, topology: Topology, seed: int = 0) -> None:
        self.topology = topology
        self._rates = folder / RATES
        self._random = random.Random(seed)
        self._tell: Tell = lambda _report, _number: None
        self._numbers: dict[Run, int] = {}
        self._running: list[Run] = []
        """In the order of their starts, but for those that took the place of one that ended."""
        self._places: dict[Run, int] = {}
        self._stops: dict[Run, StopOrder] = {}
        self._steps: dict[Run, int] = {}
        self._ticking: asyncio.Task[None] | None = None

    def troubles(self) -> Sequence[str]:
        return ()

    def number_nodes(self, topology: Topology) -> None:
        pass

    async def open(self, tell: Tell, tell_node: TellNode = ignore) -> None:
        self._tell = tell
        self._ticking = asyncio.create_task(self._tick())

    # -- orders ----------------------------------------------------------------------------------------

    async def execute(self, order: Order, spec: LaunchSpec) -> None:
        run = order.run
        match order:
            case Launch():
                if run not in self._numbers:
                    self._numbers[run] = 0
                    self._later(START_S, Started(run, 0, pids=(1,)))
            case Freeze():
                self._later(SWITCH_S, Frozen(run, 0, took_ms=int(SWITCH_S * 1000)))
            case Thaw() | Rebind():
                self._later(SWITCH_S, Thawed(run, 0, took_ms=int(SWITCH_S * 1000)))
            case Reshape():
                self._later(START_S, Reshaped(run, 0, pids=(1,)))
            case Halt():
                self._stop(run, StopOrder.HALT)
            case Kill():
                self._stop(run, StopOrder.KILL)

    def _stop(self, run: Run, asked: StopOrder) -> None:
        if run not in self._stops:
            self._stops[run] = asked
            self._later(SWITCH_S, Ended(run, 0, code=143, asked=asked, has_left=True, ran_ms=0))

    def _later(self, seconds: float, report: Report) -> None:
        asyncio.get_running_loop().call_later(seconds, self._report, report)

    def _report(self, report: Report) -> None:
        run = report.run
        if run not in self._numbers:
            return  # over before the order was carried out
        self._follow(report)
        self._numbers[run] = number = self._numbers[run] + 1
        at_ms = time.time_ns() // 1_000_000
        self._tell(_at(report, at_ms), number)
        if isinstance(report, Ended):
            del self._numbers[run]
            self._steps.pop(run, None)

    def _follow(self, report: Report) -> None:
        run = report.run
        if isinstance(report, Started | Thawed) and run not in self._places:
            self._places[run] = len(self._running)
            self._running.append(run)
        elif isinstance(report, Frozen | Ended):
            self._drop(run)

    def _drop(self, run: Run) -> None:
        place = self._places.pop(run, None)
        if place is not None:
            last = self._running.pop()
            if last != run:
                self._running[place] = last
                self._places[last] = place

    # -- time ------------------------------------------------------------------------------------------

    async def _tick(self) -> None:
        """Ends and progress as the rates say; what is owed is carried over, so that rates are kept."""
        ends = progress = 0.0
        last = time.monotonic()
        while True:
            await asyncio.sleep(TICK_S)
            now = time.monotonic()
            rates = Rates.read(self._rates)
            ends += rates.ends * (now - last)
            progress += rates.progress * (now - last)
            last = now
            while ends >= 1 and self._running:
                ends -= 1
                self._report(Ended(self._ending(), 0, code=0, ran_ms=0))
            while progress >= 1 and self._running:
                progress -= 1
                self._progress(self._random.choice(self._running))
            if not self._running:
                ends = progress = 0.0

    def _ending(self) -> Run:
        count = len(self._running)
        is_young = self._random.random() < YOUNG_SHARE
        first = int(count * (1 - YOUNG)) if is_young else 0
        return self._running[self._random.randrange(first, count)]

    def _progress(self, run: Run) -> None:
        self._steps[run] = step = self._steps.get(run, 0) + 10
        self._report(Progressed(run, 0, step=step, loss=1.0, samples_per_s=100.0, steps_per_s=3.0))

    # -- what a restarted manager asks -------------------------------------------------------------------

    async def observe(self, runs: Mapping[Run, int], known: Known = any_job) -> Sequence[StrayRun]:
        for run, number in runs.items():
            self._numbers[run] = number
            self._places[run] = len(self._running)
            self._running.append(run)
        return ()

    async def save(self, run: Run) -> None:
        pass

    def tell_gpu_use(self, run: Run, util_ppm: int) -> None:
        pass

    def catches_save(self, run: Run, pids: Sequence[int]) -> bool:
        return False

    def environment(self, run: Run) -> tuple[Path, Mapping[str, str]]:
        raise FileNotFoundError(str(run))

    def run_of(self, pid: int) -> Run | None:
        return None

    def connect(self, job: str, port: int) -> socket.socket | None:
        return None

    def recorded(self, run: Run) -> RecordedRun | None:
        return None

    async def write_row(self, run: Run, spec: LaunchSpec) -> None:
        pass

    def unwatched(self) -> Sequence[Run]:
        return ()

    def cancel_unwatched(self, run: Run) -> bool:
        return False

    async def forget(self, run: Run) -> None:
        pass

    async def close(self) -> None:
        if self._ticking is not None:
            self._ticking.cancel()


def _at(report: Report, at_ms: int) -> Report:
    return replace(report, at_ms=at_ms)
