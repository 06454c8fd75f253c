"""What ten open dashboards cost a manager of 10,000 GPUs and 10,000 jobs, and what they cost a browser.

    python -m benchmarks.dashboard [--quick | --page]

The manager is that of benchmarks/scale.py. Windows with and without the dashboards take turns in one run, so
that both have the same machine. The dashboards follow the first page as tabs do
(benchmarks/dashboard_tabs.py): ten tabs of Chromium would take the processor from what is measured. One real
tab is measured for itself.
Written to benchmarks/results/dashboard.json and docs/measurements/dashboard.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean, median
from typing import Any

import psutil
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from benchmarks.live_daemon import MeasuringClient
from benchmarks.pages import page
from benchmarks.scale_engine import Rates
from benchmarks.scale_load import MEAN_GPUS, ScaleManager, arrivals, measured, submit
from tests.browser.chromium import ARGUMENTS, executable
from tests.live.daemons import until

OUT = Path("benchmarks/results/dashboard.json")
PAGE = Path("docs/measurements/dashboard.md")
PATIENCE_MS = 180_000
FIRST_PAGE = "/"


@dataclass(frozen=True, slots=True)
class Setting:
    cluster: str
    gpus: int
    jobs: int
    tabs: int
    pairs: int
    seconds: float


FULL = Setting("25x40x10", 10_000, 10_000, tabs=10, pairs=3, seconds=15.0)
QUICK = Setting("4x25x10", 1_000, 1_000, tabs=3, pairs=1, seconds=4.0)


def session(browser: Browser, manager: ScaleManager) -> BrowserContext:
    """A browser that is logged in as an admin."""
    context = browser.new_context(
        viewport={"width": 1280, "height": 800}, base_url=str(manager.url)
    )
    context.set_default_timeout(PATIENCE_MS)
    token = manager.bearer()["Authorization"].partition(" ")[2]
    context.request.post("/login", form={"token": token}, max_redirects=0)
    return context


def opened(context: BrowserContext) -> Page:
    """The first page in a tab, as soon as it takes what changes."""
    tab = context.new_page()
    tab.goto(FIRST_PAGE)
    tab.wait_for_selector("header")
    tab.wait_for_function("window.did_handshake")
    return tab


def in_browser(context: BrowserContext, seconds: float) -> dict[str, Any]:
    """First paint, with and without files that are kept, and what a tab then costs its browser."""
    found: dict[str, Any] = {}
    for name in ("first visit", "later visit"):
        tab = opened(context)
        paint = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
        tab.wait_for_function(paint)
        found[name] = {
            "first_paint_ms": round(tab.evaluate(paint)),
            "live_ms": round(tab.evaluate("performance.now()")),
            "elements": tab.evaluate("document.querySelectorAll('*').length"),
            "requests": tab.evaluate("performance.getEntriesByType('resource').length"),
            "bytes": tab.evaluate(
                "performance.getEntriesByType('resource').reduce((all, one) => all + one.transferSize, 0)"
            ),
        }
        if name == "later visit":
            found["updates"] = updates(tab, seconds)
        tab.close()
    return found


def updates(tab: Page, seconds: float) -> dict[str, float]:
    """What a page that nobody touches does meanwhile."""
    frames: list[int] = []
    line = tab.context.new_cdp_session(tab)
    line.send("Performance.enable")
    line.send("Network.enable")
    line.on(
        "Network.webSocketFrameReceived",
        lambda said: frames.append(len(said["response"]["payloadData"])),
    )

    def figures() -> dict[str, float]:
        said = line.send("Performance.getMetrics")["metrics"]
        return {each["name"]: each["value"] for each in said}

    before = figures()
    tab.wait_for_timeout(seconds * 1000)
    after = figures()
    spent = {name: after[name] - before[name] for name in ("TaskDuration", "ScriptDuration")}
    return {
        "main_thread": round(spent["TaskDuration"] / seconds, 4),
        "script": round(spent["ScriptDuration"] / seconds, 4),
        "heap_mib": round(after["JSHeapUsedSize"] / 2**20, 1),
        "messages_per_s": round(len(frames) / seconds, 2),
        "bytes_per_s": round(sum(frames) / seconds),
    }


@contextmanager
def dashboards(manager: ScaleManager, number: int) -> Iterator[dict[str, Any]]:
    """So many open dashboards; a process of their own reads them."""
    said: dict[str, Any] = {"count": number}
    words = [sys.executable, "-m", "benchmarks.dashboard_tabs", str(manager.url), str(number)]
    token = manager.bearer()["Authorization"].partition(" ")[2]
    process = subprocess.Popen(
        words, env=os.environ | {"TOKEN": token}, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        said |= json.loads(process.stdout.readline())
        yield said
    finally:
        process.stdin.close()
        said |= json.loads(process.stdout.readline() or "{}")
        process.wait()


def page_process(manager: ScaleManager) -> psutil.Process:
    assert manager.process is not None
    children = psutil.Process(manager.process.pid).children()
    return next(each for each in children if "trainmaster.api.web" in each.cmdline())


def windows(manager: ScaleManager, setting: Setting) -> Iterator[dict[str, Any]]:
    """Without and with the dashboards, in turns."""
    most = 64
    for turn in range(setting.pairs):
        for number in (0, setting.tabs) if turn % 2 == 0 else (setting.tabs, 0):
            with dashboards(manager, number) as said:
                process = page_process(manager)
                before, began = sum(process.cpu_times()[:2]), time.monotonic()
                found = measured(manager, 1.0, setting.seconds, most)
                spent = sum(process.cpu_times()[:2]) - before
                said["page_process"] = {
                    "core": round(spent / (time.monotonic() - began), 3),
                    "rss_mib": round(process.memory_info().rss / 2**20, 1),
                }
            print(f"  {number} dashboards: {found['manager']['times_ms']['pass']}", flush=True)
            yield {"dashboards": said, **found}


def compared(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Means over the windows of each kind, and what those with dashboards are of those without."""
    kinds = {
        name: [each["manager"] for each in found if bool(each["dashboards"]["count"]) is has]
        for name, has in (("without", False), ("with", True))
    }
    said: dict[str, Any] = {}
    for name in ("pass", "pass by the clock", "step", "lag"):
        for part in ("mean", "p50", "p99"):
            means = {
                kind: fmean(each["times_ms"][name][part] for each in of)
                for kind, of in kinds.items()
            }
            said[f"{name} {part}"] = {
                **{kind: round(value, 2) for kind, value in means.items()},
                "ratio": round(means["with"] / means["without"], 2),
            }
    said["loop"] = {
        kind: round(median(each["loop_busy"] for each in of), 3) for kind, of in kinds.items()
    }
    return said


