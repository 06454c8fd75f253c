"""How fast the live manager is, next to the alternatives on one machine, in one run.

    python -m benchmarks.live [--quick] [--only starts,load,lists,ended,commands]

Ratios say more than times: every line was measured on the same machine within the same minutes. Peers that
are not there are named with the reason. Slurm comes from the system (slurm-wlm, munge), Ray from the Python
that TRAINMASTER_BENCH_RAY names. Written to benchmarks/results/live.json and docs/measurements/live.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import live_lists, live_load, live_starts
from benchmarks.live_daemon import command
from benchmarks.pages import page

PARTS = ("starts", "load", "lists", "ended", "commands")
OUT = Path("benchmarks/results/live.json")
PAGE = Path("docs/measurements/live.md")


def measure(parts: set[str], quick: bool, folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = {
        "date": datetime.now(UTC).isoformat(timespec="minutes"),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}",
        "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 2),
        "fsync_ms": fsync_ms(folder),
    }
    if "commands" in parts:
        found["commands"] = commands(5 if quick else 20)
    if "starts" in parts:
        found["starts"] = starts(10 if quick else 50, 50 if quick else 500, folder / "starts")
    if "load" in parts:
        found["load"] = live_load.submitted(1_000 if quick else 10_000, folder / "load")
    if "lists" in parts:
        found["lists"] = live_lists.measured(500 if quick else 5_000, folder / "lists", command())
    if "ended" in parts:
        ran, all_of_them = (100, 2_100) if quick else (2_000, 100_000)
        found["ended"] = live_load.ended(ran, all_of_them, folder / "ended")
    found["load_after"] = round(os.getloadavg()[0], 2)
    return found


def starts(count: int, burst: int, folder: Path) -> list[dict[str, object]]:
    rows = []
    for each in live_starts.measured(count, burst, folder):
        print(f"  {each.name}: {each.absent or each.latency}, {each.burst}", flush=True)
        rows.append(each.as_json())
    return rows


def commands(rounds: int) -> dict[str, float]:
    """Whole commands, from the shell's point of view, in ms; none of them talks to a daemon."""
    asked = {"--help": ["--help"], "ps --help": ["ps", "--help"], "--version": ["--version"]}
    found = {}
    for name, words in asked.items():
        times = []
        for _ in range(rounds):
            began = time.perf_counter()
            subprocess.run([*command(), *words], check=True, capture_output=True)
            times.append((time.perf_counter() - began) * 1000)
        found[name] = round(median(times), 1)
    return found


def fsync_ms(folder: Path, rounds: int = 20) -> float:
    """Cost of a durable write here: every step pays it once."""
    times = []
    with (folder / "fsync").open("wb") as file:
        for _ in range(rounds):
            file.write(b"x" * 4096)
            began = time.perf_counter()
            file.flush()
            os.fsync(file.fileno())
            times.append((time.perf_counter() - began) * 1000)
    return round(median(times), 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of everything; not written")
    parser.add_argument("--only", default=",".join(PARTS), metavar="PART,…")
    options = parser.parse_args()
    parts = set(options.only.split(","))
    if not parts <= set(PARTS):
        parser.error(f"--only takes some of {', '.join(PARTS)}")
    with tempfile.TemporaryDirectory(prefix="tmbench-", ignore_cleanup_errors=True) as folder:
        found = measure(parts, options.quick, Path(folder))
    if options.quick:
        print(json.dumps(found, indent=1))
        return
    if OUT.exists() and parts != set(PARTS):  # what is said of the whole stays with the other parts
        found = json.loads(OUT.read_text()) | {part: found[part] for part in sorted(parts)}
    OUT.write_text(json.dumps(found, indent=1) + "\n")
    PAGE.write_text(page("live_page.md", **found))
    print(f"written to {OUT} and {PAGE}")


if __name__ == "__main__":
    main()
