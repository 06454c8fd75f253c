"""What is asked of the measured manager: a queue, arrivals, requests of users, followers of changes."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import count
from typing import Any
from urllib.parse import urlsplit

from benchmarks.live_daemon import MeasuringClient
from benchmarks.scale_engine import Rates
from benchmarks.scale_manager import spread
from tests.live.daemons import LiveDaemon, until

SIZES: Mapping[int, float] = {
    1: 0.50,
    2: 0.12,
    4: 0.13,
    8: 0.17,
    16: 0.05,
    32: 0.02,
    64: 0.01,
}
"""Shares of jobs by their GPUs, near those of Philly and Helios: half of all jobs ask for one."""
MEAN_GPUS = sum(gpus * share for gpus, share in SIZES.items())
PROGRAMS = 200
"""Different names of programs: what is learned of one is told to the others."""
REQUESTS: Mapping[str, str] = {
    "healthz": "/healthz",
    "status": "/api/v1/status",
    "node list": "/api/v1/nodes",
    "ps, 100 jobs": "/api/v1/jobs?limit=100",
    "queues": "/api/v1/queues",
    "metrics": "/metrics",
    "a job": "/api/v1/jobs/1",
}
RARELY: Mapping[str, int] = {"metrics": 10, "node list": 2, "status": 2}
"""Asked every n-th time: Prometheus comes every 15 s or so."""
PAUSE_S = 0.1
"""Between two requests of the prober."""
BATCH = 2_000
CLIENTS = 4


class ScaleManager(LiveDaemon):
    """A manager of simulated nodes, in a process of its own."""

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "out.txt").open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.scale_manager", self.folder, *self.arguments],
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def ask(self, number: signal.Signals) -> None:
        assert self.process is not None
        os.kill(self.process.pid, number)

    @contextmanager
    def window(self) -> Iterator[dict[str, Any]]:
        """What the manager measures of itself meanwhile; filled in at the end."""
        found: dict[str, Any] = {}
        place, before = self.folder / "window.json", self.stored()
        place.unlink(missing_ok=True)
        self.ask(signal.SIGUSR1)
        yield found
        self.ask(signal.SIGUSR2)
        until(place.exists, "the manager's figures")
        after = self.stored()
        found |= json.loads(place.read_text())
        found["stored_bytes"] = {name: after[name] - before.get(name, 0) for name in after}
        found |= MeasuringClient(self).memory()

    def stored(self) -> dict[str, int]:
        """Bytes of the database's pages, by table with its indexes."""
        with sqlite3.connect(f"file:{self.folder}/trainmaster.db?mode=ro", uri=True) as base:
            tables = dict(base.execute("SELECT name, tbl_name FROM sqlite_schema"))
            found: dict[str, int] = {}
            for name, size in base.execute("SELECT name, SUM(pgsize) FROM dbstat GROUP BY name"):
                table = tables.get(name, name)
                found[table] = found.get(table, 0) + size
        base.close()
        return found


def some_job(choose: random.Random, most_gpus: int) -> dict[str, object]:
    sizes = [gpus for gpus in SIZES if gpus <= most_gpus]
    (gpus,) = choose.choices(sizes, [SIZES[gpus] for gpus in sizes])
    program = choose.randrange(PROGRAMS)
    return {
        "command": f"exec python train-{program}.py",
        "name": f"train-{program}",
        "gpus": gpus,
        "snapshot": False,
        "preflight": False,
        "priority": 0,
    }


def submit(client: MeasuringClient, choose: random.Random, number: int, most_gpus: int) -> float:
    """So many jobs in few requests; seconds until all are durable."""
    began = time.perf_counter()
    for begin in range(0, number, BATCH):
        jobs = [some_job(choose, most_gpus) for _ in range(min(BATCH, number - begin))]
        client.call("POST", "/api/v1/jobs", {"jobs": jobs})
    return time.perf_counter() - began


@contextmanager
def beside(work: Callable[[threading.Event], None]) -> Iterator[None]:
    """Do this in a thread meanwhile."""
    is_over = threading.Event()
    thread = threading.Thread(target=work, args=(is_over,))
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


