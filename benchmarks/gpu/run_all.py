"""Every measurement on this GPU, one program after another, each in less than ten minutes.

    python -m benchmarks.gpu.run_all [--only freeze_thaw,sharing] [--out DIR] [--list]

Results are JSON files in DIR (default: OUT, else benchmarks/results/gpu). `--list` shows the commands: where
a session is short, run them one by one. Afterwards, where matplotlib is: python -m benchmarks.gpu.prediction,
which compares the simulator with them, and python -m benchmarks.gpu.page
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

LIMIT_S = 595.0
COMMANDS: dict[str, tuple[tuple[str, ...], ...]] = {
    "freeze_thaw": (("freeze_thaw",),),
    "cooperative": (("cooperative", "--gib", "1", "4", "16"),),
    "time_slicing": (
        ("time_slicing", "--only", "one-by-one"),
        ("time_slicing", "--only", "shared"),
    ),
    "packing_live": (("packing_live",),),
    "sharing": (
        ("sharing", "--only", "halves,classes"),
        ("sharing", "--only", "memory-mps,memory-time"),
    ),
    "profile_packing": (("profile_packing",),),
    "crashes": (("crashes",),),
    "readme": (("readme",),),
    "self_test": (("self_test",),),
    "memory": (("memory",),),
    "device_filter": (("device_filter",),),
    "zero_estimate": (("zero_estimate",),),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(COMMANDS))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--list", action="store_true", help="show the commands, run nothing")
    asked = parser.parse_args()
    names = asked.only.split(",")
    if unknown := [name for name in names if name not in COMMANDS]:
        parser.error(f"--only takes some of {', '.join(COMMANDS)}, not {unknown[0]}")
    folder = asked.out or Path(os.environ.get("OUT") or "benchmarks/results/gpu")
    folder.mkdir(parents=True, exist_ok=True)
    for words in (each for name in names for each in COMMANDS[name]):
        out = folder / "cooperative.json" if words[0] == "cooperative" else folder
        command = ["-m", f"benchmarks.gpu.{words[0]}", *words[1:], "--out", str(out)]
        print("python", *command, flush=True)
        if asked.list:
            continue
        began = time.monotonic()
        with subprocess.Popen([sys.executable, *command]) as running:
            try:
                went = str(running.wait(LIMIT_S))
            except subprocess.TimeoutExpired:
                running.terminate()  # it ends its manager
                went = f"ended after {LIMIT_S:.0f} s"
        print(f"  exit code {went}, {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
