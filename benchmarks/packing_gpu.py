"""Several training processes on one real GPU, by turns and under MPS: what each step takes.

The experiment that `perf` takes its H200 law from. Needs a GPU and PyTorch;
run it on the GPU machine. Prints a table and writes JSON.

    python benchmarks/packing_gpu.py [--seconds 6] [--out FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HIDDEN = {"small": 1024, "filling": 4096}
COUNTS = (1, 2, 4, 8)
LAYERS, BATCH = 8, 512


def train(hidden: int, seconds: float, start_at: float) -> None:
    """One process: as many steps as it can between `start_at` and the end; prints ms per step."""
    import torch

    device = torch.device("cuda")
    layers = [torch.nn.Linear(hidden, hidden) for _ in range(LAYERS)]
    model = torch.nn.Sequential(*layers).to(device)
    optimizer = torch.optim.Adam(model.parameters())
    batch = torch.randn(BATCH, hidden, device=device)

    def step() -> None:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()

    for _ in range(10):
        step()
    torch.cuda.synchronize()
    memory = torch.cuda.max_memory_reserved()
    while time.time() < start_at:
        time.sleep(0.01)
    begin, steps = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        for _ in range(5):
            step()
        torch.cuda.synchronize()
        steps += 5
    elapsed = time.perf_counter() - begin
    print(json.dumps({"ms": 1000 * elapsed / steps, "memory_mib": memory / 2**20}))


def together(hidden: int, count: int, seconds: float, env: dict[str, str]) -> dict[str, float]:
    """Run `count` processes at once; their mean."""
    start_at = time.time() + 12 + 2 * count
    command = [sys.executable, __file__, "--train", str(hidden), str(seconds), str(start_at)]
    runs = [
        subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) for _ in range(count)
    ]
    found = [json.loads(run.communicate(timeout=240)[0]) for run in runs]
    mean = sum(each["ms"] for each in found) / count
    return {"ms_per_step": round(mean, 3), "total_steps_per_s": round(1000 * count / mean, 1)}


def with_mps(folder: Path) -> dict[str, str]:
    env = dict(os.environ)
    env["CUDA_MPS_PIPE_DIRECTORY"] = str(folder / "pipe")
    env["CUDA_MPS_LOG_DIRECTORY"] = str(folder / "log")
    for name in ("pipe", "log"):
        (folder / name).mkdir()
    subprocess.run(["nvidia-cuda-mps-control", "-d"], env=env, check=True)
    time.sleep(2)
    return env


def measured(seconds: float) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    folder = Path(tempfile.mkdtemp())
    for mode in ("time", "mps"):
        env = dict(os.environ) if mode == "time" else with_mps(folder)
        for size, hidden in HIDDEN.items():
            alone = 0.0
            for count in COUNTS:
                row = together(hidden, count, seconds, env)
                alone = alone or row["ms_per_step"]
                slowdown = round(row["ms_per_step"] / alone, 3)
                rows.append(
                    {"mode": mode, "job": size, "processes": count, **row, "slowdown": slowdown}
                )
                print(rows[-1], flush=True)
        if mode == "mps":
            subprocess.run(
                ["nvidia-cuda-mps-control"], input="quit\n", text=True, env=env, check=False
            )
    shutil.rmtree(folder, ignore_errors=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--out", type=Path, default=Path("packing_gpu.json"))
    parser.add_argument("--train", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train:
        hidden, seconds, start_at = options.train
        train(int(hidden), float(seconds), float(start_at))
        return
    import torch

    report = {
        "gpu": torch.cuda.get_device_name(0),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "layers": LAYERS,
        "batch": BATCH,
        "rows": measured(options.seconds),
    }
    options.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
