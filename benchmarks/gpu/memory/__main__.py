"""Measure the peak memory of training programs on the first GPU, each in a process of its own.

    python3 -m benchmarks.gpu.memory [--out DIR] [--only user_vit,cnn] [--device cpu]

It needs torch and the standard library. Every result is written to DIR/memory.json as soon as it is known.
What is there is measured again only where `--only` names it or `--again` is given. With `--device cpu`
each program makes one step with two samples, to see that it runs; no memory is measured then.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from benchmarks.gpu.memory.combinations import CALIBRATION, HERE, USER_STYLE, Combination
from benchmarks.gpu.memory.nvml import Nvml

Found = dict[str, Any]
ROOT = HERE.parents[2]
LIMIT_S, COMPILE_LIMIT_S, CPU_LIMIT_S = 45.0, 100.0, 600.0
SAMPLE_S = 0.004
ERROR_CHARACTERS = 1500
CALIBRATE = "calibrate"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="folder of the result; default: OUT")
    parser.add_argument("--only", default="", help="beginnings of names, with commas between")
    parser.add_argument("--seconds", type=float, default=570.0, help="begin nothing after so long")
    parser.add_argument("--again", action="store_true", help="measure what is there already too")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    asked = parser.parse_args()
    folder = asked.out or Path(os.environ.get("OUT") or ROOT / "benchmarks/results/gpu")
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "memory.json"
    began, starts = time.monotonic(), tuple(asked.only.split(","))
    with Nvml() if asked.device == "cuda" else nullcontext() as nvml:
        found = started(file, nvml)
        for name, command, limit_s in commands(asked.device):
            chosen = name.startswith(starts)
            if not chosen or (name in found["programs"] and not asked.again and not asked.only):
                continue
            if time.monotonic() - began > asked.seconds:
                print("the time is over: run it again for what is left")
                break
            measured = measure(command, limit_s, nvml)
            found["programs"][name] = measured
            written(file, found)
            print(f"[{time.monotonic() - began:6.1f} s] {name}: {told(measured)}", flush=True)


def started(file: Path, nvml: Nvml | None) -> Found:
    """The results so far, where they are of this machine."""
    machine: Found = {"cpus": os.cpu_count(), "python": sys.version.split()[0]}
    machine |= nvml.facts() if nvml else {"gpu": None}
    former: Found = json.loads(file.read_text()) if file.exists() else {}
    date = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    programs = former["programs"] if former.get("machine") == machine else {}
    return {"script": "memory", "date": date, "machine": machine, "programs": programs}


def commands(device: str) -> list[tuple[str, list[str], float]]:
    """Name, command without its result's file, and time limit of each program."""
    made = [(CALIBRATE, ["benchmarks.gpu.memory.calibrate"], LIMIT_S)] if device == "cuda" else []
    for each in (*CALIBRATION, *USER_STYLE):
        limit_s = COMPILE_LIMIT_S if each.is_compiled else LIMIT_S
        if device == "cuda":
            made.append((each.name, watched(each), limit_s))
        else:
            on_host = [*watched(each.tiny()), "--steps", "1", "--device", "cpu"]
            made.append((each.name, on_host, CPU_LIMIT_S))
    return made


def watched(combination: Combination) -> list[str]:
    file, *options = combination.command
    return ["benchmarks.gpu.memory.watched", str(HERE / file), *options]


def measure(command: list[str], limit_s: float, nvml: Nvml | None) -> Found:
    """Run it to its end while the driver is asked again and again for the memory in use."""
    module, *words = command
    with tempfile.TemporaryDirectory() as place, Path(place, "err").open("w+b") as err:
        result = Path(place, "result.json")
        idle = nvml.used() if nvml else 0
        device, process, samples = 0, 0, 0
        until = time.monotonic() + limit_s
        running = subprocess.Popen(
            [sys.executable, "-m", module, str(result), *words],
            stdout=subprocess.DEVNULL,
            stderr=err,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        try:
            while running.poll() is None and time.monotonic() < until:
                if nvml:
                    device, process = max(device, nvml.used()), max(process, nvml.of_processes())
                    samples += 1
                time.sleep(SAMPLE_S)
        finally:
            is_late = running.poll() is None
            running.kill()
            running.wait()
        found: Found = {"command": command, "exit_code": None if is_late else running.returncode}
        if result.exists():
            found |= json.loads(result.read_text())
        else:
            err.seek(0)
            found["error"] = err.read().decode(errors="replace")[-ERROR_CHARACTERS:]
    if nvml:
        found |= {"device_idle": idle, "device_peak": device - idle, "process_peak": process}
        found["samples"] = samples
    if "max_reserved" in found:
        found["beside_allocator"] = device - idle - found["max_reserved"]
    return found


def told(measured: Found) -> str:
    """One line for the screen."""
    if "error" in measured:
        return f"exit code {measured['exit_code']}: {measured['error'][-200:]!r}"
    if "max_reserved" not in measured:
        return f"ran, {measured.get('took_s', 0)} s"
    keys = ("max_allocated", "max_reserved", "device_peak", "process_peak")
    peaks = ", ".join(f"{key} {measured[key] / 2**20:,.0f} MiB" for key in keys)
    return f"{peaks}, {measured['took_s']} s"


def written(file: Path, found: Found) -> None:
    beside = file.with_suffix(".tmp")
    beside.write_text(json.dumps(found, indent=1) + "\n")
    beside.replace(file)


if __name__ == "__main__":
    main()
