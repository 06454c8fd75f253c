"""Starting gangs on a Ray cluster: our engine beside Ray alone (a placement group and actors), in one run.

    python -m benchmarks.ray_gangs [--quick]

Both start two ranks of Python on two nodes, with a GPU each on Ray's books (no device is behind it), and give
all of it back. Ray listens on all interfaces, so this runs in a network namespace of its own. Written to
benchmarks/results/ray.json and docs/measurements/ray.md.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import structlog

from benchmarks.pages import page
from tests.ray import namespace
from tests.ray.cluster import RayCluster, two_racks
from trainmaster.engines.ray.engine import RayEngine
from trainmaster.engines.ray.gateway_client import Gateway
from trainmaster.model.actions import Launch
from trainmaster.model.engine_reports import Ended, Lost, Report
from trainmaster.model.job import Run
from trainmaster.model.launch_spec import LaunchSpec
from trainmaster.model.placement import Placement, Slice

OUT = Path("benchmarks/results/ray.json")
PAGE = Path("docs/measurements/ray.md")
NODES, GPUS, RANKS = 2, 4, 2
AT_ONCE = 4
"""Gangs that fit on the cluster."""
BEGUN = "import time; print(time.time())"


class Ours:
    """Gangs by our engine, and when they ended."""

    def __init__(self, engine: RayEngine, folder: Path) -> None:
        self.engine = engine
        self.folder = folder
        self._ends: dict[Run, asyncio.Future[None]] = {}
        self._jobs = 0

    def tell(self, report: Report, _number: int) -> None:
        if isinstance(report, Ended | Lost):
            if isinstance(report, Lost) or report.code:
                raise RuntimeError(f"a gang failed: {report}")
            self._ends[report.run].set_result(None)

    async def gang(self, slot: int) -> Run:
        """One with a rank on each node, to its end."""
        self._jobs += 1
        run = Run(str(self._jobs), 1)
        self._ends[run] = asyncio.get_running_loop().create_future()
        slices = tuple(Slice(node, node * GPUS + slot) for node in range(RANKS))
        await self.engine.execute(Launch(run, Placement(slices, span=0), 0), self.spec())
        await self._ends[run]
        return run

    async def latency_ms(self) -> float:
        ordered = time.time()
        run = await self.gang(0)
        logs = self.engine.logs(run)
        begun = [float(logs[rank][0].read_text()) for rank in range(RANKS)]
        return (max(begun) - ordered) * 1000

    async def gangs_per_s(self, gangs: int) -> float:
        began = time.time()
        left = iter(range(gangs))

        async def one_after_another(slot: int) -> None:
            for _ in left:
                await self.gang(slot)

        await asyncio.gather(*map(one_after_another, range(AT_ONCE)))
        return gangs / (time.time() - began)

    def spec(self) -> LaunchSpec:
        return LaunchSpec(
            command=(sys.executable, "-S", "-c", BEGUN),
            workdir=str(self.folder),
            checkpoint_dir=str(self.folder / "checkpoints"),
            counts_steps=False,
        )


async def ours(cluster: RayCluster, folder: Path, rounds: int, gangs: int) -> dict[str, Any]:
    link = Gateway(cluster.address, f"bench-{folder.name}")  # none has runs of another
    await link.connect()
    nodes = sorted(link.nodes, key=lambda each: each.name)
    engine = RayEngine(folder, link, nodes)
    measured = Ours(engine, folder)
    await engine.open(measured.tell)
    await engine.observe({})
    try:
        await measured.latency_ms()
        found = []
        for _ in range(rounds):
            found.append(await measured.latency_ms())
            await asyncio.sleep(1)
        rate = await measured.gangs_per_s(gangs)
        while await link.reserved():  # what the last ones held is given back a moment later
            await asyncio.sleep(0.1)
        await link.withdraw()
        return {"latency_ms": found, "gangs_per_s": rate}
    finally:
        await engine.close()


def bare(cluster: RayCluster, rounds: int, gangs: int) -> dict[str, Any]:
    words = [cluster.address, *map(str, (RANKS, rounds, gangs, AT_ONCE))]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.ray_bare", *words],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(rounds: int, gangs: int) -> dict[str, Any]:
    with (
        RayCluster.running(*two_racks(NODES, GPUS)) as cluster,
        tempfile.TemporaryDirectory(prefix="tm-bench-") as folder,
    ):
        # Each twice in turn, so that what else the machine does falls on both.
        peers = [bare(cluster, rounds, gangs)]
        mine = [asyncio.run(ours(cluster, Path(folder) / "1", rounds, gangs))]
        peers.append(bare(cluster, rounds, gangs))
        mine.append(asyncio.run(ours(cluster, Path(folder) / "2", rounds, gangs)))
    return {"ours": row(mine), "bare": row(peers), "ray": peers[0]["ray"]}


def row(found: list[dict[str, Any]]) -> dict[str, float]:
    latencies = sorted(each for part in found for each in part["latency_ms"])
    return {
        "latency_ms": round(median(latencies), 1),
        "slowest_ms": round(latencies[-1], 1),
        "gangs_per_s": round(median(part["gangs_per_s"] for part in found), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few of everything; not written")
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    namespace.enter()
    about = {
        "date": datetime.now(UTC).isoformat(timespec="minutes"),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}",
        "load_before": round(os.getloadavg()[0], 2),
        "rounds": 4 if options.quick else 20,
        "gangs": 8 if options.quick else 20,
    }
    found = about | measure(about["rounds"] // 2, about["gangs"])
    if options.quick:
        print(json.dumps(found, indent=1))
        return
    OUT.write_text(json.dumps(found, indent=1) + "\n")
    PAGE.write_text(page("ray_page.md", **found))
    print(f"written to {OUT} and {PAGE}")


if __name__ == "__main__":
    main()
