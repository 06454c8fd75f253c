"""Jobs that share a GPU through the live manager: two halves, two classes, and one that takes too much.

    python -m benchmarks.gpu.sharing [--only halves,classes,memory-mps,memory-time] [--out DIR]

`halves`: two jobs of half a GPU at once. `classes`: a guaranteed job keeps its step time beside a job of the
other class. `memory-*`: a job that takes more and more memory does not hurt its neighbour, by MPS or not.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from benchmarks.gpu import harness
from benchmarks.gpu.harness import Manager, Results


def halves(results: Results) -> None:
    with Manager() as manager:
        gate = manager.folder / "gate"
        gate.mkdir()
        words = ("--seconds", 10, "--gate", gate)
        jobs = [manager.train(name, *words, gpus=0.5) for name in ("left", "right")]
        pids = manager.wait_ready(gate, jobs, 60)
        results.add("halves", under_mps=[harness.is_mps_client(pid) for pid in pids])
        (gate / "go").touch()
        manager.wait(jobs, 40)
        results.add("halves", states=[manager.state(job) for job in jobs])
        results.add("halves", found=[manager.result(name) for name in ("left", "right")])
        results.add("halves", stories=[manager.sentences(job) for job in jobs])


def classes(results: Results) -> None:
    with Manager("--policy", "antman") as manager:
        needs = {"gpus": 1, "gpu_memory": "4GiB"}
        alone = manager.train("alone", "--seconds", 15, **needs)
        manager.wait([alone], 60)
        kept = manager.train("guaranteed", "--seconds", 60, **needs)
        guest = manager.train("guest", "--seconds", 30, **needs, **{"class": "opportunistic"})
        began = harness.wait_for(lambda: manager.state(guest) == "running", 60)
        results.add("classes", guest_ran_beside=bool(began) and manager.state(kept) == "running")
        manager.wait([kept, guest], 180)
        found = {name: manager.result(name) for name in ("alone", "guaranteed", "guest")}
        results.add(
            "classes", found=found, stories=[manager.sentences(job) for job in (kept, guest)]
        )
        if found["alone"] and found["guaranteed"]:
            ratio = found["guaranteed"]["ms_per_step"] / found["alone"]["ms_per_step"]
            results.add("classes", slowdown_of_the_guaranteed=round(ratio, 4))


def memory(results: Results, mode: str) -> None:
    step = f"memory-{mode}"
    with Manager("--gpu-memory", "40GiB") as manager:
        fields = {"gpus": 0.5, "sharing": mode}
        neighbour = manager.train("neighbour", "--seconds", 40, "--fill-gib", 4, **fields)
        greedy = manager.train("greedy", "--seconds", 60, "--greedy-after", 10, **fields)
        manager.wait([neighbour], 120)
        results.add(step, neighbour=manager.state(neighbour), found=manager.result("neighbour"))
        results.add(step, stories=[manager.sentences(job) for job in (neighbour, greedy)])
        results.add(step, show=manager.trainmaster("show", greedy)["text"])
        results.add(step, is_unhurt=manager.state(neighbour) == "succeeded")
        manager.cancel([greedy])


STEPS: dict[str, tuple[float, Callable[[Results], None]]] = {
    "halves": (120, halves),
    "classes": (300, classes),
    "memory-mps": (180, lambda results: memory(results, "mps")),
    "memory-time": (180, lambda results: memory(results, "time")),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(STEPS))
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    results = Results("sharing", asked.out)
    for name in asked.only.split(","):
        limit_s, does = STEPS[name]
        results.step(name, limit_s, lambda does=does: does(results))  # type: ignore[misc]


if __name__ == "__main__":
    main()