def measure(setting: Setting, folder: Path) -> dict[str, Any]:
    manager, choose = ScaleManager(folder, setting.cluster), random.Random(setting.gpus)
    try:
        manager.start()
        manager.until_active()
        client = MeasuringClient(manager)
        submit(client, choose, setting.jobs, 64)
        wanted = 0.9 * min(setting.gpus, setting.jobs * MEAN_GPUS)
        until(lambda: client.call("GET", "/api/v1/status")["used"] >= wanted, "a full cluster")
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=executable(), args=list(ARGUMENTS), headless=True
            )
            try:
                context = session(browser, manager)
                opened(context).close()  # the process has started
                context.close()
                context = session(browser, manager)
                Rates(1.0, 0.0).write(manager.folder)
                with arrivals(manager, 1.0, 64, seed=1):
                    tab = in_browser(context, setting.seconds)
            finally:
                browser.close()
        found = list(windows(manager, setting))
        return {
            "gpus": setting.gpus,
            "tabs": setting.tabs,
            "counts": client.counts(),
            "browser": tab,
            "windows": found,
            "compared": compared(found),
        }
    finally:
        manager.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small cluster; not written")
    parser.add_argument(
        "--page", action="store_true", help="write the page of the last results again"
    )
    asked = parser.parse_args()
    if asked.page:
        PAGE.write_text(page("dashboard_page.md", **json.loads(OUT.read_text())))
        return
    load = round(os.getloadavg()[0], 2)
    with tempfile.TemporaryDirectory(prefix="tmdash-", ignore_cleanup_errors=True) as place:
        setting = QUICK if asked.quick else FULL
        found = {
            "date": datetime.now(UTC).isoformat(timespec="minutes"),
            "machine": f"{platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}",
            "python": platform.python_version(),
            "seconds": setting.seconds,
            "load_before": load,
            **measure(setting, Path(place) / "state"),
            "load_after": round(os.getloadavg()[0], 2),
        }
    if asked.quick:
        print(json.dumps({**found, "windows": len(found["windows"])}, indent=1))
        return
    OUT.write_text(json.dumps(found, indent=1) + "\n")
    PAGE.write_text(page("dashboard_page.md", **found))
    print(f"written to {OUT} and {PAGE}")


if __name__ == "__main__":
    main()
