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
from benchmarks.gpu.harness import Found, Manager, Results


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


CLASSES = {"filling": (4096, 0.03), "light": (1024, 0.10)}
"""The guaranteed job's hidden size and its tolerance: one that fills the GPU, one that leaves it idle."""


def classes(results: Results) -> None:
    for kind, (hidden, tolerance) in CLASSES.items():
        with Manager("--policy", "antman") as manager:
            needs = {"gpus": 1, "gpu_memory": "4GiB"}
            words = ("--seconds", 80, "--hidden", hidden)
            kept = manager.train("guaranteed", *words, **needs, tolerance=tolerance)
            harness.wait_for(lambda: len(said(manager, kept)) > ALONE_S, 60)  # noqa: B023
            guest = manager.train("guest", "--seconds", 30, **needs, **{"class": "opportunistic"})
            manager.wait([kept], 150)
            steps = manager.result("guest") or {}
            found = {"tolerance": tolerance} | beside(said(manager, kept), said(manager, guest))
            found["guest_steps"] = max(
                [each.get("step", 0) for each in said(manager, guest)] or [0]
            )
            found["guest_ended"] = bool(steps)
            found["stories"] = [manager.sentences(job) for job in (kept, guest)]
            results.add("classes", **{kind: found})
            manager.cancel([guest])


ALONE_S = 20
"""So many seconds the guaranteed job runs alone before the other comes."""


def said(manager: Manager, job: str) -> list[Found]:
    """The lines that a training job has printed so far."""
    try:
        text = manager.trainmaster("logs", job)["text"]
    except RuntimeError:  # it has not started
        return []
    lines = [harness.parsed_line(line) for line in text.splitlines()]
    return [line for line in lines if isinstance(line, dict) and "at" in line]


def beside(kept: list[Found], guest: list[Found]) -> Found:
    """The guaranteed job's time per step alone, while the guest starts, and from its first step on."""
    ready = next((each["at"] for each in guest if "ready" in each), None)
    if ready is None:
        return {"guest_ran_beside": False}
    began = ready - next(each["start_s"] for each in guest if "ready" in each)
    spans = {"alone": (0.0, began), "starting": (began, ready), "beside": (ready, float("inf"))}
    found: Found = {"guest_ran_beside": True}
    for name, (first, last) in spans.items():
        within = [each for each in kept if "step" in each and first <= each["at"] < last]
        if len(within) > 1:
            time_s, steps = (within[-1][key] - within[0][key] for key in ("at_s", "step"))
            found[f"{name}_ms"] = round(1000 * time_s / steps, 4)
    if {"alone_ms", "beside_ms"} <= found.keys():
        found["slowdown"] = round(found["beside_ms"] / found["alone_ms"] - 1, 4)
    return found


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
