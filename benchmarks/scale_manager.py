"""A real manager with its API on an engine of simulated nodes, which measures itself between two signals.

    python -m benchmarks.scale_manager FOLDER CLUSTER [--profile]

SIGUSR1 begins a window; SIGUSR2 ends it and writes `window.json` in the folder, and with --profile
`window.prof`, of the event loop's thread.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import json
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.scale_engine import SimulatedNodes
from trainmaster.api.local_socket import LocalSocket, own_path
from trainmaster.api.page_process import PageProcess
from trainmaster.api.server import listening, serve
from trainmaster.config.limits import Limits
from trainmaster.core.controller import Decision
from trainmaster.daemon.daemon import Daemon
from trainmaster.daemon.driver import Driver
from trainmaster.daemon.recovery import snapshot_of_driver
from trainmaster.engines.local.descriptors import raise_limit
from trainmaster.model.events import Event
from trainmaster.model.topology import parse_shorthand
from trainmaster.store.open import open_store
from trainmaster.store.rows import Batch

ROOMY = Limits(
    connections=10_000,
    requests=5_000,
    followers=5_000,
    user_connections=10_000,
    user_requests=5_000,
    user_followers=5_000,
    user_rate=1_000_000,
    user_burst=1_000_000,
    live_jobs=200_000,
    jobs_per_request=20_000,
)
LAG_S = 0.01
QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}


def spread(times_s: Sequence[float]) -> dict[str, float]:
    """Quantiles in milliseconds; value[min(n-1, int(p*n))], as in our reports."""
    if not times_s:
        return {"count": 0}
    ordered = sorted(times_s)
    found = {
        name: round(ordered[min(len(ordered) - 1, int(part * len(ordered)))] * 1000, 3)
        for name, part in QUANTILES.items()
    }
    return {"count": len(ordered), "mean": round(sum(ordered) / len(ordered) * 1000, 3), **found}


class Window:
    """Times of what happened since it was opened."""

    def __init__(self) -> None:
        self.times: dict[str, list[float]] = {}
        self.counts: dict[str, int] = {}
        self.began_s, self.loop_s, self.process_s = time.monotonic(), 0.0, 0.0

    def open(self) -> None:
        self.times, self.counts = {}, {}
        self.began_s = time.monotonic()
        self.loop_s, self.process_s = time.thread_time(), time.process_time()

    def note(self, what: str, seconds: float) -> None:
        self.times.setdefault(what, []).append(seconds)

    def count(self, what: str, number: int) -> None:
        self.counts[what] = self.counts.get(what, 0) + number

    def found(self) -> dict[str, Any]:
        """Called in the event loop's thread, whose processor time is a number of its own."""
        took = time.monotonic() - self.began_s
        return {
            "seconds": round(took, 2),
            "loop_busy": round((time.thread_time() - self.loop_s) / took, 3),
            "processor": round((time.process_time() - self.process_s) / took, 3),
            "times_ms": {name: spread(times) for name, times in self.times.items()},
            "counts": self.counts,
        }


def watch(daemon: Daemon, window: Window) -> None:
    """Time each pass, each step, and each write to the store; passes by the processor time of the thread."""
    driver = daemon.driver
    decide, step, append = driver.controller.step, driver.step, driver.store.append

    def timed_pass(now: int, events: Sequence[Event]) -> Decision:
        began, began_cpu = time.perf_counter(), time.thread_time()
        decision = decide(now, events)
        window.note("pass", time.thread_time() - began_cpu)
        window.note("pass by the clock", time.perf_counter() - began)
        return decision

    async def timed_step() -> None:
        began = time.perf_counter()
        await step()
        window.note("step", time.perf_counter() - began)

    def timed_append(batches: Sequence[Batch]) -> None:
        began = time.perf_counter()
        append(batches)
        window.note("write", time.perf_counter() - began)
        for batch in batches:
            window.count("steps", 1)
            window.count("jobs", len(batch.jobs))
            window.count("stories", len(batch.stories))
            window.count("progress", len(batch.progress))
            window.count("orders", batch.step.orders_json.count('"run"'))

    driver.controller.step = timed_pass  # type: ignore[method-assign]
    driver.step = timed_step  # type: ignore[method-assign]
    driver.store.append = timed_append  # type: ignore[method-assign]


async def lag(window: Window) -> None:
    """How late the event loop wakes a task."""
    while True:
        began = time.perf_counter()
        await asyncio.sleep(LAG_S)
        window.note("lag", max(0.0, time.perf_counter() - began - LAG_S))


def snapshot_cost(driver: Driver) -> dict[str, float]:
    """Of one snapshot, during which no step is made."""
    began = time.perf_counter()
    row = snapshot_of_driver(driver)
    took_ms = (time.perf_counter() - began) * 1000
    return {"ms": round(took_ms, 1), "mib": round(len(row.body_json) / 2**20, 2)}


def on_signals(
    window: Window, daemon: Daemon, folder: Path, profiler: cProfile.Profile | None
) -> None:
    loop = asyncio.get_running_loop()

    def begin() -> None:
        window.open()
        if profiler is not None:
            profiler.enable()

    def end() -> None:
        if profiler is not None:
            profiler.disable()
            profiler.dump_stats(folder / "window.prof")
        new = folder / "window.new"
        new.write_text(json.dumps({**window.found(), "snapshot": snapshot_cost(daemon.driver)}))
        new.rename(folder / "window.json")

    handlers: dict[int, Callable[[], None]] = {signal.SIGUSR1: begin, signal.SIGUSR2: end}
    for number, call in handlers.items():
        loop.add_signal_handler(number, call)


async def run(folder: Path, cluster: str, profiler: cProfile.Profile | None) -> None:
    store = open_store(f"sqlite:///{folder}/trainmaster.db")
    daemon = Daemon(store, SimulatedNodes(folder, parse_shorthand(cluster)), folder, limits=ROOMY)
    window = Window()
    on_signals(window, daemon, folder, profiler)
    lagging = asyncio.create_task(lag(window))

    async def when_active(active: Daemon) -> None:
        watch(active, window)

    sock, local = listening("127.0.0.1", 0), LocalSocket(own_path(folder))
    pages, address = PageProcess(folder), folder / "address"
    try:
        await serve(daemon, sock, local, address, beside=when_active, pages=pages)
    finally:
        lagging.cancel()
        store.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("cluster")
    parser.add_argument("--profile", action="store_true")
    said = parser.parse_args()
    raise_limit()
    asyncio.run(run(said.folder, said.cluster, cProfile.Profile() if said.profile else None))


if __name__ == "__main__":
    main()