@contextmanager
def arrivals(
    manager: ScaleManager, rate: float, most_gpus: int, seed: int
) -> Iterator[dict[str, Any]]:
    """Single submissions at random moments, so many in a second, and as many ends."""
    felt: dict[str, Any] = {}
    waits: list[float] = []
    late: list[float] = []
    seeds = count(seed)

    def come(is_over: threading.Event) -> None:
        client, choose = MeasuringClient(manager), random.Random(next(seeds))
        due = time.monotonic()
        while True:
            due += choose.expovariate(rate / CLIENTS)
            if is_over.wait(max(0.0, due - time.monotonic())):
                break
            began = time.perf_counter()
            late.append(max(0.0, time.monotonic() - due))
            client.call("POST", "/api/v1/jobs", some_job(choose, most_gpus))
            waits.append(time.perf_counter() - began)
        client.hang_up()

    with ExitStack() as clients:
        for _ in range(CLIENTS):
            clients.enter_context(beside(come))
        yield felt
    felt |= {"submitted": len(waits), "answer_ms": spread(waits), "late_ms": spread(late)}


@contextmanager
def probes(manager: ScaleManager) -> Iterator[dict[str, Any]]:
    """One user who asks for one thing after another; how long each takes."""
    felt: dict[str, Any] = {}
    times: dict[str, list[float]] = {name: [] for name in REQUESTS}
    sizes: dict[str, int] = {}

    def ask(is_over: threading.Event) -> None:
        client = MeasuringClient(manager)
        for turn in count():
            for name, path in REQUESTS.items():
                if turn % RARELY.get(name, 1):
                    continue
                if is_over.wait(PAUSE_S):
                    client.hang_up()
                    return
                began = time.perf_counter()
                _, content = client.raw("GET", path)
                times[name].append(time.perf_counter() - began)
                sizes[name] = len(content)

    with beside(ask):
        yield felt
    felt |= {name: {**spread(times[name]), "bytes": sizes.get(name)} for name in REQUESTS}


@contextmanager
def followers(manager: ScaleManager, number: int) -> Iterator[dict[str, Any]]:
    """So many open connections that follow all changes; a process of their own reads them."""
    if not number:
        yield {}
        return
    assert manager.url is not None
    place = urlsplit(manager.url)
    words = [sys.executable, "-m", "benchmarks.scale_followers", str(place.port), str(number)]
    token = manager.bearer()["Authorization"]
    process = subprocess.Popen(
        words, env=os.environ | {"FOLLOW_AS": token}, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdin is not None
    felt: dict[str, Any] = {"count": number}
    try:
        felt |= json.loads(process.stdout.readline())
        yield felt
    finally:
        process.stdin.close()
        felt |= json.loads(process.stdout.readline() or "{}")
        process.wait()


def measured(
    manager: ScaleManager, rate: float, seconds: float, most_gpus: int, **said: Any
) -> dict[str, Any]:
    """One window: arrivals and ends at this rate, progress and followers as said."""
    progress, open_count = float(said.get("progress", 0.0)), int(said.get("followers", 0))
    Rates(rate, progress).write(manager.folder)
    load_before = os.getloadavg()[0]
    with ExitStack() as meanwhile:
        following = meanwhile.enter_context(followers(manager, open_count))
        coming = meanwhile.enter_context(arrivals(manager, rate, most_gpus, seed=len(said)))
        time.sleep(min(3.0, seconds / 4))
        asking = meanwhile.enter_context(probes(manager))
        window = meanwhile.enter_context(manager.window())
        time.sleep(seconds)
    Rates().write(manager.folder)
    counts = MeasuringClient(manager).counts()
    return {
        "rate": rate,
        "progress_per_s": progress,
        "followers": following,
        "arrivals": coming,
        "requests": asking,
        "manager": window,
        "jobs": {state: counts.get(state, 0) for state in ("running", "pending", "suspended")},
        "load_before": round(load_before, 2),
    }
