"""How long a PyTorch program takes to give back its GPU's memory by itself, and to take it again.

    python -m benchmarks.gpu.cooperative --gib 1 4 16 --out cooperative.json

Needs one GPU and torch. `--driver freeze.json` compares with what the driver's way took: a list of objects
with `gib`, `freeze_ms` and `thaw_ms`. Trains with the same seed twice, with and without pauses: the weights
must be equal.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch

from trainmaster_sdk.offload import Offloader

GIB = 1 << 30
HIDDEN = 2048
TENSORS = 16
"""The state is spread over so many large tensors, besides a small model with its optimizer."""


def link(gib: float = 1.0, rounds: int = 5) -> dict[str, float]:
    """GiB/s of one large copy out to pinned memory and back: the best of some."""
    size = int(gib * GIB)
    there = torch.empty(size, dtype=torch.uint8, device="cuda")
    here = torch.empty(size, dtype=torch.uint8, pin_memory=True)
    best = {"out": 0.0, "back": 0.0}
    for _ in range(rounds):
        for way, to, of in (("out", here, there), ("back", there, here)):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            to.copy_(of, non_blocking=True)
            torch.cuda.synchronize()
            best[way] = max(best[way], gib / (time.perf_counter() - begin))
    return best


class Program:
    """A small model that trains, with as much more state as is wanted."""

    def __init__(self, gib: float) -> None:
        torch.manual_seed(1)
        layers = [torch.nn.Linear(HIDDEN, HIDDEN) for _ in range(4)]
        self.model = torch.nn.Sequential(*layers).cuda()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-4)
        weights = sum(each.numel() for each in self.model.parameters())
        left = max(0, int(gib * GIB) - 4 * 4 * weights)  # with gradients and two moments
        self.more = [
            torch.full((left // TENSORS // 4,), float(number), device="cuda")
            for number in range(TENSORS)
        ]

    def step(self) -> None:
        loss = self.model(torch.randn(64, HIDDEN, device="cuda")).square().mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=False)
        for each in self.more:
            each[:16] += 1

    def state(self) -> list[torch.Tensor]:
        kept = [*self.model.parameters(), *self.more]
        return kept + [each for state in self.optimizer.state.values() for each in state.values()]


def trained(gib: float, steps: int, pauses: int) -> tuple[Program, list[dict[str, Any]]]:
    """A program after so many steps, with a pause after each of the last ones."""
    program, said = Program(gib), []
    mover = Offloader([program.model, program.optimizer, program.more])
    for step in range(steps):
        program.step()
        if step >= steps - pauses:
            torch.cuda.synchronize()
            out = mover.release()
            said.append({"released": out, "taken_back": mover.take_back()})
    return program, said


def measured(gib: float, pauses: int, speed: dict[str, float]) -> dict[str, Any]:
    torch.cuda.empty_cache()
    program, said = trained(gib, pauses + 3, pauses)
    size = said[-1]["released"]["bytes"] / GIB
    later = said[1:] or said  # the first makes the pool
    found: dict[str, Any] = {
        "gib": gib,
        "moved_gib": size,
        "first_ms": said[0]["released"]["took_ms"],
        "left_gib": said[-1]["released"]["left"] / GIB,
    }
    for name, kind, way in (("freeze", "released", "out"), ("thaw", "taken_back", "back")):
        took = [each[kind]["took_ms"] for each in later]
        found[f"{name}_ms"] = statistics.median(took)
        found[f"{name}_ms_all"] = took
        found[f"{name}_over_link"] = statistics.median(took) / (1000 * size / speed[way])
    undisturbed, _ = trained(gib, pauses + 3, 0)
    pairs = zip(program.state(), undisturbed.state(), strict=True)
    found["is_equal"] = all(torch.equal(mine, theirs) for mine, theirs in pairs)
    return found


def main(arguments: list[str]) -> int:
    read = argparse.ArgumentParser(prog="python -m benchmarks.gpu.cooperative")
    read.add_argument("--gib", type=float, nargs="+", default=[1.0, 4.0, 16.0])
    read.add_argument("--pauses", type=int, default=6)
    read.add_argument("--driver", type=Path, help="Figures of the driver's way, to compare with.")
    read.add_argument("--out", type=Path)
    asked = read.parse_args(arguments)
    if not torch.cuda.is_available():
        print("This needs a GPU that torch can use.", file=sys.stderr)
        return 2
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    speed = link()
    rows = [measured(gib, asked.pauses, speed) for gib in asked.gib]
    theirs = json.loads(asked.driver.read_text()) if asked.driver else []
    by_size = {float(each["gib"]): each for each in theirs}
    for row in rows:
        for name in ("freeze_ms", "thaw_ms"):
            if row["gib"] in by_size:
                row[f"driver_over_ours_{name}"] = by_size[row["gib"]][name] / row[name]
    found = {
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "link_gib_per_s": speed,
        "rows": rows,
    }
    print(json.dumps(found, indent=1))
    if asked.out:
        asked.out.write_text(json.dumps(found, indent=1))
    return 0 if all(row["is_equal"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
