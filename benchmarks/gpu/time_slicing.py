"""Three jobs that each need 60 % of a GPU share it through the live manager, against one after another.

    python -m benchmarks.gpu.time_slicing [--quantum 60] [--only shared,one-by-one] [--out DIR]

The GPU's bookable memory is set to 40 GiB, each job books and fills 24 GiB, so two do not fit at once: under
`gandiva` they take turns by being frozen, under `fifo` the next starts when one has ended.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from benchmarks.gpu.harness import Manager, Results

NAMES = ("one", "two", "three")
SHARE = 0.6
MODEL_GIB = 2.0
"""What the model, its optimizer and the CUDA context take beside the resident tensor."""
POLICIES = {
    "one-by-one": ("--policy", "fifo"),
    "shared": ("--policy", "gandiva", "--set", "packing=off", "--set", "quantum_s={quantum}"),
}


def run(results: Results, how: str, asked: argparse.Namespace, limit_s: float) -> None:
    options = [each.format(quantum=asked.quantum) for each in POLICIES[how]]
    need = asked.bookable * SHARE
    fill = max(0.0, need - MODEL_GIB)
    model = ("--steps", asked.steps, "--hidden", asked.hidden)
    words = (*model, "--fill-gib", fill, "--deterministic")
    with Manager("--gpu-memory", f"{asked.bookable:g}GiB", *options) as manager:
        began = time.monotonic()
        fields = {"gpus": 1, "gpu_memory": f"{need:g}GiB"}
        jobs = [manager.train(name, *words, **fields) for name in NAMES]
        all_ended = manager.wait(jobs, limit_s - 30)
        results.add(how, all_ended=all_ended, makespan_s=round(time.monotonic() - began, 1))
        results.add(how, quantum_s=asked.quantum, bookable_gib=asked.bookable, steps=asked.steps)
        results.add(how, share=SHARE)
        results.add(how, found=[manager.result(name) for name in NAMES])
        results.add(how, states=[manager.state(job) for job in jobs])
        results.add(how, stories=[manager.sentences(job) for job in jobs])
        manager.cancel(jobs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quantum", type=float, default=60.0, help="seconds of a turn")
    parser.add_argument("--bookable", type=float, default=40.0, help="GiB of the GPU's memory")
    parser.add_argument("--steps", type=int, default=12_000, help="of each job")
    parser.add_argument("--hidden", type=int, default=4096)
    parser.add_argument("--only", default=",".join(POLICIES))
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    results = Results("time_slicing", asked.out)
    for how in asked.only.split(","):
        results.step(how, 580, lambda how=how: run(results, how, asked, 580))  # type: ignore[misc]
    both = [results.found["steps"].get(how, {}) for how in POLICIES]
    spans = [each.get("makespan_s") for each in both]
    if all(spans) and both[0]["steps"] == both[1]["steps"]:
        results.add("overhead", percent=round(100 * (spans[1] / spans[0] - 1), 1))
    weights = {
        each["weights"]
        for how in POLICIES
        for each in results.found["steps"].get(how, {}).get("found", [])
        if each
    }
    results.add("overhead", different_weights=len(weights))


if __name__ == "__main__":
    main()
