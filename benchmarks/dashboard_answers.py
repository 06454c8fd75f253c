"""What the answers behind the dashboard cost a manager of 10,000 GPUs and 10,000 jobs, and when they show.

    python -m benchmarks.dashboard_answers [--quick | --page]

Each answer is made anew, and measured by the processor time of the manager; then a real Chromium opens the
first page and the list of jobs. Written to benchmarks/results/dashboard-answers.json and
docs/measurements/dashboard-answers.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import tempfile
import time
import urllib.request
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
from playwright.sync_api import Page, sync_playwright

from benchmarks.dashboard import opened, page_process, session
from benchmarks.live_daemon import MeasuringClient
from benchmarks.pages import page
from benchmarks.scale_engine import Rates
from benchmarks.scale_load import MEAN_GPUS, ScaleManager, arrivals, submit
from tests.browser.chromium import ARGUMENTS, executable
from tests.live.daemons import until

OUT = Path("benchmarks/results/dashboard-answers.json")
PAGE = Path("docs/measurements/dashboard-answers.md")
ANSWERS = {
    "overview": "/api/v1/overview",
    "grid": "/api/v1/grid",
    "timeline of all nodes": "/api/v1/timeline",
    "timeline of a node": "/api/v1/timeline?node=n0",
    "100 jobs, folded": "/api/v1/jobs?limit=100&fold=true&state=pending,running,suspended",
    "15 jobs of a user, folded": "/api/v1/jobs?limit=15&fold=true&user=root&state=pending,running,suspended",
}
TIMES = 3
PAUSE_S = 1.5
GRID = "document.querySelector('canvas[role=img]')?.dataset.shown"


def processor_s(pid: int) -> float:
    """Of all threads of a process, finer than the ticks that psutil reads."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(each.read_text().split()[0]) for each in threads) / 1e9


def answers(manager: ScaleManager) -> dict[str, Any]:
    """Each is asked for by viewers who have not asked before, so that it is made for them."""
    assert manager.process is not None
    viewers = [manager.bearer_of(f"viewer-{number}", "viewer") for number in range(TIMES)]
    found = {}
    for name, path in ANSWERS.items():
        spent, took, size = [], [], 0
        for viewer in viewers:
            time.sleep(PAUSE_S)  # what all share of it is too old to be used again
            before, began = processor_s(manager.process.pid), time.perf_counter()
            request = urllib.request.Request(f"{manager.url}{path}", headers=viewer)
            with urllib.request.urlopen(request, timeout=60) as answer:
                size = len(answer.read())
            took.append(time.perf_counter() - began)
            spent.append(processor_s(manager.process.pid) - before)
        found[name] = {
            "ms": round(sorted(took)[TIMES // 2] * 1000),
            "cpu_ms": round(min(spent) * 1000, 1),
            "kib": round(size / 1024),
        }
        print(f"  {name}: {found[name]}", flush=True)
    return found


def seen(tab: Page, url: str, is_there: str) -> dict[str, Any]:
    """When something is painted, and when this is there."""
    tab.goto(url)
    tab.wait_for_function(is_there)
    paint = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0"
    return {
        "first_paint_ms": round(tab.evaluate(paint)),
        "shown_ms": round(tab.evaluate("performance.now()")),
        "elements": tab.evaluate("document.querySelectorAll('*').length"),
    }


def updates(tab: Page, process: psutil.Process, manager: ScaleManager, s: float) -> dict[str, Any]:
    """Meanwhile jobs come and end."""
    line = tab.context.new_cdp_session(tab)
    line.send("Performance.enable")
    sizes: list[int] = []
    line.send("Network.enable")
    line.on(
        "Network.webSocketFrameReceived",
        lambda said: sizes.append(len(said["response"]["payloadData"])),
    )

    def figures() -> dict[str, float]:
        return {
            each["name"]: each["value"] for each in line.send("Performance.getMetrics")["metrics"]
        }

    Rates(1.0, 0.0).write(manager.folder)
    with arrivals(manager, 1.0, 64, seed=1):
        before, number, cpu = figures(), int(tab.evaluate(GRID)), sum(process.cpu_times()[:2])
        tab.wait_for_timeout(s * 1000)
        after, last = figures(), int(tab.evaluate(GRID))
        spent = sum(process.cpu_times()[:2]) - cpu
    Rates().write(manager.folder)
    return {
        "seconds": s,
        "grids": last - number,
        "main_thread": round((after["TaskDuration"] - before["TaskDuration"]) / s, 4),
        "page_process": round(spent / s, 3),
        "kib": round(sum(sizes) / 1024),
    }


def measure(cluster: str, gpus: int, jobs: int, seconds: float, folder: Path) -> dict[str, Any]:
    manager, choose = ScaleManager(folder, cluster), random.Random(gpus)
    try:
        manager.start()
        manager.until_active()
        client = MeasuringClient(manager)
        submit(client, choose, jobs, 64)
        full = 0.9 * min(gpus, jobs * MEAN_GPUS)
        until(lambda: client.call("GET", "/api/v1/status")["used"] >= full, "a full cluster")
        found: dict[str, Any] = {"gpus": gpus, "answers": answers(manager)}
        found["counts"] = client.counts()
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=executable(), args=list(ARGUMENTS), headless=True
            )
            tab = opened(session(browser, manager))  # the process of the pages has started
            process = page_process(manager)
            found["first"] = seen(tab, "/", f"{GRID} > 0")
            found["updates"] = updates(tab, process, manager, seconds)
            if picture := os.environ.get("PICTURE"):
                tab.screenshot(path=picture)
            rows = "document.querySelectorAll('tbody tr').length"
            found["jobs"] = seen(tab, "/jobs", f"{rows} > 50")
            browser.close()
        return found
    finally:
        manager.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small cluster; not written")
    parser.add_argument("--page", action="store_true", help="write the last results' page again")
    asked = parser.parse_args()
    if asked.page:
        PAGE.write_text(page("dashboard_answers_page.md", **json.loads(OUT.read_text())))
        return
    found: dict[str, Any] = {
        "date": datetime.now(UTC).isoformat(timespec="minutes"),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}",
        "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 2),
    }
    size = ("4x25x10", 1_000, 1_000, 5.0) if asked.quick else ("25x40x10", 10_000, 10_000, 20.0)
    with tempfile.TemporaryDirectory(prefix="tmanswers-", ignore_cleanup_errors=True) as place:
        found |= measure(*size, Path(place))
    found["load_after"] = round(os.getloadavg()[0], 2)
    if asked.quick:
        print(json.dumps(found, indent=1))
        return
    OUT.write_text(json.dumps(found, indent=1) + "\n")
    PAGE.write_text(page("dashboard_answers_page.md", **found))
    print(f"written to {OUT} and {PAGE}")


if __name__ == "__main__":
    main()
