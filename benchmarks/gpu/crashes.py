"""The manager is killed while a job is frozen, and while it is being frozen: nothing is lost.

    python -m benchmarks.gpu.crashes [--fill-gib 8] [--out DIR]

After `kill -9` the next manager finds the job; it is resumed, ends, and has the weights of a quiet run.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.gpu import harness
from benchmarks.gpu.harness import Found, Manager, Program, Results


def run(results: Results, step: str, words: tuple[object, ...], wait_s: float | None) -> None:
    """Suspend, kill the manager after `wait_s` (None: when the job is suspended), start it again, resume."""
    with Manager() as manager, beside(manager.folder, words) as plain:
        job = manager.train("frozen", *words, gpus=1)
        harness.wait_for(lambda: manager.state(job) == "running", 20)
        pid = manager.pids(job)[0]
        harness.wait_for(lambda: (harness.process_memory_mib(pid) or 0) > 500, 40)
        time.sleep(3.0)
        manager.suspend(job)
        if wait_s is None:
            harness.wait_for(lambda: manager.state(job) == "suspended", 60)
        else:
            time.sleep(wait_s)
        results.add(step, killed_while=moment(manager, job))
        manager.kill()
        time.sleep(1.0)
        manager.start()
        results.add(step, found_again=moment(manager, job), start_s=manager.start_s)
        harness.wait_for(lambda: manager.state(job) == "suspended", 60)
        left = harness.process_memory_mib(pid)
        results.add(step, memory_mib_while_suspended=left or 0)
        manager.trainmaster("resume", job)
        results.add(step, ended=manager.wait([job], 150), state=manager.state(job))
        found = [plain.result(150), manager.result("frozen")]
        results.add(step, story=manager.sentences(job), found=found)
        same = all(found) and len({each["weights"] for each in found if each}) == 1
        results.add(step, weights_are_the_same=same, attempt=attempt(manager, job))


@contextlib.contextmanager
def beside(folder: Path, words: tuple[object, ...]) -> Iterator[Program]:
    """An equal program that nobody disturbs, without a manager."""
    plain = Program(folder, "undisturbed", *words)
    try:
        yield plain
    finally:
        plain.end()


def moment(manager: Manager, job: str) -> Found:
    said = manager.get(f"/jobs/{job}")
    return {"state": said["state"], "transition": said.get("transition")}


def attempt(manager: Manager, job: str) -> int:
    return int(manager.get(f"/jobs/{job}")["attempt"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--fill-gib", type=float, default=8.0, help="the more, the longer a freeze takes"
    )
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    results = Results("crashes", asked.out)
    words = ("--steps", asked.steps, "--fill-gib", asked.fill_gib, "--deterministic")
    for step, wait_s in (("frozen", None), ("being-frozen", 1.0)):
        results.step(
            step,
            290,
            lambda step=step, wait_s=wait_s: run(results, step, words, wait_s),  # type: ignore[misc]
        )


if __name__ == "__main__":
    main()
