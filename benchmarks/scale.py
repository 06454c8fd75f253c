"""What a manager of 10, 100 and 1,000 simulated nodes of 10 GPUs costs, and what it takes at most.

    python -m benchmarks.scale [--quick | --page]

The manager is the real one: policy, store in SQLite, API over HTTP; only its engine starts no processes. It
is measured in windows with arrivals and ends at a steady rate, while thousands of jobs wait and one user asks
for lists. Written to benchmarks/results/scale.json and docs/measurements/scale.md.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import random
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks import scale_sessions
from benchmarks.live import fsync_ms
from benchmarks.live_daemon import MeasuringClient
from benchmarks.pages import page
from benchmarks.scale_load import MEAN_GPUS, SIZES, ScaleManager, measured, submit
from tests.live.daemons import until

RESTART_S = 600.0
OUT = Path("benchmarks/results/scale.json")
PAGE = Path("docs/measurements/scale.md")


@dataclass(frozen=True, slots=True)
class Size:
    """A cluster, and the load of its windows; each is (jobs in a second, progress reports, followers)."""

    cluster: str
    waiting: int
    windows: Sequence[tuple[float, float, int]]

    @property
    def nodes(self) -> int:
        return self.gpus // int(self.cluster.split("x")[-1])

    @property
    def gpus(self) -> int:
        return math.prod(map(int, self.cluster.split("x")))


RATES = ((1.0, 0.0, 0), (10.0, 0.0, 0), (30.0, 0.0, 0))
SIZES_MEASURED = (
    Size("1x10x10", 5_000, RATES),
    Size("4x25x10", 5_000, RATES),
    Size(
        "25x40x10",
        5_000,
        (
            *RATES,
            *((1.0, progress, 0) for progress in (300.0, 1000.0)),
            *((1.0, 0.0, followers) for followers in (0, 50, 300, 1000)),
        ),
    ),
)
QUICK = (Size("4x25x10", 500, ((1.0, 0.0, 0), (1.0, 100.0, 20))),)


def measure(size: Size, seconds: float, folder: Path) -> dict[str, Any]:
    """All windows of one cluster, and a restart of its manager at the end."""
    manager, choose = ScaleManager(folder, size.cluster), random.Random(size.gpus)
    most = min(max(SIZES), size.gpus // 2)
    try:
        manager.start()
        manager.until_active()
        client = MeasuringClient(manager)
        empty = client.memory()
        count = int(size.gpus / MEAN_GPUS) + size.waiting
        filled_s = submit(client, choose, count, most)
        until(lambda: _is_full(client, size), "the cluster to be full")
        windows = []
        for rate, progress, followers in size.windows:
            found = measured(manager, rate, seconds, most, progress=progress, followers=followers)
            windows.append(found)
            print(f"  {size.nodes} nodes, {rate:g}/s: {_line(found)}", flush=True)
        return {
            "nodes": size.nodes,
            "gpus": size.gpus,
            "empty": empty,
            "submitted": count,
            "submitted_s": round(filled_s, 2),
            "windows": windows,
            "restart": restarted(manager),
        }
    finally:
        manager.kill()


def _is_full(client: MeasuringClient, size: Size) -> bool:
    nodes = client.call("GET", "/api/v1/status")
    return bool(nodes["used"] >= 0.9 * size.gpus)


def _line(found: dict[str, Any]) -> str:
    manager = found["manager"]
    passes = manager["times_ms"]["pass"]
    return f"passes p50 {passes['p50']} ms, p99 {passes['p99']} ms, loop {manager['loop_busy']:.0%}"


def restarted(manager: ScaleManager) -> dict[str, Any]:
    """Killed, and started again on the same store: seconds until it leads."""
    size = sum(each.stat().st_size for each in manager.folder.glob("trainmaster.db*"))
    manager.kill()
    began = time.monotonic()
    manager.start()
    until(lambda: manager.url is not None, "the manager to be back", RESTART_S)
    manager.until_active()
    took = time.monotonic() - began
    client = MeasuringClient(manager)
    return {
        "seconds": round(took, 2),
        "jobs": client.counts(),
        "database_mib": round(size / 2**20, 1),
        **client.memory(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one small cluster; not written")
    parser.add_argument(
        "--page", action="store_true", help="write the page of the last results again"
    )
    asked = parser.parse_args()
    quick = asked.quick
    if asked.page:
        PAGE.write_text(page("scale_page.md", **json.loads(OUT.read_text())))
        return
    with tempfile.TemporaryDirectory(prefix="tmscale-", ignore_cleanup_errors=True) as place:
        folder = Path(place)
        found: dict[str, Any] = {
            "date": datetime.now(UTC).isoformat(timespec="minutes"),
            "machine": f"{platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}",
            "python": platform.python_version(),
            "load_before": round(os.getloadavg()[0], 2),
            "fsync_ms": fsync_ms(folder),
            "seconds": 4.0 if quick else 10.0,
            "mean_gpus": round(MEAN_GPUS, 2),
        }
        found["sessions"] = scale_sessions.measured()
        found["sizes"] = []
        for size in QUICK if quick else SIZES_MEASURED:
            found["sizes"].append(measure(size, found["seconds"], folder / str(size.nodes)))
            found["load_after"] = round(os.getloadavg()[0], 2)
            if not quick:  # what is measured is not lost where a later size fails
                OUT.write_text(json.dumps(found, indent=1) + "\n")
    if quick:
        print(json.dumps(found, indent=1))
        return
    PAGE.write_text(page("scale_page.md", **found))
    print(f"written to {OUT} and {PAGE}")


if __name__ == "__main__":
    main()
