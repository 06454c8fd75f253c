"""What self-tests measure of slots of one core and of two, beside processes that compute, and without.

    python -m benchmarks.device_rates [--tries 5]

Written to benchmarks/results/device_rates.json and docs/measurements/type-speeds.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from benchmarks.pages import page

OUT = Path("benchmarks/results/device_rates.json")
PAGE = Path("docs/measurements/type-speeds.md")
BUSY = "while True: sum(range(10_000))"


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """So many processes that compute meanwhile."""
    started = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(processes)]
    try:
        yield
    finally:
        for each in started:
            each.kill()
            each.wait()


def rate(cores: int) -> int:
    """Of one self-test of a slot, in millions of operations per second."""
    command = [sys.executable, "-m", "trainmaster.gpu.self_test", "slot", f"0x{cores}"]
    said = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
    return int(said["mflop_s"])


def measured(cores: int, others: int, tries: int) -> dict[str, object]:
    with busy(others):
        rates = [rate(cores) / 1000 for _ in range(tries)]
    return {
        "cores": cores,
        "others": others,
        "least": round(min(rates), 1),
        "median": round(median(rates), 1),
        "most": round(max(rates), 1),
        "apart": round(max(rates) / min(rates), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tries", type=int, default=5)
    tries = parser.parse_args().tries
    before = os.getloadavg()[0]
    rows = [measured(cores, others, tries) for others in (0, 1, 2) for cores in (1, 2)]
    found = {
        "when": datetime.now(UTC).isoformat(timespec="minutes"),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}",
        "load_before": round(before, 2),
        "load_after": round(os.getloadavg()[0], 2),
        "tries": tries,
        "rows": rows,
    }
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps(found, indent=2) + "\n")
    PAGE.write_text(page("device_rates_page.md", **found))


if __name__ == "__main__":
    main()
