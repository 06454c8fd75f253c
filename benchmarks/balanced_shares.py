"""What shares by speed gain over equal ones, on gangs of gloo whose devices are of unequal speed.

    python -m benchmarks.balanced_shares [--steps 120]

A device of a given speed is a rank whose forward pass takes so long for each sample: it sleeps, so that a
machine with two cores can have three of them. All else is real: DDP, its exchange, the SDK. Written to
benchmarks/results/balanced_shares.json and docs/measurements/unequal-devices.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.pages import page
from trainmaster.engines.local.worker_environment import free_port

OUT = Path("benchmarks/results/balanced_shares.json")
PAGE = Path("docs/measurements/unequal-devices.md")
BATCH = 48
FASTEST_S = 0.003
"""Of the fastest device, for each sample."""
GANGS = ((1.0, 1.0), (1.0, 0.5), (1.0, 0.25), (1.0, 1.0, 0.5))
"""Speeds of the ranks."""
LEAVING_S = 1.0
"""Before a rank closes its connections: gloo was seen to leave one waiting for a rank that had gone."""
SETTLED = 0.5
"""The later part of a run, after shares have settled."""
SPEED, BALANCED, STEPS = "BENCH_SPEED", "BENCH_BALANCED", "BENCH_STEPS"


def rank() -> None:
    """One rank: trains, and prints the time of each step, of each exchange of speeds, and the losses."""
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, TensorDataset

    import trainmaster_sdk
    from trainmaster_sdk.balanced import BalancedShares
    from trainmaster_sdk.torch import StepBatches, gang, global_mean

    class Device(nn.Module):
        def __init__(self, inner: nn.Module, per_sample_s: float) -> None:
            super().__init__()
            self.inner, self.per_sample_s = inner, per_sample_s

        def forward(self, x: Any) -> Any:
            time.sleep(len(x) * self.per_sample_s)
            return self.inner(x)

    torch.set_num_threads(1)
    torch.manual_seed(0)
    steps, balanced = int(os.environ[STEPS]), bool(os.environ[BALANCED])
    x = torch.randn(2048, 16)
    data = TensorDataset(x, torch.sin(3 * x[:, :1]))
    with trainmaster_sdk.run() as tm, gang(tm):
        inner = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 1))
        net = Device(inner, FASTEST_S / float(os.environ[SPEED]))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
        model = DistributedDataParallel(net)
        shares = BalancedShares(tm, net) if balanced else None
        batches = StepBatches(tm, len(data), BATCH, 0, steps, shares=shares)
        ends, looks, losses = [time.perf_counter()], [], []
        samples: list[int] = []
        for inputs, wanted in DataLoader(data, batch_sampler=batches):
            loss = global_mean(tm, (model(inputs) - wanted) ** 2, BATCH)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            began = time.perf_counter()
            if shares is not None:
                shares.update()
            looks.append(time.perf_counter() - began)
            total = loss.detach() / tm.world_size
            dist.all_reduce(total)
            losses.append(total.item())
            samples.append(len(inputs))
            ends.append(time.perf_counter())
        if tm.is_rank_zero:
            times = [later - earlier for earlier, later in pairwise(ends)]
            print(json.dumps({"times": times, "looks": looks, "losses": losses}), flush=True)
        print(f"samples {tm.rank} {samples[-1]}", file=sys.stderr, flush=True)
        time.sleep(LEAVING_S)


def gang_of(speeds: tuple[float, ...], *, balanced: bool, steps: int) -> dict[str, Any]:
    port = str(free_port())
    with tempfile.TemporaryDirectory(prefix="tmbalance-") as folder:
        ranks = [
            subprocess.Popen(
                [sys.executable, "-m", "benchmarks.balanced_shares", "--rank"],
                env=os.environ
                | {
                    "RANK": str(number),
                    "LOCAL_RANK": str(number),
                    "MASTER_PORT": port,
                    "WORLD_SIZE": str(len(speeds)),
                    "MASTER_ADDR": "127.0.0.1",
                    SPEED: str(speed),
                    BALANCED: "1" if balanced else "",
                    STEPS: str(steps),
                    "TRAINMASTER_CHECKPOINT_DIR": folder,
                    "OMP_NUM_THREADS": "1",
                },
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            for number, speed in enumerate(speeds)
        ]
        said = ended(ranks)
    if any(each.returncode for each in ranks):
        raise RuntimeError(b"".join(errors for _, errors in said).decode())
    found = json.loads(said[0][0])
    settled = found["times"][int(SETTLED * steps) :]
    return {
        "step_ms": round(median(settled) * 1000, 2),
        "samples": [int(errors.split()[-1]) for _, errors in said],
        "look_ms": round(max(found["looks"]) * 1000, 2),
        "losses": found["losses"],
    }


def ended(ranks: list[subprocess.Popen[bytes]]) -> list[tuple[bytes, bytes]]:
    """What each rank printed; where one fails, the others are not waited for."""
    while any(each.poll() is None for each in ranks):
        if any(each.returncode for each in ranks):
            for each in ranks:
                each.kill()
        time.sleep(0.1)
    return [each.communicate() for each in ranks]


def compared(speeds: tuple[float, ...], steps: int) -> dict[str, Any]:
    """Each way twice, in turn; the less disturbed of both counts."""
    ways = [gang_of(speeds, balanced=way, steps=steps) for way in (False, True, False, True)]
    equal = min(ways[::2], key=lambda each: float(each["step_ms"]))
    balanced = min(ways[1::2], key=lambda each: float(each["step_ms"]))
    apart = max(
        abs(one - other) / max(1e-9, abs(one))
        for one, other in zip(equal.pop("losses"), balanced.pop("losses"), strict=True)
    )
    best = sum(speeds) / (len(speeds) * min(speeds))
    found = {
        "speeds": list(speeds),
        "equal": equal,
        "balanced": balanced,
        "gain": round(equal["step_ms"] / balanced["step_ms"], 2),
        "best_gain": round(best, 2),
        "losses_apart": float(f"{apart:.1e}"),
    }
    print(f"  {found}", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.rank:
        rank()
        return
    found: dict[str, Any] = {
        "date": datetime.now(UTC).isoformat(timespec="minutes"),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}",
        "load_before": round(os.getloadavg()[0], 2),
        "batch": BATCH,
        "steps": asked.steps,
        "fastest_ms": FASTEST_S * 1000,
        "gangs": [compared(speeds, asked.steps) for speeds in GANGS],
    }
    found["load_after"] = round(os.getloadavg()[0], 2)
    OUT.write_text(json.dumps(found, indent=1) + "\n")
    PAGE.write_text(page("balanced_shares_page.md", **found))
    print(f"written to {OUT} and {PAGE}")


if __name__ == "__main__":
    main()
