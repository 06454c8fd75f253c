"""`trainmaster profile packing` on this machine's GPU, as a user would run it.

python -m benchmarks.gpu.profile_packing [--copies 1,2,4,8] [--seconds 5] [--hidden 1024] [--out DIR]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

from benchmarks.gpu import harness
from benchmarks.gpu.harness import Results


def run(results: Results, copies: str, seconds: float, hidden: int) -> None:
    options = ["--copies", copies, "--seconds", f"{seconds:g}", "--json"]
    words = ["trainmaster", "profile", "packing", *options, "--"]
    train = harness.train_command("--hidden", hidden)
    command = [sys.executable, "-m", *words, *train]
    env = harness.env_with(harness.train_env())
    said = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    results.add("packing", rc=said.returncode, said=said.stderr[-2000:])
    results.add("packing", **json.loads(said.stdout))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--copies", default="1,2,4,8")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    results = Results("profile_packing", asked.out)
    results.step("packing", 400, lambda: run(results, asked.copies, asked.seconds, asked.hidden))


if __name__ == "__main__":
    main()
